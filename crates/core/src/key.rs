//! Keys: each counter is named by a keyed 128-bit hash of length-prefixed parts.
//!
//! Parts are never joined by a separator, so `(a, b_c)` and `(a_b, c)` are two counters. API keys
//! and addresses leave this module only as hashes keyed with the fleet's secret.

mod polynomial;
mod sip;

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::BitXor;

use polynomial::Polynomial;
use sip::Sip;

/// The secret that keys the hashes. All nodes of a fleet use the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    words: [u64; 2],
    scope: FingerprintScope,
}

/// Where fingerprints made with a secret may appear.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FingerprintScope {
    /// In other processes too: these fingerprints name keys in Redis and in snapshots.
    Shared,
    /// Only inside this process.
    ProcessLocal,
}

impl Secret {
    /// The public constant that is used when no secret is configured.
    pub const UNSET: Self = Self {
        words: [0x7469_6465_6761_7465, 0x6b65_7920_7365_6564],
        scope: FingerprintScope::Shared,
    };

    /// Whether a secret is configured, that is, whether this is not the public constant.
    #[must_use]
    pub fn is_set(self) -> bool {
        self.words != Self::UNSET.words
    }

    /// Derives a secret from bytes of any length, for instance the contents of a file.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let print = Self::UNSET.hash_bytes(bytes);
        Self { words: [print.hi, print.lo], scope: FingerprintScope::Shared }
    }

    /// A random secret for counters that live only in this process, such as an embedded limiter.
    ///
    /// It selects a hash function that takes half of SipHash's time but is safe only while its
    /// output stays private; `polynomial.rs` explains why. Never show or log these fingerprints,
    /// and never write them to a store that other processes read.
    #[must_use]
    pub fn random() -> Self {
        // `std` seeds each `RandomState` from the system's random source.
        let word = || RandomState::new().build_hasher().finish();
        Self { words: [word(), word()], scope: FingerprintScope::ProcessLocal }
    }

    /// A hash that lets two processes check that they share a secret without revealing it.
    #[must_use]
    pub fn check_value(self) -> u64 {
        self.hash_bytes(b"tidegate check value").lo
    }

    /// Hashes the parts that all keys of a rule have in common.
    #[must_use]
    pub fn namespace(self, parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = Sip::new(self.words);
        parts.iter().for_each(|part| hasher.write_part(part));
        hasher.finish()
    }

    /// Hashes bytes with SipHash, whose output may be published.
    fn hash_bytes(self, bytes: &[u8]) -> Fingerprint {
        self.namespace(&[bytes])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The 128-bit hash that identifies a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// The upper half.
    pub hi: u64,
    /// The lower half.
    pub lo: u64,
}

/// Combines two hashes. Combining with the same hash a second time undoes it.
impl BitXor for Fingerprint {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self { hi: self.hi ^ other.hi, lo: self.lo ^ other.lo }
    }
}

/// One counter: the rule it belongs to, and which of the rule's keys it counts.
///
/// The fingerprint is the XOR of two hashes: the owner (the key's parts) and the namespace (the
/// rule's ID, algorithm and window). A store can therefore keep the counters that several rules
/// have for one owner together, and a request hashes its owner only once. Without the secret,
/// namespaces are indistinguishable from random numbers. An attacker therefore cannot choose parts
/// so that two owners differ by exactly the difference of two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The ID of the rule.
    pub rule: &'a str,
    /// The hash that names the counter.
    pub fingerprint: Fingerprint,
    /// Selects one of the owner's counters. Zero if the counter is not grouped by owner.
    pub namespace: Fingerprint,
    /// Which part of a divided counter this is, if it is one. A store that spreads keys keeps the
    /// parts of one owner in different places.
    pub part: Option<u8>,
}

impl<'a> Key<'a> {
    /// A counter that is not grouped with others by owner.
    #[must_use]
    pub const fn without_namespace(rule: &'a str, fingerprint: Fingerprint) -> Self {
        Self { rule, fingerprint, namespace: Fingerprint { hi: 0, lo: 0 }, part: None }
    }

    /// The key of a part of this counter. All parts have the same owner. `hash` differs for every
    /// part, and every number of parts.
    #[must_use]
    pub fn part(self, number: u8, hash: Fingerprint) -> Self {
        Self {
            fingerprint: self.fingerprint ^ hash,
            namespace: self.namespace ^ hash,
            part: Some(number),
            ..self
        }
    }

    /// The hash of the owner. Equals the fingerprint if the counter is not grouped by owner.
    #[must_use]
    pub fn owner(&self) -> Fingerprint {
        self.fingerprint ^ self.namespace
    }
}

