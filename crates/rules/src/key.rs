//! Whose counter: the parts of a rule's key, taken from the facts of a request.
//!
//! A part that is not known is replaced by the client's address, never left out: who does not say
//! who they are is limited more strictly, not less.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::key::{Fingerprint, Key, KeyHasher};

use crate::condition::{Endpoint, Pattern, without_end};
use crate::facts::{Entry, Facts};
use crate::index::trie::Trie;
use crate::rule::Rule;
use crate::ruleset::RuleSet;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyPart {
    Ip,
    Endpoint,
    Fact(Box<str>),
    /// All entries of the descriptor, but for the values of those whose bits are set.
    Descriptor {
        shared: u32,
    },
}

impl KeyPart {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "ip" => Self::Ip,
            "endpoint" => Self::Endpoint,
            "descriptor" => Self::Descriptor { shared: 0 },
            _ => Self::Fact(name.into()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Ip => "ip",
            Self::Endpoint => "endpoint",
            Self::Descriptor { .. } => "descriptor",
            Self::Fact(name) => name,
        }
    }
}

/// Whose counters a request is charged to: an owner is hashed once for all rules in a row that count
/// by the same, and on from there for one that counts by more (`ip`, then `ip:endpoint`).
#[derive(Debug)]
pub struct Whose<'a, 'f, 'v> {
    set: &'a RuleSet,
    facts: &'f Facts<'v>,
    last: Option<Owner<'a>>,
}

/// Whose counter, with the hasher that has seen as much.
#[derive(Debug)]
struct Owner<'a> {
    parts: &'a Arc<[KeyPart]>,
    hasher: KeyHasher,
    hash: Fingerprint,
}

impl<'a, 'f, 'v> Whose<'a, 'f, 'v> {
    /// Those of whoever the facts describe.
    #[must_use]
    pub const fn new(set: &'a RuleSet, facts: &'f Facts<'v>) -> Self {
        Self { set, facts, last: None }
    }

    /// The counter of a rule of the set.
    #[inline]
    pub fn key(&mut self, rule: &'a Rule) -> Key<'a> {
        rule.key(self.owner(&rule.parts) ^ rule.namespace)
    }

    #[inline]
    fn owner(&mut self, parts: &'a Arc<[KeyPart]>) -> Fingerprint {
        let (hasher, seen) = match &self.last {
            _ if parts.is_empty() => return self.set.everyone(),
            Some(last) if Arc::ptr_eq(last.parts, parts) => return last.hash,
            Some(last) if parts.starts_with(last.parts) => (last.hasher, last.parts.len()),
            _ => (self.set.seed(), 0),
        };
        let hasher = self.set.keying().absorbed(hasher, &parts[seen..], self.facts);
        let hash = hasher.finish();
        self.last = Some(Owner { parts, hasher, hash });
        hash
    }
}

/// What keys depend on besides the facts.
#[derive(Debug)]
pub(crate) struct Keying {
    ipv6_prefix: u8,
    /// The declared endpoint patterns, so that `/users/7` and `/users/8` are one endpoint.
    templates: Trie<Vec<Pattern>>,
}

/// The value of a part.
enum PartValue<'f> {
    Address(IpAddr),
    Text(&'f str),
    Endpoint { method: Option<&'f str>, path: &'f str },
    Descriptor { entries: &'f [Entry<'f>], shared: u32 },
}

