//! Conditions on the path: exact paths and globs.
//!
//! As in endpoint patterns, empty segments are ignored: `/login/` and `//login` equal `/login`, and
//! `/api/*` also matches `/api`. Most routers serve the same resource for these paths.

use std::borrow::Cow;

use super::{Glob, TextMatcher};
use crate::path_normalization::PathNormalization;

/// Matches a path that equals one of the values or matches one of the globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathMatcher {
    /// The exact paths without redundant slashes, and the globs as written.
    pub(crate) text: TextMatcher,
    /// The globs that end in `/*` or `/`, without that ending. Request paths have no trailing slash
    /// when they are compared.
    trimmed_globs: Box<[Glob]>,
}

impl PathMatcher {
    pub(crate) fn new(values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let bare = |value: &str| match value.contains('*') {
            true => value.to_owned(),
            false => normalize_slashes(value).into_owned(),
        };
        let text = TextMatcher::new("path", values.into_iter().map(|value| bare(value.as_ref())));
        let trimmed_globs = text.globs.iter().filter_map(trim_glob).collect();
        Self { text, trimmed_globs }
    }

    /// Matches only this path, even if it contains a `*`.
    pub(crate) fn for_exact_path(path: &str) -> Self {
        let (exact, globs) = ([normalize_slashes(path).into()].into(), [].into());
        Self { text: TextMatcher { fact: "path".into(), exact, globs }, trimmed_globs: [].into() }
    }

    /// Whether the path matches. It must have been through [`normalize_slashes`].
    pub(crate) fn accepts(&self, path: &str) -> bool {
        self.text.accepts(path) || self.trimmed_globs.iter().any(|glob| glob.matches(path))
    }

    /// The same matcher for normalized paths.
    pub(crate) fn with_normalized_paths(&self, paths: PathNormalization) -> Self {
        let globs = self.text.globs.iter().map(|glob| paths.fold_glob(&glob.to_string()));
        let exact = self.text.exact.iter().map(|value| paths.fold_path(value).into_owned());
        Self::new(exact.chain(globs))
    }
}

fn trim_glob(glob: &Glob) -> Option<Glob> {
    let text = glob.to_string();
    let trimmed = text.strip_suffix("/*").or_else(|| text.strip_suffix('/'))?;
    Some(Glob::new(if trimmed.is_empty() { "/" } else { trimmed }))
}

/// Removes redundant slashes from a path.
pub(crate) fn normalize_slashes(path: &str) -> Cow<'_, str> {
    if path.contains("//") {
        let segments: Vec<&str> = super::pattern::segments(path).collect();
        return Cow::Owned(format!("/{}", segments.join("/")));
    }
    Cow::Borrowed(trim_trailing_slash(path))
}

/// Removes a trailing slash from a path, except from `/`.
pub(crate) fn trim_trailing_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(bare) => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_matcher_ignores_redundant_slashes() {
        for (value, yes, no) in [
            (
                "/internal",
                vec!["/internal", "/internal/", "//internal//"],
                vec!["/", "/internal/x"],
            ),
            ("/internal/", vec!["/internal", "/internal/"], vec!["/internalx"]),
            ("/", vec!["/", "//"], vec!["/a"]),
            ("/api/*", vec!["/api", "/api/", "/api/x", "/api/x/"], vec!["/apix", "/"]),
            ("/*", vec!["/", "/a"], vec![]),
            ("/f/*.pdf", vec!["/f/a.pdf", "/f/a.pdf/", "//f/a.pdf"], vec!["/f/a.pdf/x"]),
        ] {
            let test = PathMatcher::new([value]);
            assert!(yes.iter().all(|path| test.accepts(&normalize_slashes(path))), "{value}");
            assert!(!no.iter().any(|path| test.accepts(&normalize_slashes(path))), "{value}");
        }
    }
}