/// Hashes the parts of a key. Without the secret, an attacker cannot make two keys collide.
#[derive(Clone, Copy)]
pub struct KeyHasher(HashFunction);

#[derive(Clone, Copy)]
enum HashFunction {
    Sip(Sip),
    Polynomial(Polynomial),
}

impl KeyHasher {
    /// A hasher keyed with `secret`.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self(match secret.scope {
            FingerprintScope::Shared => HashFunction::Sip(Sip::new(secret.words)),
            FingerprintScope::ProcessLocal => {
                let print = secret.hash_bytes(b"tidegate points");
                HashFunction::Polynomial(Polynomial::new([print.hi, print.lo]))
            }
        })
    }

    /// Whether its fingerprints may be shown, or written where other processes can read them.
    #[must_use]
    pub const fn is_shareable(&self) -> bool {
        matches!(self.0, HashFunction::Sip(_))
    }

    /// Adds a part.
    #[inline]
    pub fn write_part(&mut self, bytes: &[u8]) {
        // Work on a copy that the compiler can keep in registers.
        match &mut self.0 {
            HashFunction::Sip(sip) => {
                let mut hasher = *sip;
                hasher.write_part(bytes);
                *sip = hasher;
            }
            HashFunction::Polynomial(polynomial) => {
                let mut hasher = *polynomial;
                hasher.write_part(bytes);
                *polynomial = hasher;
            }
        }
    }

    /// The hash of all parts so far.
    #[inline]
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        match self.0 {
            HashFunction::Sip(sip) => sip.finish(),
            HashFunction::Polynomial(polynomial) => polynomial.finish(),
        }
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(..)")
    }
}

/// Up to eight bytes as a little-endian word, without a loop: two reads that may overlap.
#[inline(always)]
fn read_le_word(bytes: &[u8]) -> u64 {
    if let Ok(whole) = <[u8; 8]>::try_from(bytes) {
        return u64::from_le_bytes(whole);
    }
    let shift = |part: usize| 8 * (bytes.len() - part);
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first))
            | u64::from(u32::from_le_bytes(*last)) << shift(4);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u16::from_le_bytes(*first))
            | u64::from(u16::from_le_bytes(*last)) << shift(2);
    }
    bytes.first().map_or(0, |byte| u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoy's ratelimit and gubernator join key parts with an unescaped `_`. There, some of these
    /// keys would share a counter.
    #[test]
    fn key_parts_are_length_delimited() {
        for secret in [Secret::UNSET, Secret::random()] {
            assert_parts_are_distinct(|parts| {
                let mut hasher = KeyHasher::new(secret);
                parts.iter().for_each(|part| hasher.write_part(part.as_bytes()));
                hasher.finish()
            });
        }
    }

    fn assert_parts_are_distinct(hash: impl Fn(&[&str]) -> Fingerprint) {
        let keys = [
            hash(&["a", "b_c"]),
            hash(&["a_b", "c"]),
            hash(&["a", "b", "c"]),
            hash(&["a_b_c"]),
            hash(&["a", "b_c", ""]),
            hash(&["", "a", "b_c"]),
            hash(&[&"x".repeat(300), "a"]),
            hash(&[&"x".repeat(299), "xa"]),
            hash(&[&"x".repeat(254)]),
            hash(&[&"x".repeat(255)]),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key));
        }
    }

    #[test]
    fn owner_is_fingerprint_without_namespace() {
        let hash = |part: &[u8]| Secret::UNSET.namespace(&[part]);
        let (owner, namespace) = (hash(b"owner"), hash(b"namespace"));
        let key = Key { rule: "rule", fingerprint: owner ^ namespace, namespace, part: None };
        assert_eq!(key.owner(), owner);
        assert_ne!(key.fingerprint, owner);
        assert_eq!(Key::without_namespace("rule", owner).owner(), owner);
    }

    #[test]
    fn only_public_constant_counts_as_unset() {
        assert!(!Secret::UNSET.is_set());
        assert!(Secret::from_bytes(b"one").is_set() && Secret::random().is_set());
    }

    #[test]
    fn secrets_differ_and_are_redacted_in_debug() {
        let (one, two) = (Secret::from_bytes(b"one"), Secret::from_bytes(b"two"));
        let (ours, theirs) = (Secret::random(), Secret::random());
        assert_ne!(one.check_value(), two.check_value());
        assert_ne!(ours.check_value(), theirs.check_value());
        assert_eq!(format!("{one:?}"), "Secret(..)");
        assert_eq!(format!("{:?}", KeyHasher::new(ours)), "KeyHasher(..)");
        assert!(KeyHasher::new(one).is_shareable() && !KeyHasher::new(ours).is_shareable());
    }
}
