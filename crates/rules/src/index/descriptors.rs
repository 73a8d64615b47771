//! Index of the rules with a descriptor condition: a tree of entries for each domain.
//!
//! The lookup follows a request's descriptor entry by entry. At each entry it takes the most
//! specific branch: the exact value, else the first glob that matches, else the key alone. It never
//! backtracks, and finds only rules whose last entry corresponds to the request's last entry. The
//! cost of a lookup is therefore proportional to the number of entries.

mod globs;

use std::collections::HashMap;

use crate::condition::{Condition, DescriptorMatcher, FactMatcher, ValueMatcher};
use crate::facts::DescriptorPair;
use globs::GlobIndex;

/// Rules by domain and descriptor.
#[derive(Debug, Default)]
pub(crate) struct DescriptorIndex {
    domains: HashMap<Box<str>, DescriptorLevel>,
}

/// The entries that may come next.
#[derive(Debug, Default)]
struct DescriptorLevel {
    keys: HashMap<Box<str>, ValueBranches>,
}

/// The branches for the values of one key.
#[derive(Debug, Default)]
struct ValueBranches {
    /// In document order.
    nodes: Vec<DescriptorNode>,
    /// Exact values, and globs by their text: the value `a*` selects the glob `a*`, whatever other
    /// globs match.
    exact: HashMap<Box<str>, usize>,
    globs: GlobIndex,
    any: Option<usize>,
}

/// The rules whose descriptor ends here, and the entries below.
#[derive(Debug, Default)]
struct DescriptorNode {
    rules: Vec<u32>,
    children: DescriptorLevel,
}

impl DescriptorIndex {
    /// Inserts a rule with a descriptor condition. Returns `false` for any other rule.
    pub(crate) fn insert(&mut self, rule: u32, conditions: &[Condition]) -> bool {
        let Some((domain, descriptor)) = domain_and_descriptor(conditions) else {
            return false;
        };
        let Some((last, before)) = descriptor.0.split_last() else {
            return false;
        };
        let root = self.domains.entry(domain.into()).or_default();
        let level = before.iter().fold(root, |level, test| &mut level.node_mut(test).children);
        level.node_mut(last).rules.push(rule);
        true
    }

    /// Whether any rule has a descriptor condition for the domain.
    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The rules at the node that a descriptor leads to.
    pub(crate) fn find(&self, domain: Option<&str>, entries: &[DescriptorPair<'_>]) -> &[u32] {
        self.find_node(domain, entries).map_or(&[], |node| &node.rules)
    }

    fn find_node(
        &self,
        domain: Option<&str>,
        entries: &[DescriptorPair<'_>],
    ) -> Option<&DescriptorNode> {
        let (last, before) = entries.split_last()?;
        let root = self.domains.get(domain?)?;
        let level = before
            .iter()
            .try_fold(root, |level, entry| Some(&level.most_specific(entry)?.children));
        level?.most_specific(last)
    }
}

/// The domain and the descriptor of the conditions. A checked rule has both or neither.
fn domain_and_descriptor(conditions: &[Condition]) -> Option<(&str, &DescriptorMatcher)> {
    let descriptor = conditions.iter().find_map(|condition| match &condition.matcher {
        FactMatcher::Descriptor(descriptor) => Some(descriptor),
        _ => None,
    });
    Some((conditions.iter().find_map(Condition::single_domain)?, descriptor?))
}

impl DescriptorLevel {
    fn node_mut(&mut self, test: &crate::condition::EntryMatcher) -> &mut DescriptorNode {
        self.keys.entry(test.key.clone()).or_default().node_mut(&test.value)
    }

    fn most_specific(&self, entry: &DescriptorPair<'_>) -> Option<&DescriptorNode> {
        self.keys.get(&*entry.key)?.most_specific(&entry.value)
    }
}

impl ValueBranches {
    fn node_mut(&mut self, value: &ValueMatcher) -> &mut DescriptorNode {
        let next = self.nodes.len();
        let at = match value {
            ValueMatcher::Any => *self.any.get_or_insert(next),
            ValueMatcher::Exact(text) => *self.exact.entry(text.clone()).or_insert(next),
            ValueMatcher::Glob(glob) => {
                let at = *self.exact.entry(glob.to_string().into()).or_insert(next);
                if at == next {
                    self.globs.add(glob.clone(), next);
                }
                at
            }
        };
        if at == next {
            self.nodes.push(DescriptorNode::default());
        }
        &mut self.nodes[at]
    }

    fn most_specific(&self, value: &str) -> Option<&DescriptorNode> {
        let exact = self.exact.get(value).copied();
        let at = exact.or_else(|| self.globs.first_match(value)).or(self.any)?;
        self.nodes.get(at)
    }
}

#[cfg(test)]
mod tests;
