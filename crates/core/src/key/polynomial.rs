//! A polynomial hash over a prime field, for fingerprints that stay inside the process. It takes
//! half of SipHash's time.
//!
//! The parts of a key are encoded as numbers e1, e2, … en below 2^60. The hash is the value of
//! (1 + e1)·r^n + e2·r^(n−1) + … + en·r modulo the prime 2^61 − 1, at two secret points r that are
//! drawn independently. Points are drawn from the 2^60 smallest numbers, which saves one reduction
//! per step.
//!
//! **Collisions.** No two lists of parts have the same encoding, and 1 + e1 is never zero. Two keys
//! therefore have polynomials that differ in a coefficient or in degree, and the difference has at
//! most n roots. So **any two keys that an attacker chooses without knowing the points** collide
//! with a probability of at most (n / 2^60)². That is 2^-110 if key and rule take 32 numbers (220
//! bytes), and 2^-93 for a key of 64 KiB. The bound is proved by counting roots (Carter and Wegman
//! 1979); it does not rest on an assumption about mixing.
//!
//! **Guessing.** Trial and error reveals almost nothing. Observing that two keys do not share a
//! counter excludes at most n of 2^60 points in each half, so q tries succeed with a probability
//! of about q·(n / 2^60)².
//!
//! **Secrecy.** An attacker who *sees* the fingerprint of a known key can compute the points, and
//! then choose keys that collide. These fingerprints must therefore stay private, and the points
//! must be random: only [`Secret::random`] selects this hash.
//!
//! [`Secret::random`]: super::Secret::random

use super::{Fingerprint, read_le_word};

const PRIME: u64 = (1 << 61) - 1;

/// Bytes per number: any 56-bit value is less than the prime.
const NUMBER_BYTES: usize = 7;

/// The largest value of [`NUMBER_BYTES`] bytes.
const MAX_NUMBER: u64 = (1 << (8 * NUMBER_BYTES)) - 1;

/// The last number of a part holds up to six bytes, with the part's length in the bits above.
const LENGTH_SHIFT: u32 = 48;

/// Lengths from this value on are encoded as two extra numbers.
const LONG_LENGTH: u64 = 0xfff;

#[derive(Clone, Copy)]
pub(super) struct Polynomial {
    points: [Point; 2],
}

/// A secret point, and the value so far of the polynomial at that point.
#[derive(Clone, Copy)]
struct Point {
    /// r times eight, so that the upper word of a product is the part above 2^61.
    eight_r: u64,
    /// The value, not fully reduced: less than 5·2^60 and correct modulo the prime.
    value: u64,
}

impl Polynomial {
    /// A hasher whose two points are as hard to guess as `words`.
    pub(super) fn new(words: [u64; 2]) -> Self {
        Self { points: words.map(|word| Point { eight_r: (word >> 4) * 8, value: 1 }) }
    }

    /// Encodes a part as numbers of seven bytes, then one more number with the remaining bytes and
    /// the length. Read from the end, the encoding can be decoded in only one way.
    #[inline(always)]
    pub(super) fn write_part(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // While eight bytes remain, read all eight at once and use seven of them.
        while let Some(whole) = rest.first_chunk() {
            self.absorb(u64::from_le_bytes(*whole) & MAX_NUMBER);
            rest = &rest[NUMBER_BYTES..];
        }
        if rest.len() == NUMBER_BYTES {
            self.absorb(read_le_word(rest));
            rest = &[];
        }
        let mut length = bytes.len() as u64;
        if length >= LONG_LENGTH {
            self.absorb(length >> 32);
            self.absorb(length & 0xffff_ffff);
            length = LONG_LENGTH;
        }
        self.absorb(length << LENGTH_SHIFT | read_le_word(rest));
    }

    #[inline(always)]
    pub(super) fn finish(self) -> Fingerprint {
        let [hi, lo] = self.points.map(Point::reduced);
        Fingerprint { hi, lo }
    }

    #[inline(always)]
    fn absorb(&mut self, number: u64) {
        self.points.iter_mut().for_each(|point| point.absorb(number));
    }
}

