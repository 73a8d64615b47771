//! Sources of rules, and where each one is edited.

use serde::Serialize;

/// Where the active rules come from. Only a rules database accepts changes through the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleSource {
    /// A file, limits on the command line, or the built-in example.
    File,
    /// The database of `--rules-db`, with versions and an audit trail.
    Database,
    /// The table of `--rules-table`, edited by other programs.
    Table,
}

impl RuleSource {
    /// Whether the admin API can change these rules.
    #[must_use]
    pub const fn is_editable(self) -> bool {
        matches!(self, Self::Database)
    }

    /// Explains why these rules cannot be changed here, and what to do instead.
    pub(super) fn advice(self, name: &str) -> String {
        let what_to_do = match self {
            Self::File => {
                "change them there, or start tidegate with --rules-db sqlite:PATH (or \
                 --rules-db postgres://… for a fleet) to keep them in a database, where the admin \
                 API, the dashboard and `tidegate rules` change them"
            }
            Self::Database => "change them with `tidegate rules apply FILE`",
            Self::Table => "change the rows of that table; it is reloaded automatically",
        };
        format!("these rules are read-only here, because they come from {name}: {what_to_do}")
    }
}
