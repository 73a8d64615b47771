//! Finds the rules that may match a request, at a cost that does not grow with the number of rules.
//!
//! Each rule is indexed by the condition that it shares with the fewest other rules. A bucket that
//! still holds many rules is itself an index over their remaining conditions. The hash tables are
//! those of `std`, with random keys that an attacker cannot guess. The result is only a list of
//! candidates.

pub(crate) mod descriptors;
pub(crate) mod trie;

use std::collections::HashMap;
use std::ops::ControlFlow;

use ipnet::IpNet;

use crate::condition::{Condition, FactMatcher, MatchInput, MatchPolarity, PatternSegment};
use trie::PathTrie;

/// Up to this many rules are evaluated one by one.
const MAX_LINEAR_SCAN: usize = 8;

/// Below the first level, rules are not indexed by a condition with more values than this: a rule
/// is stored once per value, and the levels multiply.
const MAX_KEYS_PER_CONDITION: usize = 16;

/// Rules by their conditions.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    facts: Vec<FactIndex>,
    paths: HashMap<Box<str>, RuleIndex>,
    nets: HashMap<IpNet, RuleIndex>,
    prefixes: Vec<u8>,
    endpoints: Option<Box<PathTrie<RuleIndex>>>,
    unindexed: Vec<u32>,
}

/// Rules by the value of one fact.
#[derive(Debug)]
struct FactIndex {
    fact: Box<str>,
    values: HashMap<Box<str>, RuleIndex>,
}

/// A rule to insert, with the conditions that it can still be indexed by.
#[derive(Clone)]
pub(crate) struct IndexEntry<'r> {
    rule: u32,
    conditions: Vec<&'r Condition>,
}

/// A key in the index.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum IndexKey<'r> {
    Value(&'r str, &'r str),
    /// A whole path, without redundant slashes.
    ExactPath(&'r str),
    Net(IpNet),
    Path {
        segments: &'r [PatternSegment],
        open: bool,
    },
}

impl<'r> IndexEntry<'r> {
    pub(crate) fn new(rule: u32, conditions: &'r [Condition]) -> Self {
        let conditions = conditions.iter().filter(|condition| is_indexable(condition)).collect();
        Self { rule, conditions }
    }
}

fn is_indexable(condition: &Condition) -> bool {
    let finite = match &condition.matcher {
        FactMatcher::Text(test) => test.globs.is_empty(),
        FactMatcher::Path(test) => test.text.globs.is_empty(),
        FactMatcher::Ip(_) | FactMatcher::Endpoint(_) => true,
        FactMatcher::Descriptor(_) => false,
    };
    condition.polarity == MatchPolarity::Is && finite
}

fn index_keys<'r>(condition: &'r Condition) -> Vec<IndexKey<'r>> {
    let mut keys: Vec<IndexKey<'r>> = match &condition.matcher {
        FactMatcher::Text(test) => {
            test.exact.iter().map(|v| IndexKey::Value(&test.fact, v)).collect()
        }
        FactMatcher::Path(test) => test.text.exact.iter().map(|v| IndexKey::ExactPath(v)).collect(),
        FactMatcher::Ip(nets) => nets.iter().map(|net| IndexKey::Net(*net)).collect(),
        FactMatcher::Endpoint(any) => any
            .iter()
            .map(|pattern| IndexKey::Path { segments: &pattern.segments, open: pattern.open_ended })
            .collect(),
        // Descriptor conditions are in `DescriptorIndex`.
        FactMatcher::Descriptor(_) => Vec::new(),
    };
    // `GET /a` and `POST /a` in one rule have the same key.
    let mut seen = std::collections::HashSet::new();
    keys.retain(|key| seen.insert(*key));
    keys
}

impl RuleIndex {
    pub(crate) fn build(entries: Vec<IndexEntry<'_>>) -> Self {
        Self::build_level(entries, usize::MAX)
    }

    fn build_level(entries: Vec<IndexEntry<'_>>, max_keys: usize) -> Self {
        let mut index = Self::default();
        if entries.len() <= MAX_LINEAR_SCAN {
            index.unindexed = entries.iter().map(|entry| entry.rule).collect();
            return index;
        }
        let mut shared: HashMap<IndexKey<'_>, usize> = HashMap::new();
        for key in entries.iter().flat_map(|entry| &entry.conditions).flat_map(|by| index_keys(by))
        {
            *shared.entry(key).or_default() += 1;
        }
        let largest_bucket = |by: &Condition| {
            let keys = index_keys(by);
            let largest = keys.iter().filter_map(|key| shared.get(key)).max();
            (keys.len() <= max_keys).then(|| largest.copied().unwrap_or(0))
        };
        let mut groups: HashMap<IndexKey<'_>, Vec<IndexEntry<'_>>> = HashMap::new();
        for entry in entries {
            let usable = entry
                .conditions
                .iter()
                .enumerate()
                .filter_map(|(at, by)| Some((largest_bucket(by)?, at)));
            let Some((_, chosen)) = usable.min() else {
                index.unindexed.push(entry.rule);
                continue;
            };
            let IndexEntry { rule, conditions: mut by } = entry;
            for key in index_keys(by.swap_remove(chosen)) {
                groups.entry(key).or_default().push(IndexEntry { rule, conditions: by.clone() });
            }
        }
        for (key, group) in groups {
            *index.subindex_mut(key) = Self::build_level(group, MAX_KEYS_PER_CONDITION);
        }
        index.prefixes.sort_unstable();
        index.prefixes.dedup();
        index
    }

    fn subindex_mut(&mut self, key: IndexKey<'_>) -> &mut Self {
        match key {
            IndexKey::Value(fact, value) => {
                let known = self.facts.iter().position(|by| *by.fact == *fact);
                let at = known.unwrap_or_else(|| {
                    self.facts.push(FactIndex { fact: fact.into(), values: HashMap::new() });
                    self.facts.len() - 1
                });
                self.facts[at].values.entry(value.into()).or_default()
            }
            IndexKey::ExactPath(path) => self.paths.entry(path.into()).or_default(),
            IndexKey::Net(net) => {
                self.prefixes.push(net.prefix_len());
                self.nets.entry(net).or_default()
            }
            IndexKey::Path { segments, open } => {
                self.endpoints.get_or_insert_default().insert(segments, open)
            }
        }
    }

    /// Adds the rules that may match. A rule may be added more than once.
    pub(crate) fn candidates(&self, request: &MatchInput<'_, '_>, found: &mut impl Extend<u32>) {
        found.extend(self.unindexed.iter().copied());
        for FactIndex { fact, values } in &self.facts {
            let index = request.facts.get(fact).and_then(|value| values.get(value));
            if let Some(index) = index {
                index.candidates(request, found);
            }
        }
        if let Some(index) = request.path.as_deref().and_then(|path| self.paths.get(path)) {
            index.candidates(request, found);
        }
        if let Some(ip) = request.facts.ip() {
            let nets = self.prefixes.iter().filter_map(|length| IpNet::new(ip, *length).ok());
            for index in nets.filter_map(|net| self.nets.get(&net.trunc())) {
                index.candidates(request, found);
            }
        }
        if let Some(endpoints) = &self.endpoints {
            let _ = endpoints.visit(request.endpoint.path, &mut |index| {
                index.candidates(request, found);
                ControlFlow::<()>::Continue(())
            });
        }
    }
}
