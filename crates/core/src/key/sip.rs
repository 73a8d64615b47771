//! SipHash-1-3 with 128-bit output, for fingerprints that other processes may see.

use super::{Fingerprint, read_le_word};

/// A SipHash-1-3 state. Without the secret, an attacker can neither steer the output (`std`'s hash
/// tables rely on the same function) nor learn the secret from it.
///
/// Each part is encoded as whole words, with its length in the top byte of the last word. Parts of
/// 255 bytes or more have `0xff` there and an extra word for the length. Read from the end, the
/// encoding can be decoded in only one way, so no two lists of parts have the same encoding.
#[derive(Clone, Copy)]
pub(super) struct Sip {
    lanes: [u64; 4],
    words: u64,
}

impl Sip {
    pub(super) const fn new([k0, k1]: [u64; 2]) -> Self {
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

    #[inline(always)]
    pub(super) fn write_part(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for chunk in &mut words {
            self.absorb(read_le_word(chunk));
        }
        let tail = read_le_word(words.remainder());
        if bytes.len() < 0xff {
            self.absorb((bytes.len() as u64) << 56 | tail);
        } else {
            self.absorb(bytes.len() as u64);
            self.absorb(0xff << 56 | tail);
        }
    }

    #[inline]
    pub(super) fn finish(mut self) -> Fingerprint {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher as _;

    #[test]
    fn hash_matches_reference_siphash() {
        for length in 0..600_usize {
            let bytes: Vec<u8> = (0..=250).cycle().step_by(37).take(length).collect();
            let (first, second) = bytes.split_at(length / 3);
            let mut ours = Sip::new([1, 2]);
            let mut written = Vec::new();
            for part in [first, second] {
                ours.write_part(part);
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
}
