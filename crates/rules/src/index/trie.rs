//! A trie of path patterns. Walking a path visits every pattern that matches it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::condition::PatternSegment;

/// One value per pattern, in a tree of segments.
#[derive(Debug)]
pub(crate) struct PathTrie<T> {
    literals: HashMap<Box<str>, PathTrie<T>>,
    any: Option<Box<PathTrie<T>>>,
    /// The value of the pattern that ends here.
    exact: Option<T>,
    /// The value of the pattern that continues with `*`.
    wildcard: Option<T>,
}

impl<T> Default for PathTrie<T> {
    fn default() -> Self {
        Self { literals: HashMap::new(), any: None, exact: None, wildcard: None }
    }
}

impl<T: Default> PathTrie<T> {
    /// The value of a pattern, inserted if missing.
    pub(crate) fn insert(&mut self, segments: &[PatternSegment], open: bool) -> &mut T {
        let node = segments.iter().fold(self, |node, segment| match segment {
            PatternSegment::Literal(text) => node.literals.entry(text.clone()).or_default(),
            PatternSegment::Any => node.any.get_or_insert_default(),
        });
        if open { &mut node.wildcard } else { &mut node.exact }.get_or_insert_default()
    }
}

impl<T> PathTrie<T> {
    /// Visits the values of all patterns that match, the most specific first: in each segment, a
    /// literal comes before `{name}`, which comes before `*`. An unknown path matches only `*`.
    pub(crate) fn visit<'t, B>(
        &'t self,
        path: Option<&str>,
        visitor: &mut impl FnMut(&'t T) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match path {
            Some(path) => self.walk(path, visitor)?,
            None => self.wildcard.as_ref().map_or(ControlFlow::Continue(()), visitor)?,
        }
        ControlFlow::Continue(())
    }

    /// Visits the values of all patterns.
    pub(crate) fn for_each<'t>(&'t self, visitor: &mut impl FnMut(&'t T)) {
        self.exact.iter().chain(&self.wildcard).for_each(&mut *visitor);
        let nodes = self.literals.values().chain(self.any.as_deref());
        nodes.for_each(|node| node.for_each(visitor));
    }

    fn walk<'t, B>(
        &'t self,
        path: &str,
        visitor: &mut impl FnMut(&'t T) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let path = path.trim_start_matches('/');
        if path.is_empty() {
            if let Some(value) = &self.exact {
                visitor(value)?;
            }
        } else if !self.literals.is_empty() || self.any.is_some() {
            let (segment, rest) = path.split_once('/').unwrap_or((path, ""));
            if let Some(node) = self.literals.get(segment) {
                node.walk(rest, visitor)?;
            }
            if let Some(node) = &self.any {
                node.walk(rest, visitor)?;
            }
        }
        if let Some(value) = &self.wildcard {
            visitor(value)?;
        }
        ControlFlow::Continue(())
    }
}
