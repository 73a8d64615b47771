//! Globs: `*` matches any number of characters, including none.

use std::fmt;

/// A pattern, usually with at least one `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Glob(Box<str>);

impl Glob {
    /// Returns `None` if the text has no `*`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.contains('*').then(|| Self(text.into()))
    }

    /// A glob of any text. Text without `*` matches only itself.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text before the first `*`.
    pub(crate) fn prefix(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }

    /// The text after the last `*`.
    pub(crate) fn suffix(&self) -> &str {
        self.0.rsplit('*').next().unwrap_or_default()
    }

    /// Whether the glob matches the whole value. Backtracks only to the last `*`, so the time is at
    /// most the product of both lengths and never exponential.
    pub(crate) fn matches(&self, value: &str) -> bool {
        let (glob, value) = (self.0.as_bytes(), value.as_bytes());
        let (mut g, mut v) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while v < value.len() {
            if glob.get(g) == Some(&b'*') {
                star = Some((g, v));
                g += 1;
            } else if glob.get(g) == Some(&value[v]) {
                (g, v) = (g + 1, v + 1);
            } else if let Some((at, taken)) = star {
                star = Some((at, taken + 1));
                (g, v) = (at + 1, taken + 1);
            } else {
                return false;
            }
        }
        glob[g..].iter().all(|byte| *byte == b'*')
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn globs_match_whole_values() {
        for (glob, yes, no) in [
            ("*", vec!["", "a", "*"], vec![]),
            ("acme-*", vec!["acme-", "acme-1"], vec!["acme", "xacme-1"]),
            ("*.png", vec![".png", "a.png.png"], vec!["a.png.x"]),
            ("a*b*c", vec!["abc", "a1b2c", "abbcc"], vec!["ab", "acb", "abcd"]),
        ] {
            let glob = Glob::parse(glob).unwrap();
            assert!(yes.iter().all(|value| glob.matches(value)), "{glob}");
            assert!(!no.iter().any(|value| glob.matches(value)), "{glob}");
        }
        assert_eq!(Glob::parse("plain"), None);
    }

    #[test]
    fn hostile_value_matches_in_bounded_time() {
        let glob = Glob::parse(&"a*".repeat(40)).unwrap();
        assert!(
            !Glob::parse(&format!("{}b", "*a".repeat(40))).unwrap().matches(&"a".repeat(20_000))
        );
        assert!(glob.matches(&"a".repeat(20_000)));
    }
}
