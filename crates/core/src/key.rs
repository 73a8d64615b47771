//! Keys: the unambiguous name of one counter, as a keyed 128-bit hash of length-prefixed parts.
//!
//! Parts are never joined by a separator: `(a, b_c)` and `(a_b, c)` are two counters. Nobody's API
//! key or address leaves this file except as a hash under the fleet's secret.

/// The secret that key hashes are made with; the same on all nodes of a fleet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u64; 2]);

impl Secret {
    /// The constant that is used when no secret is set.
    pub const UNSET: Self = Self([0x7469_6465_6761_7465, 0x6b65_7920_7365_6564]);

    /// A secret of any length, for instance the contents of a file.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut hasher = KeyHasher::new(Self::UNSET);
        hasher.part(bytes);
        let print = hasher.finish();
        Self([print.hi, print.lo])
    }

    /// A hash by which two processes can tell that they share a secret without telling it.
    #[must_use]
    pub fn check_value(self) -> u64 {
        let mut hasher = KeyHasher::new(self);
        hasher.part(b"tidegate check value");
        hasher.finish().lo
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

/// One counter: whose rule, and which of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The id of the rule.
    pub rule: &'a str,
    /// The key's parts, hashed together with the rule's id, algorithm and window.
    pub fingerprint: Fingerprint,
}

/// Hashes the parts of a key: SipHash-1-3 with 128 bits, which an attacker who does not know the
/// secret cannot steer (`std`'s tables rest on the same function).
///
/// Each part is written as whole words with its length in the top byte of the last one (`0xff` and
/// one more word for the rare long ones). Read from the end, that can be taken apart in one way only,
/// so no two lists of parts are written alike.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    lanes: [u64; 4],
    words: u64,
}

impl KeyHasher {
    /// A hasher under a secret.
    #[must_use]
    pub const fn new(Secret([k0, k1]): Secret) -> Self {
        Self {
            lanes: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            words: 0,
        }
    }

    /// Adds a part.
    #[inline]
    pub fn part(&mut self, bytes: &[u8]) {
        // Absorbed into a copy that the compiler can keep in registers.
        let mut hasher = *self;
        hasher.write(bytes);
        *self = hasher;
    }

    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for chunk in &mut words {
            self.absorb(word(chunk));
        }
        let tail = word(words.remainder());
        if bytes.len() < 0xff {
            self.absorb((bytes.len() as u64) << 56 | tail);
        } else {
            self.absorb(bytes.len() as u64);
            self.absorb(0xff << 56 | tail);
        }
    }

    /// The hash of all parts so far.
    #[inline]
    #[must_use]
    pub fn finish(mut self) -> Fingerprint {
        self.absorb(self.words << 59);
        self.lanes[2] ^= 0xee;
        let lo = self.squeeze();
        self.lanes[1] ^= 0xdd;
        let hi = self.squeeze();
        Fingerprint { hi, lo }
    }

    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.words = self.words.wrapping_add(1);
        self.lanes[3] ^= word;
        round(&mut self.lanes);
        self.lanes[0] ^= word;
    }

    #[inline(always)]
    fn squeeze(&mut self) -> u64 {
        for _ in 0..3 {
            round(&mut self.lanes);
        }
        self.lanes.iter().fold(0, |hash, lane| hash ^ lane)
    }
}

#[inline(always)]
fn round(lanes: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *lanes;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *lanes = [a, b, c, d];
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
    use std::hash::Hasher as _;

    #[test]
    fn the_hash_is_siphash_1_3_128_of_the_parts_written_as_words() {
        for length in 0..600_usize {
            let bytes: Vec<u8> = (0..=250).cycle().step_by(37).take(length).collect();
            let (first, second) = bytes.split_at(length / 3);
            let mut ours = KeyHasher::new(Secret([1, 2]));
            let mut written = Vec::new();
            for part in [first, second] {
                ours.part(part);
                let full = part.len() / 8 * 8;
                written.extend(&part[..full]);
                if part.len() >= 255 {
                    written.extend((part.len() as u64).to_le_bytes());
                }
                let mut tail = part[full..].to_vec();
                tail.resize(7, 0);
                written.extend(tail);
                written.push(u8::try_from(part.len()).unwrap_or(255));
            }
            let mut theirs = siphasher::sip128::SipHasher13::new_with_keys(1, 2);
            theirs.write(&written);
            let hash = siphasher::sip128::Hasher128::finish128(&theirs);
            assert_eq!(ours.finish(), Fingerprint { hi: hash.h2, lo: hash.h1 }, "{length} bytes");
        }
    }

    /// Envoy's ratelimit and gubernator join key parts with an unescaped `_`, so these share a counter.
    #[test]
    fn parts_that_join_to_the_same_text_are_different_keys() {
        let hash = |parts: &[&str]| {
            let mut hasher = KeyHasher::new(Secret::UNSET);
            parts.iter().for_each(|part| hasher.part(part.as_bytes()));
            hasher.finish()
        };
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
        assert_ne!(one.check_value(), two.check_value());
        assert_eq!(format!("{one:?}"), "Secret(..)");
    }
}
