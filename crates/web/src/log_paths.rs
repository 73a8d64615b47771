//! How request paths appear in log lines.

/// How paths appear in log lines. A path may contain personal data, such as a user's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogPaths {
    /// As the endpoint pattern that the path matches, or `*` where no rule declares one.
    #[default]
    Patterns,
    /// As the client sent it. Violations still show the endpoint pattern where a rule declares one.
    Raw,
}
