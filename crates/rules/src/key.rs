//! Derives the counter key of a rule from the facts of a request.
//!
//! A missing part is replaced by the client's address and never omitted: an unidentified client is
//! limited more strictly, not less.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::ControlFlow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::key::{Fingerprint, Key, KeyHasher};

use crate::condition::{EndpointPattern, RequestEndpoint, trim_trailing_slash};
use crate::facts::{DescriptorPair, Facts};
use crate::index::trie::PathTrie;
use crate::rule::Rule;
use crate::ruleset::RuleSet;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyPart {
    Ip,
    Endpoint,
    Fact(Box<str>),
    /// All entries of the descriptor, without the values of the entries whose bits are set.
    Descriptor {
        shared: u32,
    },
}

impl KeyPart {
    pub(crate) fn from_name(name: &str) -> Self {
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

/// Derives the keys of all rules that apply to a request. Consecutive rules with the same parts
/// share one hash, and a rule with additional parts (`ip`, then `ip:endpoint`) continues from it.
#[derive(Debug)]
pub struct RequestKeys<'a, 'f, 'v> {
    set: &'a RuleSet,
    facts: &'f Facts<'v>,
    cached: Option<CachedOwner<'a>>,
}

/// The last derived hash, with the hasher to continue from.
#[derive(Debug)]
struct CachedOwner<'a> {
    parts: &'a Arc<[KeyPart]>,
    hasher: KeyHasher,
    hash: Fingerprint,
}

impl<'a, 'f, 'v> RequestKeys<'a, 'f, 'v> {
    /// The keys of a request with these facts.
    #[must_use]
    pub const fn new(set: &'a RuleSet, facts: &'f Facts<'v>) -> Self {
        Self { set, facts, cached: None }
    }

    /// The key of a rule in the set.
    #[inline]
    pub fn key(&mut self, rule: &'a Rule) -> Key<'a> {
        rule.key(self.owner(&rule.parts) ^ rule.namespace)
    }

    #[inline]
    fn owner(&mut self, parts: &'a Arc<[KeyPart]>) -> Fingerprint {
        let (hasher, seen) = match &self.cached {
            _ if parts.is_empty() => return self.set.global_owner(),
            Some(last) if Arc::ptr_eq(last.parts, parts) => return last.hash,
            Some(last) if parts.starts_with(last.parts) => (last.hasher, last.parts.len()),
            _ => (self.set.key_seed(), 0),
        };
        let hasher = self.set.key_derivation().hash_parts(hasher, &parts[seen..], self.facts);
        let hash = hasher.finish();
        self.cached = Some(CachedOwner { parts, hasher, hash });
        hash
    }
}

/// The settings that keys depend on, in addition to the facts.
#[derive(Debug)]
pub(crate) struct KeyDerivation {
    ipv6_prefix: u8,
    /// The declared endpoint patterns: `/users/7` and `/users/8` are one endpoint.
    templates: PathTrie<Vec<EndpointPattern>>,
}

/// The value of a key part.
enum KeyPartValue<'f> {
    Address(IpAddr),
    Text(&'f str),
    Endpoint { method: Option<&'f str>, path: &'f str },
    Descriptor { entries: &'f [DescriptorPair<'f>], shared: u32 },
}

