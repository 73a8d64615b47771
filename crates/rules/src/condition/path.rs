//! Paths that a `match` asks for: whole values and globs.
//!
//! As in endpoint patterns, empty segments do not count: `/login/` and `//login` are `/login`, and
//! `/api/*` matches `/api` as well. Most routers serve the same thing there.

use std::borrow::Cow;

use super::{Glob, TextTest};
use crate::paths::Paths;

/// A path that has one of some values, or fits one of some globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathTest {
    /// The values without slashes that do not count, and the globs as typed.
    pub(crate) text: TextTest,
    /// The globs that end in `/*` or `/`, without that end: a path is compared without its own.
    trimmed: Box<[Glob]>,
}

impl PathTest {
    pub(crate) fn new(values: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let bare = |value: &str| match value.contains('*') {
            true => value.to_owned(),
            false => bare(value).into_owned(),
        };
        let text = TextTest::new("path", values.into_iter().map(|value| bare(value.as_ref())));
        let trimmed = text.globs.iter().filter_map(trimmed).collect();
        Self { text, trimmed }
    }

    /// The test that one path alone passes, also if it has a `*`.
    pub(crate) fn one(path: &str) -> Self {
        let (exact, globs) = ([bare(path).into()].into(), [].into());
        Self { text: TextTest { fact: "path".into(), exact, globs }, trimmed: [].into() }
    }

    /// Whether a [`bare`] path is meant.
    pub(crate) fn accepts(&self, path: &str) -> bool {
        self.text.accepts(path) || self.trimmed.iter().any(|glob| glob.matches(path))
    }

    /// The same test for paths that were put into their form for comparison.
    pub(crate) fn under(&self, paths: Paths) -> Self {
        let globs = self.text.globs.iter().map(|glob| paths.folded_glob(&glob.to_string()));
        let exact = self.text.exact.iter().map(|value| paths.folded(value).into_owned());
        Self::new(exact.chain(globs))
    }
}

fn trimmed(glob: &Glob) -> Option<Glob> {
    let text = glob.to_string();
    let trimmed = text.strip_suffix("/*").or_else(|| text.strip_suffix('/'))?;
    Some(Glob::of(if trimmed.is_empty() { "/" } else { trimmed }))
}

/// A path without the slashes that do not count.
pub(crate) fn bare(path: &str) -> Cow<'_, str> {
    if path.contains("//") {
        let segments: Vec<&str> = super::pattern::segments(path).collect();
        return Cow::Owned(format!("/{}", segments.join("/")));
    }
    Cow::Borrowed(without_end(path))
}

/// A path without the slash at its end, which does not count.
pub(crate) fn without_end(path: &str) -> &str {
    match path.strip_suffix('/') {
        Some("") | None => path,
        Some(bare) => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_end_and_empty_segments_do_not_count() {
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
            let test = PathTest::new([value]);
            assert!(yes.iter().all(|path| test.accepts(&bare(path))), "{value}");
            assert!(!no.iter().any(|path| test.accepts(&bare(path))), "{value}");
        }
    }
}
