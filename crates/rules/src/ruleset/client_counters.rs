//! Finds the counters of one client from the facts in their keys.
//!
//! The caller knows the client but not its requests. A rule is therefore excluded only if a
//! condition contradicts a known fact. If a key contains an endpoint, every declared endpoint is
//! tried.

mod candidate_endpoints;

use std::collections::HashSet;

use ipnet::IpNet;
use tidegate_core::key::{Fingerprint, Key};

use super::RuleSet;
use crate::condition::{
    Condition, DescriptorMatcher, EndpointPattern, FactMatcher, IpNetworks, MatchInput,
    MatchPolarity, PathMatcher, RequestEndpoint, TextMatcher, are_disjoint,
};
use crate::facts::{DescriptorPair, Facts};
use crate::key::KeyPart;
use crate::rule::Rule;
use candidate_endpoints::CandidateEndpoint;

/// A counter of a client.
#[derive(Debug)]
pub struct ClientCounter<'a> {
    /// The index of its rule, or of the rule's variant for this key.
    pub rule: u32,
    /// Its key in the store.
    pub key: Key<'a>,
    /// Its key before the rule's algorithm, window or number of parts changed, if that usage still
    /// counts.
    pub previous_key: Option<Key<'a>>,
    /// The parts of the key as text, with replacements for missing parts.
    pub parts: Vec<(String, String)>,
    /// Whether the endpoint in its key was assumed because the facts do not contain one. There is
    /// one such counter per endpoint.
    pub assumed: bool,
}

impl RuleSet {
    /// The counters of the client with these facts. Without `rule`, considers active rules whose
    /// key contains at least one given (not derived) fact. A rule that is given by id may be
    /// disabled, and may have one counter for all clients.
    #[must_use]
    pub fn client_counters(&self, facts: &Facts<'_>, rule: Option<&str>) -> Vec<ClientCounter<'_>> {
        let client = ClientLookup::new(self, facts);
        let mut counters = Vec::new();
        let mut seen = HashSet::new();
        for (at, known) in (0..).zip(self.rules()) {
            let selected = match rule {
                Some(id) => known.id() == id,
                None => known.is_active() && client.has_key_fact(known),
            };
            if selected && client.may_match(known) && client.missing_facts(known).is_empty() {
                client.add_counters(at, known, &mut seen, &mut counters);
            }
        }
        counters
    }

    /// The facts in a rule's key that are missing and have no replacement; empty if no rule has
    /// this id.
    #[must_use]
    pub fn missing_key_facts(&self, rule: &str, facts: &Facts<'_>) -> Vec<String> {
        let known = self.rules().iter().find(|known| known.id() == rule);
        known.map(|rule| ClientLookup::new(self, facts).missing_facts(rule)).unwrap_or_default()
    }
}

/// The facts known about a client.
struct ClientLookup<'a, 'f, 'v> {
    set: &'a RuleSet,
    given: &'f Facts<'v>,
    /// The given facts, enriched as those of a request.
    facts: Facts<'f>,
    /// Each known fact as a condition, without defaults such as the default tier.
    known_conditions: Vec<Condition>,
    /// Whether method and path are known.
    is_endpoint_known: bool,
    /// The endpoints to try if a key contains one and the facts do not.
    candidate_endpoints: Vec<CandidateEndpoint>,
}

