//! Finding the rules worth asking about a request, at a cost that does not grow with their number.
//!
//! Every rule is filed under one of its conditions: the one that the fewest others share. A place
//! that still holds many rules is an index of its own, over what is left of their conditions. Hash
//! tables are `std`'s, whose keys an attacker cannot guess. What comes out are candidates only.

pub(crate) mod descriptors;
pub(crate) mod trie;

use std::collections::HashMap;
use std::ops::ControlFlow;

use ipnet::IpNet;

use crate::condition::{Condition, FactMatcher, MatchInput, MatchPolarity, PatternSegment};
use trie::PathTrie;

/// So few rules are asked one by one.
const MAX_LINEAR_SCAN: usize = 8;

/// Below the first level a condition with more values than this is not filed by: a rule has a place
/// for each of its values, and levels multiply.
const MAX_KEYS_PER_CONDITION: usize = 16;

/// Rules by what they ask.
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

/// A rule that is to be filed, with the conditions it can still be filed by.
#[derive(Clone)]
pub(crate) struct IndexEntry<'r> {
    rule: u32,
    conditions: Vec<&'r Condition>,
}

/// A place that rules are filed under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum IndexKey<'r> {
    Value(&'r str, &'r str),
    /// A whole path, without slashes that do not count.
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
    let mut places: Vec<IndexKey<'r>> = match &condition.matcher {
        FactMatcher::Text(test) => {
            test.exact.iter().map(|v| IndexKey::Value(&test.fact, v)).collect()
        }
        FactMatcher::Path(test) => test.text.exact.iter().map(|v| IndexKey::ExactPath(v)).collect(),
        FactMatcher::Ip(nets) => nets.iter().map(|net| IndexKey::Net(*net)).collect(),
        FactMatcher::Endpoint(any) => any
            .iter()
            .map(|pattern| IndexKey::Path { segments: &pattern.segments, open: pattern.open_ended })
            .collect(),
        // Those are filed elsewhere.
        FactMatcher::Descriptor(_) => Vec::new(),
    };
    // `GET /a` and `POST /a` in one rule are one place.
    let mut seen = std::collections::HashSet::new();
    places.retain(|place| seen.insert(*place));
    places
}

impl RuleIndex {
    pub(crate) fn build(filings: Vec<IndexEntry<'_>>) -> Self {
        Self::build_level(filings, usize::MAX)
    }

    fn build_level(filings: Vec<IndexEntry<'_>>, most_places: usize) -> Self {
        let mut index = Self::default();
        if filings.len() <= MAX_LINEAR_SCAN {
            index.unindexed = filings.iter().map(|filing| filing.rule).collect();
            return index;
        }
        let mut shared: HashMap<IndexKey<'_>, usize> = HashMap::new();
        for place in
            filings.iter().flat_map(|filing| &filing.conditions).flat_map(|by| index_keys(by))
        {
            *shared.entry(place).or_default() += 1;
        }
        let crowd = |by: &Condition| {
            let places = index_keys(by);
            let most = places.iter().filter_map(|place| shared.get(place)).max();
            (places.len() <= most_places).then(|| most.copied().unwrap_or(0))
        };
        let mut groups: HashMap<IndexKey<'_>, Vec<IndexEntry<'_>>> = HashMap::new();
        for filing in filings {
            let open =
                filing.conditions.iter().enumerate().filter_map(|(at, by)| Some((crowd(by)?, at)));
            let Some((_, chosen)) = open.min() else {
                index.unindexed.push(filing.rule);
                continue;
            };
            let IndexEntry { rule, conditions: mut by } = filing;
            for place in index_keys(by.swap_remove(chosen)) {
                groups.entry(place).or_default().push(IndexEntry { rule, conditions: by.clone() });
            }
        }
        for (place, group) in groups {
            *index.subindex_mut(place) = Self::build_level(group, MAX_KEYS_PER_CONDITION);
        }
        index.prefixes.sort_unstable();
        index.prefixes.dedup();
        index
    }

    fn subindex_mut(&mut self, place: IndexKey<'_>) -> &mut Self {
        match place {
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

    /// Adds the rules that may match; a rule may come more than once.
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
