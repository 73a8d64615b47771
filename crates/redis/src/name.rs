//! How a counter is called in Redis: `tg:` + the rule's id + a fixed-size hash.
//!
//! Nobody's API key or address is in a name. The hash is in braces, so that the counter, its warnings
//! and its strikes share a cluster slot; braces of a rule's id are replaced, so that no text of a
//! user's decides about slots.

use smallvec::SmallVec;
use tidegate_core::batch::Part;
use tidegate_core::key::{Fingerprint, Key};

/// The bytes of a name; most fit in place.
pub(crate) type Name = SmallVec<[u8; 64]>;

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The longest part of a rule's id that is written out: it is there for people to read.
const LONGEST_ID: usize = 40;

/// The name of one part of a key.
pub(crate) fn name(prefix: &str, key: &Key<'_>, part: Part) -> Name {
    let mut name = Name::new();
    name.extend_from_slice(prefix.as_bytes());
    name.extend(key.rule.bytes().take(LONGEST_ID).map(|byte| match byte {
        b'{' => b'(',
        b'}' => b')',
        other => other,
    }));
    name.extend_from_slice(b":{");
    let Fingerprint { hi, lo } = key.fingerprint;
    let bits = u128::from(hi) << 64 | u128::from(lo);
    // 22 digits of six bits, the last with two of them.
    name.extend((0..22).map(|digit| {
        let shift = 122 - 6 * digit;
        let six = if shift >= 0 { bits >> shift } else { bits << -shift } & 0x3f;
        ALPHABET[usize::try_from(six).unwrap_or(0)]
    }));
    name.push(b'}');
    name.extend_from_slice(match part {
        Part::Main => b"",
        Part::Grace => b"w",
        Part::Ban => b"b",
    });
    name
}

/// The cluster slot of a name.
pub(crate) fn slot(name: &[u8]) -> u16 {
    let tagged = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &name[open + 1..];
        let length = inside.iter().position(|byte| *byte == b'}')?;
        (length > 0).then_some(&inside[..length])
    });
    crc16(tagged.unwrap_or(name)) % SLOTS
}

/// CRC-16/XMODEM, as the cluster specification asks.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rule: &str, hi: u64, lo: u64) -> Key<'_> {
        Key::alone(rule, Fingerprint { hi, lo })
    }

    #[test]
    fn a_name_is_prefix_rule_and_hash() {
        let told = |key, part| String::from_utf8(name("tg:", &key, part).to_vec()).unwrap();
        assert_eq!(told(key("free", 0, 0), Part::Main), "tg:free:{AAAAAAAAAAAAAAAAAAAAAA}");
        assert_eq!(
            told(key("free", u64::MAX, u64::MAX), Part::Grace),
            "tg:free:{_____________________w}w"
        );
        assert_eq!(told(key("a{b}c", 1, 2), Part::Ban).matches('{').count(), 1);
    }

    #[test]
    fn every_bit_of_the_hash_is_in_the_name() {
        let mut names = std::collections::HashSet::new();
        for bit in 0..64 {
            names.insert(name("tg:", &key("r", 1 << bit, 0), Part::Main));
            names.insert(name("tg:", &key("r", 0, 1 << bit), Part::Main));
        }
        assert_eq!(names.len(), 128);
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo{hash_tag}bar"), slot(b"hash_tag"));
        assert_eq!(slot(b"foo{}bar"), crc16(b"foo{}bar") % SLOTS);
        let parts = [Part::Main, Part::Grace, Part::Ban];
        let slots = parts.map(|part| slot(&name("tg:", &key("a{b}", 7, 9), part)));
        assert!(slots.iter().all(|other| *other == slots[0]));
    }
}
