//! Path normalization, for upstreams that treat several spellings of a path as one.
//!
//! Requests are forwarded unchanged. Only matching and keys use the normalized path. A rule for
//! `/login` then also limits `/LOGIN` and `/login;x=1` if the upstream serves the same resource for
//! them.

use std::borrow::Cow;

use crate::facts::Facts;

/// The `paths` section: the differences that the upstream ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathNormalization {
    /// Ignore the case of ASCII letters.
    pub ignore_case: bool,
    /// Ignore the text after a `;` in a segment (`/login;jsessionid=1`).
    pub strip_parameters: bool,
}

impl PathNormalization {
    /// Whether paths are compared unchanged.
    pub(crate) const fn is_exact(self) -> bool {
        !self.ignore_case && !self.strip_parameters
    }

    /// Normalizes a path.
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

    /// Normalizes one segment of a pattern.
    pub(crate) fn fold_segment(self, segment: &str) -> String {
        let stripped =
            if self.strip_parameters { strip_segment_parameters(segment) } else { segment };
        self.fold_case(stripped)
    }

    /// Normalizes a glob.
    pub(crate) fn fold_glob(self, glob: &str) -> String {
        let segments: Vec<_> = glob.split('/').map(|part| self.fold_segment(part)).collect();
        segments.join("/")
    }

    fn fold_case(self, text: &str) -> String {
        if self.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() }
    }

    /// Normalizes the `path` fact, and the path in an `endpoint` fact.
    pub(crate) fn fold_facts(self, facts: &mut Facts<'_>) {
        if self.is_exact() {
            return;
        }
        for name in ["path", "endpoint"] {
            let Some(value) = facts.get(name) else { continue };
            let (method, path) = value.split_at(value.find('/').unwrap_or(value.len()));
            if let Cow::Owned(path) = self.fold_path(path) {
                let folded = format!("{method}{path}");
                facts.set(name, folded);
            }
        }
    }
}

fn strip_segment_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

/// Removes path parameters, then resolves dot segments. Servers that drop parameters do this in the
/// same order: they serve `/admin` for `/a/..;x/admin`.
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
