//! An ordered list of globs, indexed to find the first match among thousands.
//!
//! Each glob is stored under its literal prefix or, if it begins with `*`, under its literal
//! suffix. A value is looked up once per distinct prefix or suffix length, so that only globs with
//! the same prefix or suffix are tried.

use std::collections::HashMap;

use crate::condition::Glob;

/// Globs with their positions in the order.
#[derive(Debug, Default)]
pub(super) struct GlobIndex {
    prefixes: AffixTable,
    suffixes: AffixTable,
}

/// Globs by literal prefix or suffix; `lengths` is sorted in ascending order.
#[derive(Debug, Default)]
struct AffixTable {
    lengths: Vec<usize>,
    by_affix: HashMap<Box<[u8]>, Vec<(usize, Glob)>>,
}

impl GlobIndex {
    /// Adds a glob after the existing ones.
    pub(super) fn add(&mut self, glob: Glob, at: usize) {
        if glob.prefix().is_empty() {
            self.suffixes.add(glob.suffix().to_owned(), glob, at);
        } else {
            self.prefixes.add(glob.prefix().to_owned(), glob, at);
        }
    }

    /// The position of the first glob that matches.
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

    /// The lists of globs that have a prefix, or suffix, in common with a value.
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

    /// Measures the cost as the number of globs tried; benchmarks measure the time.
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
