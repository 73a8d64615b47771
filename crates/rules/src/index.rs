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

use crate::condition::{Condition, Request, Segment, Sense, Test};
use trie::Trie;

/// So few rules are asked one by one.
const FEW: usize = 8;

/// Below the first level a condition with more values than this is not filed by: a rule has a place
/// for each of its values, and levels multiply.
const MANY_PLACES: usize = 16;

/// Rules by what they ask.
#[derive(Debug, Default)]
pub(crate) struct Index {
    facts: Vec<ByFact>,
    paths: HashMap<Box<str>, Index>,
    nets: HashMap<IpNet, Index>,
    prefixes: Vec<u8>,
    endpoints: Option<Box<Trie<Index>>>,
    rest: Vec<u32>,
}

/// Rules by the value of one fact.
#[derive(Debug)]
struct ByFact {
    fact: Box<str>,
    values: HashMap<Box<str>, Index>,
}

/// A rule that is to be filed, with the conditions it can still be filed by.
#[derive(Clone)]
pub(crate) struct Filing<'r> {
    rule: u32,
    by: Vec<&'r Condition>,
}

/// A place that rules are filed under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'r> {
    Value(&'r str, &'r str),
    /// A whole path, without slashes that do not count.
    WholePath(&'r str),
    Net(IpNet),
    Path {
        segments: &'r [Segment],
        open: bool,
    },
}

impl<'r> Filing<'r> {
    pub(crate) fn new(rule: u32, conditions: &'r [Condition]) -> Self {
        let by = conditions.iter().filter(|condition| is_filable(condition)).collect();
        Self { rule, by }
    }
}

fn is_filable(condition: &Condition) -> bool {
    let finite = match &condition.test {
        Test::Text(test) => test.globs.is_empty(),
        Test::Path(test) => test.text.globs.is_empty(),
        Test::Ip(_) | Test::Endpoint(_) => true,
        Test::Descriptor(_) => false,
    };
    condition.sense == Sense::Is && finite
}

fn places<'r>(condition: &'r Condition) -> Vec<Place<'r>> {
    let mut places: Vec<Place<'r>> = match &condition.test {
        Test::Text(test) => test.exact.iter().map(|v| Place::Value(&test.fact, v)).collect(),
        Test::Path(test) => test.text.exact.iter().map(|v| Place::WholePath(v)).collect(),
        Test::Ip(nets) => nets.iter().map(|net| Place::Net(*net)).collect(),
        Test::Endpoint(any) => any
            .iter()
            .map(|pattern| Place::Path { segments: &pattern.segments, open: pattern.open })
            .collect(),
        // Those are filed elsewhere.
        Test::Descriptor(_) => Vec::new(),
    };
    // `GET /a` and `POST /a` in one rule are one place.
    let mut seen = std::collections::HashSet::new();
    places.retain(|place| seen.insert(*place));
    places
}

impl Index {
    pub(crate) fn build(filings: Vec<Filing<'_>>) -> Self {
        Self::level(filings, usize::MAX)
    }

    fn level(filings: Vec<Filing<'_>>, most_places: usize) -> Self {
        let mut index = Self::default();
        if filings.len() <= FEW {
            index.rest = filings.iter().map(|filing| filing.rule).collect();
            return index;
        }
        let mut shared: HashMap<Place<'_>, usize> = HashMap::new();
        for place in filings.iter().flat_map(|filing| &filing.by).flat_map(|by| places(by)) {
            *shared.entry(place).or_default() += 1;
        }
        let crowd = |by: &Condition| {
            let places = places(by);
            let most = places.iter().filter_map(|place| shared.get(place)).max();
            (places.len() <= most_places).then(|| most.copied().unwrap_or(0))
        };
        let mut groups: HashMap<Place<'_>, Vec<Filing<'_>>> = HashMap::new();
        for filing in filings {
            let open = filing.by.iter().enumerate().filter_map(|(at, by)| Some((crowd(by)?, at)));
            let Some((_, chosen)) = open.min() else {
                index.rest.push(filing.rule);
                continue;
            };
            let Filing { rule, mut by } = filing;
            for place in places(by.swap_remove(chosen)) {
                groups.entry(place).or_default().push(Filing { rule, by: by.clone() });
            }
        }
        for (place, group) in groups {
            *index.place(place) = Self::level(group, MANY_PLACES);
        }
        index.prefixes.sort_unstable();
        index.prefixes.dedup();
        index
    }

    fn place(&mut self, place: Place<'_>) -> &mut Self {
        match place {
            Place::Value(fact, value) => {
                let known = self.facts.iter().position(|by| *by.fact == *fact);
                let at = known.unwrap_or_else(|| {
                    self.facts.push(ByFact { fact: fact.into(), values: HashMap::new() });
                    self.facts.len() - 1
                });
                self.facts[at].values.entry(value.into()).or_default()
            }
            Place::WholePath(path) => self.paths.entry(path.into()).or_default(),
            Place::Net(net) => {
                self.prefixes.push(net.prefix_len());
                self.nets.entry(net).or_default()
            }
            Place::Path { segments, open } => {
                self.endpoints.get_or_insert_default().insert(segments, open)
            }
        }
    }

    /// Adds the rules that may match; a rule may come more than once.
    pub(crate) fn candidates(&self, request: &Request<'_, '_>, found: &mut impl Extend<u32>) {
        found.extend(self.rest.iter().copied());
        for ByFact { fact, values } in &self.facts {
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