impl KeyDerivation {
    pub(crate) fn new<'p>(
        ipv6_prefix: u8,
        patterns: impl Iterator<Item = &'p EndpointPattern>,
    ) -> Self {
        let mut templates: PathTrie<Vec<EndpointPattern>> = PathTrie::default();
        // Skip `*`: a rule for all endpoints does not merge them into one.
        for pattern in patterns.filter(|pattern| !pattern.matches_any_path()) {
            templates.insert(&pattern.segments, pattern.open_ended).push(pattern.clone());
        }
        Self { ipv6_prefix, templates }
    }

    /// The declared endpoint patterns.
    pub(crate) fn patterns(&self) -> Vec<&EndpointPattern> {
        let mut patterns = Vec::new();
        self.templates.for_each(&mut |found| patterns.extend(found));
        patterns.sort_unstable_by_key(|pattern| &pattern.template);
        patterns
    }

    /// Continues a hash with more parts of a key.
    pub(crate) fn hash_parts(
        &self,
        mut hasher: KeyHasher,
        parts: &[KeyPart],
        facts: &Facts<'_>,
    ) -> KeyHasher {
        parts.iter().for_each(|part| self.hash_part(part, facts, &mut hasher));
        hasher
    }

    /// Adds a part to the hash. Does not allocate for endpoints of ordinary length.
    fn hash_part(&self, part: &KeyPart, facts: &Facts<'_>, hasher: &mut KeyHasher) {
        let (name, value) = self.part_value(part, facts);
        hasher.write_part(name.as_bytes());
        match value {
            KeyPartValue::Text(text) => hasher.write_part(text.as_bytes()),
            KeyPartValue::Address(ip) => {
                let mapped = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                // 0xFF does not occur in UTF-8, so no text collides with an address.
                let mut bytes = [0xFF; 17];
                bytes[1..].copy_from_slice(&mapped.octets());
                hasher.write_part(&bytes);
            }
            KeyPartValue::Endpoint { method, path } => {
                let mut text: SmallVec<[u8; 256]> = SmallVec::new();
                if let Some(method) = method {
                    text.extend_from_slice(method.as_bytes());
                    text.push(b' ');
                }
                text.extend_from_slice(path.as_bytes());
                hasher.write_part(&text);
            }
            KeyPartValue::Descriptor { entries, shared } => {
                // Include the number of entries, so that no following part is taken for an entry.
                hasher.write_part(&(entries.len() as u64).to_le_bytes());
                for (entry, value) in visible_entries(entries, shared) {
                    hasher.write_part(entry.as_bytes());
                    hasher.write_part(value.map_or(&[0xFF], str::as_bytes));
                }
            }
        }
    }

    /// The name and value of a part, as text.
    pub(crate) fn describe(&self, part: &KeyPart, facts: &Facts<'_>) -> (String, String) {
        let (name, value) = self.part_value(part, facts);
        let value = match value {
            KeyPartValue::Text(text) => text.to_owned(),
            KeyPartValue::Address(ip) => self.format_network(ip),
            KeyPartValue::Endpoint { method: Some(method), path } => [method, path].join(" "),
            KeyPartValue::Endpoint { method: None, path } => path.to_owned(),
            KeyPartValue::Descriptor { entries, shared } => {
                let entries = visible_entries(entries, shared).map(|(key, value)| match value {
                    Some(value) => format!("{key}={value}"),
                    None => key.to_owned(),
                });
                entries.collect::<Vec<_>>().join(", ")
            }
        };
        (name.to_owned(), value)
    }

    fn part_value<'f>(
        &'f self,
        part: &'f KeyPart,
        facts: &'f Facts<'_>,
    ) -> (&'f str, KeyPartValue<'f>) {
        let value = match part {
            KeyPart::Ip => None,
            KeyPart::Endpoint => self.endpoint_value(facts),
            KeyPart::Descriptor { shared } => {
                let entries = facts.descriptor();
                (!entries.is_empty())
                    .then_some(KeyPartValue::Descriptor { entries, shared: *shared })
            }
            // An empty value counts as missing.
            KeyPart::Fact(name) if **name == *"path" => {
                let path = facts.get(name).filter(|path| !path.is_empty());
                path.map(|path| KeyPartValue::Text(trim_trailing_slash(path)))
            }
            KeyPart::Fact(name) => {
                facts.get(name).filter(|value| !value.is_empty()).map(KeyPartValue::Text)
            }
        };
        match value {
            Some(value) => (part.name(), value),
            None => ("ip", self.address_value(facts)),
        }
    }

    fn address_value<'f>(&self, facts: &'f Facts<'_>) -> KeyPartValue<'f> {
        match facts.ip() {
            Some(ip) => KeyPartValue::Address(self.client_network(ip)),
            None => KeyPartValue::Text(facts.get("ip").unwrap_or_default()),
        }
    }

    /// The network that identifies the client: an IPv6 client can use any address of its prefix.
    fn client_network(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6_prefix)).unwrap_or(0);
                Ipv6Addr::from(u128::from(ip) & mask).into()
            }
            IpAddr::V4(_) => ip,
        }
    }

    fn format_network(&self, network: IpAddr) -> String {
        match network {
            IpAddr::V6(_) if self.ipv6_prefix < 128 => format!("{network}/{}", self.ipv6_prefix),
            _ => network.to_string(),
        }
    }

    /// The text that identifies the client with this address: the address, or the network of an
    /// IPv6 address.
    pub(crate) fn client_name(&self, ip: IpAddr) -> String {
        self.format_network(self.client_network(ip.to_canonical()))
    }

    fn endpoint_value<'f>(&'f self, facts: &'f Facts<'_>) -> Option<KeyPartValue<'f>> {
        if let Some(given) = facts.get("endpoint") {
            return Some(KeyPartValue::Text(given));
        }
        let RequestEndpoint { method, path } = RequestEndpoint::from_facts(facts);
        let path = match self.matching_pattern(method, path?) {
            Some(pattern) => pattern,
            None => trim_trailing_slash(path?),
        };
        Some(KeyPartValue::Endpoint { method, path })
    }

    /// The declared pattern that a path matches, if any.
    pub(crate) fn matching_pattern<'k>(
        &'k self,
        method: Option<&str>,
        path: &str,
    ) -> Option<&'k str> {
        let mut admits = |patterns: &'k Vec<EndpointPattern>| {
            let fits = patterns.iter().filter(|pattern| pattern.allows_method(method));
            // A pattern with methods is more specific than one without.
            match fits.min_by_key(|pattern| pattern.methods.is_empty()) {
                Some(pattern) => ControlFlow::Break(&*pattern.template),
                None => ControlFlow::Continue(()),
            }
        };
        self.templates.visit(Some(path), &mut admits).break_value()
    }
}

/// The entries of a descriptor; `None` as the value of shared entries.
fn visible_entries<'f>(
    entries: &'f [DescriptorPair<'_>],
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
    fn cached_owner_gives_same_key() {
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
                    let mut keys = RequestKeys::new(&set, &facts);
                    for rule in [first, second, first] {
                        assert_eq!(
                            keys.key(rule).fingerprint,
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
