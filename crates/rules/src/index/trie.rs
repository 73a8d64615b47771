//! Path patterns as a tree of segments: walking a path meets every pattern that matches it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use crate::condition::PatternSegment;

/// What is kept for each pattern, in a tree of segments.
#[derive(Debug)]
pub(crate) struct PathTrie<T> {
    literals: HashMap<Box<str>, PathTrie<T>>,
    any: Option<Box<PathTrie<T>>>,
    /// Patterns that end here.
    exact: Option<T>,
    /// Patterns that go on with `*`.
    wildcard: Option<T>,
}

impl<T> Default for PathTrie<T> {
    fn default() -> Self {
        Self { literals: HashMap::new(), any: None, exact: None, wildcard: None }
    }
}

impl<T: Default> PathTrie<T> {
    /// What is kept for a pattern.
    pub(crate) fn insert(&mut self, segments: &[PatternSegment], open: bool) -> &mut T {
        let node = segments.iter().fold(self, |node, segment| match segment {
            PatternSegment::Literal(text) => node.literals.entry(text.clone()).or_default(),
            PatternSegment::Any => node.any.get_or_insert_default(),
        });
        if open { &mut node.wildcard } else { &mut node.exact }.get_or_insert_default()
    }
}

impl<T> PathTrie<T> {
    /// Meets what is kept for every pattern that matches, the most specific first: segment by
    /// segment a literal comes before `{name}`, and that before `*`. A path that is not known is
    /// matched by `*` alone.
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

    /// Meets what is kept for every pattern there is.
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
            if let Some(kept) = &self.exact {
                visitor(kept)?;
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
        if let Some(kept) = &self.wildcard {
            visitor(kept)?;
        }
        ControlFlow::Continue(())
    }
}
