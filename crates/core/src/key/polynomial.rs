//! A polynomial over a prime field: for fingerprints that nobody sees, in half of SipHash's time.
//!
//! The parts of a key are written as numbers e1, e2, … en below 2^60, and the hash is the value of
//! (1 + e1)·r^n + e2·r^(n−1) + … + en·r modulo the prime 2^61 − 1, at two secret points r that are
//! drawn independently. No two lists of parts are written alike, and 1 + e1 is never zero, so two keys
//! have different polynomials: another coefficient, or another degree. Their difference has at most n
//! roots. Points are drawn from the 2^60 smallest numbers, which saves a reduction a step. Hence
//! **whatever two keys somebody chooses without knowing the points**, they share a fingerprint with a
//! probability of at most (n / 2^60)²: 2^-110 where key and rule take 32 numbers (220 bytes), 2^-93
//! for a key of 64 KiB. That rests on counting roots (Carter and Wegman 1979), not on a belief about
//! mixing.
//!
//! Trying teaches next to nothing: that two keys were seen not to share a counter excludes at most n
//! of 2^60 points in each half, so q tries succeed with a probability of about q·(n / 2^60)². But
//! whoever *sees* a fingerprint of a known key can work the points out, and then choose keys that
//! collide. So fingerprints of this kind must stay inside, and the points must be nobody's constant:
//! [`Secret::random`] is the only way to them.
//!
//! [`Secret::random`]: super::Secret::random

use super::{Fingerprint, word};

const PRIME: u64 = (1 << 61) - 1;

/// Bytes of a number: 56 bits are less than the prime whatever they are.
const NUMBER_BYTES: usize = 7;

/// The largest of them.
const NUMBER_MOST: u64 = (1 << (8 * NUMBER_BYTES)) - 1;

/// The length of a part stands above the six bytes that its last number may hold besides.
const LENGTH_SHIFT: u32 = 48;

/// A length of this much or more has two numbers of its own.
const LONG: u64 = 0xfff;

#[derive(Clone, Copy)]
pub(super) struct Polynomial {
    points: [Point; 2],
}

/// A secret point, and the value of the polynomial there so far.
#[derive(Clone, Copy)]
struct Point {
    /// r times eight: of a product, what stands above 2^61 is then the upper word.
    eight_r: u64,
    /// Less than 5·2^60; equal modulo the prime to what it should be.
    value: u64,
}

impl Polynomial {
    /// A hasher at two points that are as hard to guess as these words.
    pub(super) fn new(words: [u64; 2]) -> Self {
        Self { points: words.map(|word| Point { eight_r: (word >> 4) * 8, value: 1 }) }
    }

    /// A part is written as numbers of seven bytes and one more with what is left and the length. Read
    /// from the end, that can be taken apart in one way only.
    #[inline(always)]
    pub(super) fn part(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // Eight bytes are read at once where there are as many, and seven of them used.
        while let Some(whole) = rest.first_chunk() {
            self.absorb(u64::from_le_bytes(*whole) & NUMBER_MOST);
            rest = &rest[NUMBER_BYTES..];
        }
        if rest.len() == NUMBER_BYTES {
            self.absorb(word(rest));
            rest = &[];
        }
        let mut length = bytes.len() as u64;
        if length >= LONG {
            self.absorb(length >> 32);
            self.absorb(length & 0xffff_ffff);
            length = LONG;
        }
        self.absorb(length << LENGTH_SHIFT | word(rest));
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
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
    fn absorb(&mut self, number: u64) {
        let product = u128::from(self.value + number) * u128::from(self.eight_r);
        // Modulo the prime 2^61 is 1, so what stands above it is added to what stands below. As r is
        // less than 2^60, that is less than (value + number) / 2 + 2^61: never as much as 5·2^60.
        self.value = (product >> 64) as u64 + (product as u64 >> 3);
    }

    /// The value itself.
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
        parts.iter().for_each(|part| hasher.part(part));
        hasher.finish()
    }

    /// The definition, in the plainest arithmetic there is.
    fn defined(word: u64, parts: &[&[u8]]) -> u64 {
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
    fn the_hash_is_the_polynomial_of_its_definition() {
        let most = [u64::MAX, u64::MAX - 16];
        for length in (0..300).chain([4_094, 4_095, 4_096, 70_000]) {
            for filler in [0, 1, 0x5a, 0xff] {
                let steps = (0..=250_u8).cycle().step_by(37).take(length);
                let bytes: Vec<u8> = steps.map(|byte| byte | filler).collect();
                let (first, second) = bytes.split_at(length / 3);
                for words in [WORDS, most, [0, 16], [1 << 63, 32]] {
                    let parts = [first, second, &[]];
                    let [hi, lo] = words.map(|word| defined(word, &parts));
                    assert_eq!(hash(words, &parts), Fingerprint { hi, lo }, "{length} bytes");
                }
            }
        }
    }

    /// What an attacker would try first: zeros, lengths that differ, bytes moved between parts. Each
    /// half alone must tell them apart.
    #[test]
    fn structured_lists_of_parts_do_not_collide_in_either_half() {
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
        // Numbers that look like the length of a part.
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

    #[test]
    fn what_is_kept_stays_small_enough_for_the_next_step() {
        let mut point = Point { eight_r: ((1 << 60) - 1) * 8, value: 1 };
        for _ in 0..1_000 {
            point.absorb((1 << 60) - 1);
            assert!(point.value < 5 << 60);
        }
    }
}
