//! Finds descriptors that entries with another key hit, because the service joins key and value
//! with `_`.
//!
//! In the service, the entry `a` = `b` hits the descriptor `a_b`; here only the key `a_b` does. The
//! difference matters only if the configuration contains both keys, so only then is it reported.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher as _};

use super::domain::EnvoyDomain;
use super::read::ImportedDescriptor;
use crate::import::UnsupportedFeature;
use crate::import::unsupported::{UnsupportedCollector, quote_text};

/// The keys of a domain.
struct DomainKeys<'d> {
    by_hash: HashMap<u64, &'d str>,
    sorted: BTreeSet<String>,
}

pub(super) fn find_collisions(domain: &EnvoyDomain<'_>) -> Vec<UnsupportedFeature> {
    let mut keys = DomainKeys { by_hash: HashMap::new(), sorted: BTreeSet::new() };
    domain.descriptors.iter().for_each(|(_, typed)| keys.add(typed));
    let mut found = Vec::new();
    for (file, typed) in &domain.descriptors {
        let mut gaps = UnsupportedCollector::new(file);
        keys.check_descriptor(typed, &mut gaps);
        found.append(&mut gaps.list);
    }
    found
}

impl<'d> DomainKeys<'d> {
    fn add(&mut self, typed: &'d ImportedDescriptor) {
        let mut hasher = DefaultHasher::new();
        typed.key.bytes().for_each(|byte| hasher.write_u8(byte));
        self.by_hash.insert(hasher.finish(), &typed.key);
        self.sorted.insert(format!("{}_", typed.key));
        typed.children.iter().for_each(|typed| self.add(typed));
    }

    fn check_descriptor(&self, typed: &ImportedDescriptor, gaps: &mut UnsupportedCollector<'_>) {
        if let Some(other) = self.colliding_key(typed) {
            let why = format!(
                "the service joins key and value with `_`, so entries with the key {} hit it too; in Tidegate they do not",
                quote_text(other)
            );
            gaps.note(
                typed.span,
                &typed.path,
                &why,
                "give one of the two keys another name, also in Envoy",
            );
        }
        typed.children.iter().for_each(|typed| self.check_descriptor(typed, gaps));
    }

    /// Another key whose entries hit the descriptor.
    fn colliding_key(&self, typed: &ImportedDescriptor) -> Option<&str> {
        let joined = typed.joined_key();
        let literal = joined.split('*').next().unwrap_or_default();
        let wild = typed.value.contains('*');
        self.find_prefix_key(literal, &typed.key, !wild).or_else(|| {
            let longer =
                self.sorted.range(literal.to_owned()..).take_while(|key| key.starts_with(literal));
            let mut longer = longer.map(|key| key.strip_suffix('_').unwrap_or(key));
            longer.find(|key| *key != typed.key).filter(|_| wild)
        })
    }

    /// A key other than `own` that precedes a `_` in the text, or equals the whole text.
    fn find_prefix_key(&self, text: &str, own: &str, whole: bool) -> Option<&str> {
        let mut hasher = DefaultHasher::new();
        let known = |hasher: &DefaultHasher, at: usize| {
            let key = self.by_hash.get(&hasher.finish())?;
            (**key == text[..at] && *key != own).then_some(*key)
        };
        for (at, byte) in text.bytes().enumerate() {
            if let Some(key) = (byte == b'_').then(|| known(&hasher, at)).flatten() {
                return Some(key);
            }
            hasher.write_u8(byte);
        }
        whole.then(|| known(&hasher, text.len())).flatten()
    }
}