impl Keying {
    pub(crate) fn new<'p>(ipv6_prefix: u8, patterns: impl Iterator<Item = &'p Pattern>) -> Self {
        let mut templates: Trie<Vec<Pattern>> = Trie::default();
        // `*` names no endpoint: a rule for all endpoints does not make them one.
        for pattern in patterns.filter(|pattern| !pattern.is_any_path()) {
            templates.insert(&pattern.segments, pattern.open).push(pattern.clone());
        }
        Self { ipv6_prefix, templates }
    }

    /// The declared endpoint patterns.
    pub(crate) fn patterns(&self) -> Vec<&Pattern> {
        let mut patterns = Vec::new();
        self.templates.each(&mut |kept| patterns.extend(kept));
        patterns.sort_unstable_by_key(|pattern| &pattern.template);
        patterns
    }

    /// A hasher that has seen some more parts of a key.
    pub(crate) fn absorbed(
        &self,
        mut hasher: KeyHasher,
        parts: &[KeyPart],
        facts: &Facts<'_>,
    ) -> KeyHasher {
        parts.iter().for_each(|part| self.absorb(part, facts, &mut hasher));
        hasher
    }

    /// Adds a part to a key. Allocates nothing for endpoints of ordinary length.
    fn absorb(&self, part: &KeyPart, facts: &Facts<'_>, hasher: &mut KeyHasher) {
        let (name, value) = self.part(part, facts);
        hasher.part(name.as_bytes());
        match value {
            PartValue::Text(text) => hasher.part(text.as_bytes()),
            PartValue::Address(ip) => {
                let mapped = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                // 0xFF is in no UTF-8, so that no text is taken for an address.
                let mut bytes = [0xFF; 17];
                bytes[1..].copy_from_slice(&mapped.octets());
                hasher.part(&bytes);
            }
            PartValue::Endpoint { method, path } => {
                let mut text: SmallVec<[u8; 256]> = SmallVec::new();
                if let Some(method) = method {
                    text.extend_from_slice(method.as_bytes());
                    text.push(b' ');
                }
                text.extend_from_slice(path.as_bytes());
                hasher.part(&text);
            }
            PartValue::Descriptor { entries, shared } => {
                // How many there are, so that no part that follows is taken for an entry.
                hasher.part(&(entries.len() as u64).to_le_bytes());
                for (entry, value) in told(entries, shared) {
                    hasher.part(entry.as_bytes());
                    hasher.part(value.map_or(&[0xFF], str::as_bytes));
                }
            }
        }
    }

    /// A part in words.
    pub(crate) fn describe(&self, part: &KeyPart, facts: &Facts<'_>) -> (String, String) {
        let (name, value) = self.part(part, facts);
        let value = match value {
            PartValue::Text(text) => text.to_owned(),
            PartValue::Address(ip @ IpAddr::V6(_)) if self.ipv6_prefix < 128 => {
                format!("{ip}/{}", self.ipv6_prefix)
            }
            PartValue::Address(ip) => ip.to_string(),
            PartValue::Endpoint { method: Some(method), path } => [method, path].join(" "),
            PartValue::Endpoint { method: None, path } => path.to_owned(),
            PartValue::Descriptor { entries, shared } => {
                let told = told(entries, shared).map(|(key, value)| match value {
                    Some(value) => format!("{key}={value}"),
                    None => key.to_owned(),
                });
                told.collect::<Vec<_>>().join(", ")
            }
        };
        (name.to_owned(), value)
    }

    fn part<'f>(&'f self, part: &'f KeyPart, facts: &'f Facts<'_>) -> (&'f str, PartValue<'f>) {
        let value = match part {
            KeyPart::Ip => None,
            KeyPart::Endpoint => self.endpoint(facts),
            KeyPart::Descriptor { shared } => {
                let entries = facts.descriptor();
                (!entries.is_empty()).then_some(PartValue::Descriptor { entries, shared: *shared })
            }
            // An empty header says as little as none.
            KeyPart::Fact(name) if **name == *"path" => {
                let path = facts.get(name).filter(|path| !path.is_empty());
                path.map(|path| PartValue::Text(without_end(path)))
            }
            KeyPart::Fact(name) => {
                facts.get(name).filter(|value| !value.is_empty()).map(PartValue::Text)
            }
        };
        match value {
            Some(value) => (part.name(), value),
            None => ("ip", self.address(facts)),
        }
    }

    /// The client's network: an IPv6 client has a whole prefix of addresses to choose from.
    fn address<'f>(&self, facts: &'f Facts<'_>) -> PartValue<'f> {
        match facts.ip() {
            Some(IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6_prefix)).unwrap_or(0);
                PartValue::Address(Ipv6Addr::from(u128::from(ip) & mask).into())
            }
            Some(ip) => PartValue::Address(ip),
            None => PartValue::Text(facts.get("ip").unwrap_or_default()),
        }
    }

    fn endpoint<'f>(&'f self, facts: &'f Facts<'_>) -> Option<PartValue<'f>> {
        if let Some(given) = facts.get("endpoint") {
            return Some(PartValue::Text(given));
        }
        let Endpoint { method, path } = Endpoint::of(facts);
        let mut admits = |patterns: &'f Vec<Pattern>| {
            let fits = patterns.iter().filter(|pattern| pattern.admits_method(method));
            // One that names the method is more specific than one that does not.
            match fits.min_by_key(|pattern| pattern.methods.is_empty()) {
                Some(pattern) => ControlFlow::Break(&*pattern.template),
                None => ControlFlow::Continue(()),
            }
        };
        let path = match self.templates.visit(Some(path?), &mut admits) {
            ControlFlow::Break(template) => template,
            ControlFlow::Continue(()) => without_end(path?),
        };
        Some(PartValue::Endpoint { method, path })
    }
}

/// The entries of a descriptor with their values, but for those that are shared.
fn told<'f>(
    entries: &'f [Entry<'_>],
    shared: u32,
) -> impl Iterator<Item = (&'f str, Option<&'f str>)> {
    entries.iter().enumerate().map(move |(at, entry)| {
        let own = shared.checked_shr(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0) & 1 == 0;
        (&*entry.key, own.then_some(&*entry.value))
    })
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;

    use super::*;
    use crate::document::Document;

    #[test]
    fn whoever_was_hashed_before_a_rule_has_the_counter_that_it_says_alone() {
        let kinds = ["global", "ip", "ip:endpoint", "ip:endpoint:user_id", "user_id", "user_id:ip"];
        let rules: Vec<String> = kinds
            .iter()
            .map(|kind| format!("  - {{ id: \"{kind}\", key_by: \"{kind}\", limit: 5/s }}\n"))
            .collect();
        let text = format!("rules:\n{}", rules.concat());
        let document = Document::parse("rules.yaml", &text).unwrap();
        let facts: Facts =
            [("ip", "192.0.2.7"), ("path", "/a"), ("user_id", "7")].into_iter().collect();
        for secret in [Secret::UNSET, Secret::random()] {
            let set = RuleSet::compile(&document, secret).unwrap();
            let alone = |rule: &Rule| rule.fingerprint(&facts, &set);
            for first in set.rules() {
                for second in set.rules() {
                    let mut whose = Whose::new(&set, &facts);
                    for rule in [first, second, first] {
                        assert_eq!(
                            whose.key(rule).fingerprint,
                            alone(rule),
                            "{} {}",
                            first.id(),
                            second.id()
                        );
                    }
                }
            }
        }
    }
}
