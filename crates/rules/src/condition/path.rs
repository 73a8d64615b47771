//! Paths that a `match` asks for: whole values and globs.
//!
//! As in endpoint patterns, empty segments do not count: `/login/` and `//login` are `/login`, and
//! `/api/*` matches `/api` as well. Most routers serve the same thing there.

use std::borrow::Cow;

use super::{Glob, TextMatcher};
use crate::path_normalization::PathNormalization;

/// A path that has one of some values, or fits one of some globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathMatcher {
    /// The values without slashes that do not count, and the globs as typed.
    pub(crate) text: TextMatcher,
    /// The globs that end in `/*` or `/`, without that end: a path is compared without its own.
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

    /// The test that one path alone passes, also if it has a `*`.
    pub(crate) fn for_exact_path(path: &str) -> Self {
        let (exact, globs) = ([normalize_slashes(path).into()].into(), [].into());
        Self { text: TextMatcher { fact: "path".into(), exact, globs }, trimmed_globs: [].into() }
    }

    /// Whether a [`normalize_slashes`] path is meant.
    pub(crate) fn accepts(&self, path: &str) -> bool {
        self.text.accepts(path) || self.trimmed_globs.iter().any(|glob| glob.matches(path))
    }

    /// The same test for paths that were put into their form for comparison.
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

/// A path without the slashes that do not count.
pub(crate) fn normalize_slashes(path: &str) -> Cow<'_, str> {
    if path.contains("//") {
        let segments: Vec<&str> = super::pattern::segments(path).collect();
        return Cow::Owned(format!("/{}", segments.join("/")));
    }
    Cow::Borrowed(trim_trailing_slash(path))
}

/// A path without the slash at its end, which does not count.
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
