//! The form in which paths are compared, for upstreams that take several spellings for one.
//!
//! What a client sent is forwarded as it is. Only matching and keys use this form, so a rule for
//! `/login` also limits `/LOGIN` and `/login;x=1` where the upstream serves the same thing there.

use std::borrow::Cow;

use crate::facts::Facts;

/// The `paths` section: which differences the upstream does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathNormalization {
    /// Upper and lower case of ASCII letters are the same.
    pub ignore_case: bool,
    /// What follows a `;` in a segment does not count (`/login;jsessionid=1`).
    pub strip_parameters: bool,
}

impl PathNormalization {
    /// Whether paths are compared as they are.
    pub(crate) const fn is_exact(self) -> bool {
        !self.ignore_case && !self.strip_parameters
    }

    /// A path in its form for comparison.
    pub(crate) fn fold_path(self, path: &str) -> Cow<'_, str> {
        let mut folded = Cow::Borrowed(path);
        if self.strip_parameters && path.contains(';') {
            folded = Cow::Owned(resolve_without_parameters(path));
        }
        if self.ignore_case && folded.bytes().any(|byte| byte.is_ascii_uppercase()) {
            folded.to_mut().make_ascii_lowercase();
        }
        folded
    }

    /// One segment of a pattern in that form.
    pub(crate) fn fold_segment(self, segment: &str) -> String {
        let stripped =
            if self.strip_parameters { strip_segment_parameters(segment) } else { segment };
        self.fold_case(stripped)
    }

    /// A glob in that form.
    pub(crate) fn fold_glob(self, glob: &str) -> String {
        let segments: Vec<_> = glob.split('/').map(|part| self.fold_segment(part)).collect();
        segments.join("/")
    }

    fn fold_case(self, text: &str) -> String {
        if self.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() }
    }

    /// Puts the path, and an `endpoint` fact with a path, into that form.
    pub(crate) fn fold_facts(self, facts: &mut Facts<'_>) {
        if self.is_exact() {
            return;
        }
        for name in ["path", "endpoint"] {
            let Some(told) = facts.get(name) else { continue };
            let (method, path) = told.split_at(told.find('/').unwrap_or(told.len()));
            if let Cow::Owned(path) = self.fold_path(path) {
                let told = format!("{method}{path}");
                facts.set(name, told);
            }
        }
    }
}

fn strip_segment_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

/// The path without parameters. Servers that drop them resolve dot segments afterwards: to them
/// `/a/..;x/admin` is `/admin`.
fn resolve_without_parameters(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').map(strip_segment_parameters) {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fold_by_configured_options() {
        let (case, parameters) = (true, true);
        for (ignore_case, strip_parameters, given, expected) in [
            (false, false, "/Login;x/..", "/Login;x/.."),
            (case, false, "/LOGIN;X/%C3", "/login;x/%c3"),
            (false, parameters, "/Login;x=1", "/Login"),
            (false, parameters, "/a;b/c;d;e/", "/a/c"),
            (false, parameters, "/;x/admin", "/admin"),
            (false, parameters, "/public/..;/admin", "/admin"),
            (false, parameters, "/public/.;x/y", "/public/y"),
            (false, parameters, "/..;/..;", "/"),
            (case, parameters, "/Public/..;X/Admin;Y", "/admin"),
        ] {
            let paths = PathNormalization { ignore_case, strip_parameters };
            assert_eq!(paths.fold_path(given), expected, "{paths:?}");
        }
    }

    #[test]
    fn endpoint_facts_are_folded() {
        let paths = PathNormalization { ignore_case: true, strip_parameters: true };
        let mut facts: Facts<'_> =
            [("endpoint", "POST /Login;x"), ("path", "/A")].into_iter().collect();
        paths.fold_facts(&mut facts);
        assert_eq!((facts.get("endpoint"), facts.get("path")), (Some("POST /login"), Some("/a")));
    }
}