impl Point {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "splits the product into its two halves")]
    fn absorb(&mut self, number: u64) {
        let product = u128::from(self.value + number) * u128::from(self.eight_r);
        // 2^61 is 1 modulo the prime, so add the bits above 2^61 to the bits below. Because r is
        // less than 2^60, the sum is less than (value + number) / 2 + 2^61, which is below 5·2^60.
        self.value = (product >> 64) as u64 + (product as u64 >> 3);
    }

    /// The value, fully reduced modulo the prime.
    #[inline(always)]
    const fn reduced(self) -> u64 {
        let once = (self.value >> 61) + (self.value & PRIME);
        if once >= PRIME { once - PRIME } else { once }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const WORDS: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

    fn hash(words: [u64; 2], parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = Polynomial::new(words);
        parts.iter().for_each(|part| hasher.write_part(part));
        hasher.finish()
    }

    /// The definition of the hash, written in the simplest arithmetic.
    fn reference_hash(word: u64, parts: &[&[u8]]) -> u64 {
        let prime = u128::from(PRIME);
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0, |number, byte| number * 256 + u128::from(*byte))
        };
        let mut numbers = Vec::new();
        for part in parts {
            let whole = part.len() / 7 * 7;
            numbers.extend(part[..whole].chunks(7).map(number));
            if part.len() >= 4_095 {
                numbers.extend([0, part.len() as u128]);
            }
            numbers.push((part.len().min(4_095) as u128) << 48 | number(&part[whole..]));
        }
        let r = u128::from(word >> 4);
        let value = numbers.iter().fold(1, |value, number| (value + number) % prime * r % prime);
        u64::try_from(value).unwrap()
    }

    #[test]
    fn hash_matches_polynomial_definition() {
        let max_words = [u64::MAX, u64::MAX - 16];
        for length in (0..300).chain([4_094, 4_095, 4_096, 70_000]) {
            for filler in [0, 1, 0x5a, 0xff] {
                let steps = (0..=250_u8).cycle().step_by(37).take(length);
                let bytes: Vec<u8> = steps.map(|byte| byte | filler).collect();
                let (first, second) = bytes.split_at(length / 3);
                for words in [WORDS, max_words, [0, 16], [1 << 63, 32]] {
                    let parts = [first, second, &[]];
                    let [hi, lo] = words.map(|word| reference_hash(word, &parts));
                    assert_eq!(hash(words, &parts), Fingerprint { hi, lo }, "{length} bytes");
                }
            }
        }
    }

    /// Tries what an attacker would try first: zeros, different lengths, bytes moved between parts.
    /// Each half of the fingerprint must distinguish them by itself.
    #[test]
    fn structured_part_lists_do_not_collide() {
        let mut lists: HashSet<Vec<Vec<u8>>> = HashSet::new();
        let texts: Vec<Vec<u8>> = (0..=64)
            .flat_map(|length| [vec![0; length], vec![0xff; length], vec![b'a'; length]])
            .chain((0..1_u32 << 10).map(|bits| (0..10).map(|i| (bits >> i & 1) as u8).collect()))
            .chain((4_080..4_110).map(|length| vec![0; length]))
            .collect();
        for text in &texts {
            lists.insert(vec![text.clone()]);
            for at in 0..=text.len().min(70) {
                lists.insert(vec![text[..at].to_vec(), text[at..].to_vec()]);
            }
            lists.extend([vec![vec![], text.clone()], vec![text.clone(), vec![], vec![]]]);
        }
        // Numbers that look like the encoded length of a part.
        for length in 0..40_u64 {
            lists.insert(vec![(length << LENGTH_SHIFT).to_le_bytes()[..7].to_vec()]);
        }
        for words in [WORDS, WORDS.map(|word| word.rotate_left(17) ^ 0xdead_beef)] {
            let (mut upper, mut lower) = (HashSet::new(), HashSet::new());
            for list in &lists {
                let parts: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
                let Fingerprint { hi, lo } = hash(words, &parts);
                assert!(upper.insert(hi) && lower.insert(lo), "{list:?}");
            }
        }
        assert!(lists.len() > 10_000);
    }

    /// A random key meets a multiple of the prime once in 2^60.
    #[test]
    fn values_are_reduced_below_prime() {
        for multiple in [0, PRIME, 2 * PRIME] {
            for rest in [0, 1, PRIME - 1] {
                let point = Point { eight_r: 8, value: multiple + rest };
                assert_eq!(point.reduced(), rest, "{multiple} + {rest}");
            }
        }
    }

    #[test]
    fn accumulator_stays_within_bound() {
        let mut point = Point { eight_r: ((1 << 60) - 1) * 8, value: 1 };
        for _ in 0..1_000 {
            point.absorb((1 << 60) - 1);
            assert!(point.value < 5 << 60);
        }
    }
}