impl<'a: 'f, 'f, 'v> ClientLookup<'a, 'f, 'v> {
    fn new(set: &'a RuleSet, given: &'f Facts<'v>) -> Self {
        let mut facts = given.borrowed();
        set.paths.fold_facts(&mut facts);
        set.subjects.add_subject_facts(&mut facts);
        let (known_conditions, endpoint) =
            (conditions_from_facts(&facts), RequestEndpoint::from_facts(&facts));
        let is_endpoint_known = endpoint.method.is_some() && endpoint.path.is_some();
        let candidate_endpoints =
            candidate_endpoints::candidate_endpoints(set.key_derivation(), &facts);
        set.subjects.enrich(&mut facts);
        Self { set, given, facts, known_conditions, is_endpoint_known, candidate_endpoints }
    }

    /// Whether no condition of the rule contradicts a known fact.
    fn may_match(&self, rule: &Rule) -> bool {
        !rule.conditions.iter().any(|condition| match condition.matcher {
            FactMatcher::Endpoint(_) if self.is_endpoint_known => {
                !condition.holds(&MatchInput::new(&self.facts))
            }
            _ => self.known_conditions.iter().any(|known| are_disjoint(known, condition)),
        })
    }

    /// Whether the rule's key contains a given fact, or the address as the replacement of a missing
    /// one.
    fn has_key_fact(&self, rule: &Rule) -> bool {
        let by_address = self.given.get("ip").is_some();
        rule.parts.iter().any(|part| match part {
            KeyPart::Ip => by_address,
            KeyPart::Fact(name) => match self.facts.get(name) {
                None | Some("") => by_address,
                Some(_) => self.given.get(name).is_some(),
            },
            KeyPart::Endpoint => RequestEndpoint::from_facts(self.given).path.is_some(),
            KeyPart::Descriptor { .. } => {
                let entries = rule.descriptor().into_iter().flat_map(|descriptor| &*descriptor.0);
                entries.into_iter().any(|entry| {
                    entry.value.exact_value().is_none()
                        && entry_value(self.given, &entry.key).is_some()
                })
            }
        })
    }

    /// The facts that are missing to identify a counter of the rule.
    fn missing_facts(&self, rule: &Rule) -> Vec<String> {
        let addressed = self.facts.get("ip").is_some();
        let is_known = |name: &str| self.facts.get(name).is_some_and(|value| !value.is_empty());
        let mut missing = Vec::new();
        for part in &*rule.parts {
            match part {
                KeyPart::Endpoint
                    if self.candidate_endpoints.is_empty() && !self.has_endpoint() =>
                {
                    missing.push("path".to_owned());
                }
                KeyPart::Endpoint => {}
                KeyPart::Descriptor { .. } => missing.extend(self.missing_entries(rule)),
                KeyPart::Ip if addressed => {}
                KeyPart::Fact(name) if addressed || is_known(name) => {}
                part => missing.push(part.name().to_owned()),
            }
        }
        missing
    }

    fn missing_entries(&self, rule: &Rule) -> Vec<String> {
        let entries = rule.descriptor().into_iter().flat_map(|descriptor| &*descriptor.0);
        let open = entries.filter(|entry| entry.value.exact_value().is_none() && !entry.shared);
        open.map(|entry| entry.key.to_string())
            .filter(|key| entry_value(&self.facts, key).is_none())
            .collect()
    }

    fn has_endpoint(&self) -> bool {
        self.facts.get("endpoint").is_some() || self.facts.get("path").is_some()
    }

    /// Adds the counters of a rule.
    fn add_counters(
        &self,
        at: u32,
        rule: &'a Rule,
        seen: &mut HashSet<Fingerprint>,
        counters: &mut Vec<ClientCounter<'a>>,
    ) {
        let entries = rule.descriptor().map(|descriptor| self.descriptor_entries(descriptor));
        let mut facts = self.facts.borrowed();
        if let Some(entries) = &entries {
            facts.set_descriptor(entries);
        }
        let mut add = |facts: &Facts<'_>, assumed: bool| {
            let counter = self.counter(at, facts, assumed);
            counters.extend(counter.filter(|counter| seen.insert(counter.key.fingerprint)));
        };
        if self.candidate_endpoints.is_empty() || !rule.parts.contains(&KeyPart::Endpoint) {
            return add(&facts, false);
        }
        for CandidateEndpoint { condition: endpoint, key_text: text } in &self.candidate_endpoints {
            if !rule.conditions.iter().any(|condition| are_disjoint(endpoint, condition)) {
                facts.set("endpoint", text.as_str());
                add(&facts, true);
            }
        }
    }

    /// The counter for a request with these facts, if the rule counts.
    fn counter(&self, at: u32, facts: &Facts<'_>, assumed: bool) -> Option<ClientCounter<'a>> {
        let at = self.set.variant_for(at, facts);
        let rule = &self.set[at];
        rule.limit().policy()?;
        Some(ClientCounter {
            rule: at,
            key: rule.key(rule.fingerprint(facts, self.set)),
            previous_key: rule.predecessor().map(|before| before.key(rule, facts, self.set)),
            parts: rule.key_parts(facts, self.set),
            assumed,
        })
    }

    /// The descriptor that a rule matches, with the known values.
    fn descriptor_entries<'e>(
        &'e self,
        descriptor: &'e DescriptorMatcher,
    ) -> Vec<DescriptorPair<'e>> {
        let entries = descriptor.0.iter().map(|entry| {
            let known = entry.value.exact_value().or_else(|| entry_value(&self.facts, &entry.key));
            DescriptorPair { key: (&*entry.key).into(), value: known.unwrap_or_default().into() }
        });
        entries.collect()
    }
}

/// The value of an entry of a descriptor; Envoy calls the client's address `remote_address`.
fn entry_value<'f>(facts: &'f Facts<'_>, key: &str) -> Option<&'f str> {
    facts.get(key).or_else(|| facts.get("ip").filter(|_| key == "remote_address"))
}

/// The known facts as conditions.
fn conditions_from_facts(facts: &Facts<'_>) -> Vec<Condition> {
    let is = |test| Condition { polarity: MatchPolarity::Is, matcher: test };
    let text = |(fact, value): (&str, &str)| match fact {
        "path" => is(FactMatcher::Path(PathMatcher::for_exact_path(value))),
        _ => is(FactMatcher::Text(TextMatcher {
            fact: fact.into(),
            exact: [value.into()].into(),
            globs: [].into(),
        })),
    };
    let mut known: Vec<Condition> =
        facts.iter().filter(|(name, value)| facts.get(name) == Some(value)).map(text).collect();
    known.extend(facts.ip().map(|ip| is(FactMatcher::Ip(IpNetworks::new(&vec![IpNet::from(ip)])))));
    known.push(is(FactMatcher::Endpoint(
        [EndpointPattern::for_endpoint(&RequestEndpoint::from_facts(facts))].into(),
    )));
    known
}
