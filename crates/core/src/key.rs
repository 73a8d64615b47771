//! Keys: the unambiguous name of one counter, as a keyed 128-bit hash of length-prefixed parts.
//!
//! Parts are never joined by a separator: `(a, b_c)` and `(a_b, c)` are two counters. Nobody's API
//! key or address leaves this file except as a hash under the fleet's secret.

mod polynomial;
mod sip;

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::BitXor;

use polynomial::Polynomial;
use sip::Sip;

/// The secret that key hashes are made with; the same on all nodes of a fleet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    words: [u64; 2],
    seen: Seen,
}

/// Who may see the fingerprints that are made under a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Other processes: they name keys in Redis and in snapshots.
    Outside,
    /// This process alone.
    Inside,
}

impl Secret {
    /// The constant that is used when no secret is set.
    pub const UNSET: Self =
        Self { words: [0x7469_6465_6761_7465, 0x6b65_7920_7365_6564], seen: Seen::Outside };

    /// A secret of any length, for instance the contents of a file.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let print = Self::UNSET.print(bytes);
        Self { words: [print.hi, print.lo], seen: Seen::Outside }
    }

    /// A secret that nobody else has, for a limiter inside a program, whose counters live and die with
    /// it. Fingerprints under it are made in half the time, by a function that is as good as long as
    /// nobody sees what it gives out (why, `polynomial.rs` says): they must not be shown, logged or
    /// written to a store that others read, and no other process could make use of them.
    #[must_use]
    pub fn random() -> Self {
        // `std` seeds each `RandomState` from the system's random source.
        let word = || RandomState::new().build_hasher().finish();
        Self { words: [word(), word()], seen: Seen::Inside }
    }

    /// A hash by which two processes can tell that they share a secret without telling it.
    #[must_use]
    pub fn check_value(self) -> u64 {
        self.print(b"tidegate check value").lo
    }

    /// The hash of what all keys of a rule have in common.
    #[must_use]
    pub fn namespace(self, parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = Sip::new(self.words);
        parts.iter().for_each(|part| hasher.part(part));
        hasher.finish()
    }

    /// A hash that may be seen.
    fn print(self, bytes: &[u8]) -> Fingerprint {
        self.namespace(&[bytes])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The 128-bit hash that stands for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    /// The upper half.
    pub hi: u64,
    /// The lower half.
    pub lo: u64,
}

/// Takes a hash into another one, or out of it again.
impl BitXor for Fingerprint {
    type Output = Self;

    fn bitxor(self, other: Self) -> Self {
        Self { hi: self.hi ^ other.hi, lo: self.lo ^ other.lo }
    }
}

/// One counter: whose rule, and which of its keys.
///
/// Its fingerprint is the hash of its owner (the key's parts) and the hash of its namespace (the
/// rule's id, algorithm and window), one taken into the other. So what several rules count of one
/// owner can lie in one place, and a request hashes its owner once for all of them. Namespaces are
/// as good as random numbers to whoever does not know the secret: no choice of parts makes two
/// owners differ by just what two namespaces differ by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The id of the rule.
    pub rule: &'a str,
    /// Which counter.
    pub fingerprint: Fingerprint,
    /// Which of the owner's counters; nothing where this is the only one.
    pub namespace: Fingerprint,
}

impl<'a> Key<'a> {
    /// A counter that lies alone.
    #[must_use]
    pub const fn alone(rule: &'a str, fingerprint: Fingerprint) -> Self {
        Self { rule, fingerprint, namespace: Fingerprint { hi: 0, lo: 0 } }
    }

    /// Whose counter it is; its own name where it lies alone.
    #[must_use]
    pub fn owner(&self) -> Fingerprint {
        self.fingerprint ^ self.namespace
    }
}

/// Hashes the parts of a key, such that nobody without the secret can make two keys collide.
#[derive(Clone, Copy)]
pub struct KeyHasher(Function);

#[derive(Clone, Copy)]
enum Function {
    Sip(Sip),
    Polynomial(Polynomial),
}

impl KeyHasher {
    /// A hasher under a secret.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self(match secret.seen {
            Seen::Outside => Function::Sip(Sip::new(secret.words)),
            Seen::Inside => {
                let print = secret.print(b"tidegate points");
                Function::Polynomial(Polynomial::new([print.hi, print.lo]))
            }
        })
    }

    /// Whether its fingerprints may be shown, or written where others read.
    #[must_use]
    pub const fn may_be_seen(&self) -> bool {
        matches!(self.0, Function::Sip(_))
    }

    /// Adds a part.
    #[inline]
    pub fn part(&mut self, bytes: &[u8]) {
        // Absorbed into a copy that the compiler can keep in registers.
        match &mut self.0 {
            Function::Sip(sip) => {
                let mut hasher = *sip;
                hasher.part(bytes);
                *sip = hasher;
            }
            Function::Polynomial(polynomial) => {
                let mut hasher = *polynomial;
                hasher.part(bytes);
                *polynomial = hasher;
            }
        }
    }

    /// The hash of all parts so far.
    #[inline]
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        match self.0 {
            Function::Sip(sip) => sip.finish(),
            Function::Polynomial(polynomial) => polynomial.finish(),
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
fn word(bytes: &[u8]) -> u64 {
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

    /// Envoy's ratelimit and gubernator join key parts with an unescaped `_`, so these share a counter.
    #[test]
    fn parts_that_join_to_the_same_text_are_different_keys() {
        for secret in [Secret::UNSET, Secret::random()] {
            parts_are_told_apart(|parts| {
                let mut hasher = KeyHasher::new(secret);
                parts.iter().for_each(|part| hasher.part(part.as_bytes()));
                hasher.finish()
            });
        }
    }

    fn parts_are_told_apart(hash: impl Fn(&[&str]) -> Fingerprint) {
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
    fn secrets_separate_and_do_not_print() {
        let (one, two) = (Secret::from_bytes(b"one"), Secret::from_bytes(b"two"));
        let (ours, theirs) = (Secret::random(), Secret::random());
        assert_ne!(one.check_value(), two.check_value());
        assert_ne!(ours.check_value(), theirs.check_value());
        assert_eq!(format!("{one:?}"), "Secret(..)");
        assert_eq!(format!("{:?}", KeyHasher::new(ours)), "KeyHasher(..)");
        assert!(KeyHasher::new(one).may_be_seen() && !KeyHasher::new(ours).may_be_seen());
    }
}
