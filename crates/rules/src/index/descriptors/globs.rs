//! Globs in an order, of which the first that fits is wanted, though there are thousands.
//!
//! Each is filed under how it begins, or if it begins with a `*` under how it ends; a value is looked up once for
//! each length of a beginning or end that there is. Only globs that share it are tried.

use std::collections::HashMap;

use crate::condition::Glob;

/// Globs with their places in the order.
#[derive(Debug, Default)]
pub(super) struct GlobIndex {
    prefixes: AffixTable,
    suffixes: AffixTable,
}

/// Globs under a text, the shorter texts first.
#[derive(Debug, Default)]
struct AffixTable {
    lengths: Vec<usize>,
    by_affix: HashMap<Box<[u8]>, Vec<(usize, Glob)>>,
}

impl GlobIndex {
    /// Adds a glob that comes after those that are there.
    pub(super) fn add(&mut self, glob: Glob, at: usize) {
        if glob.prefix().is_empty() {
            self.suffixes.add(glob.suffix().to_owned(), glob, at);
        } else {
            self.prefixes.add(glob.prefix().to_owned(), glob, at);
        }
    }

    /// The place of the first that fits.
    pub(super) fn first_match(&self, value: &str) -> Option<usize> {
        let bytes = value.as_bytes();
        let begins = self.prefixes.first_match(value, |length| bytes.get(..length));
        let ends = self
            .suffixes
            .first_match(value, |length| bytes.get(bytes.len().checked_sub(length)?..));
        begins.into_iter().chain(ends).min()
    }
}

impl AffixTable {
    fn add(&mut self, text: String, glob: Glob, at: usize) {
        if let Err(place) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(place, text.len());
        }
        self.by_affix.entry(text.into_bytes().into()).or_default().push((at, glob));
    }

    fn first_match<'v>(
        &self,
        value: &str,
        part: impl Fn(usize) -> Option<&'v [u8]>,
    ) -> Option<usize> {
        let fits = |list: &[(usize, Glob)]| list.iter().position(|(_, glob)| glob.matches(value));
        self.candidate_lists(part).filter_map(|list| Some(list[fits(list)?].0)).min()
    }

    /// The globs that begin, or end, as a value does.
    fn candidate_lists<'v>(
        &self,
        part: impl Fn(usize) -> Option<&'v [u8]>,
    ) -> impl Iterator<Item = &[(usize, Glob)]> {
        let parts = self.lengths.iter().map_while(move |length| part(*length));
        parts.filter_map(|part| self.by_affix.get(part)).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost is the number of globs that are tried; time itself is for benchmarks.
    #[test]
    fn glob_lookup_tries_only_shared_affixes() {
        let mut globs = GlobIndex::default();
        for n in 0..10_000 {
            let text = if n % 2 == 0 { format!("b{n:05}*") } else { format!("*e{n:05}") };
            globs.add(Glob::parse(&text).unwrap(), n);
        }
        let tried = |value: &str| {
            let bytes = value.as_bytes();
            let begins = globs.prefixes.candidate_lists(|length| bytes.get(..length));
            let ends = globs
                .suffixes
                .candidate_lists(|length| bytes.get(bytes.len().checked_sub(length)?..));
            begins.chain(ends).map(<[_]>::len).sum::<usize>()
        };
        assert_eq!((globs.first_match("b04320-e04321"), tried("b04320-e04321")), (Some(4320), 2));
        assert_eq!((globs.first_match("-e04321"), tried("-e04321")), (Some(4321), 1));
        assert_eq!((globs.first_match("other"), tried("other")), (None, 0));
    }
}
