//! Where a counter is stored in Redis.
//!
//! All counters of one owner are records on one page, the key `tg:` + the owner's hash in braces.
//! The rule's tag identifies a record. A standalone counter has its rule's id before the hash. A
//! log has a separate key. No API key or address appears in a key name.
//!
//! The parts of a divided counter are on different pages of its owner, `tg:` + the owner's hash and
//! two characters in braces. The characters are chosen so that the parts lie in different ranges of
//! slots.
//!
//! The braces make everything counted for one owner share a cluster slot. Braces in a rule's id are
//! replaced, so that no configured text determines slots.

use std::sync::LazyLock;

use smallvec::SmallVec;
use tidegate_core::batch::StateKind;
use tidegate_core::key::{Fingerprint, Key};

/// The bytes of a key name; most fit inline.
pub(crate) type KeyName = SmallVec<[u8; 64]>;

/// The number of slots in a cluster.
pub(crate) const SLOTS: u16 = 16_384;

const BASE64_ALPHABET: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Maximum length of a rule's id in a key name, where it only serves readability.
const MAX_RULE_ID_LEN: usize = 40;

/// The most parts of a counter whose names are spread evenly over the slots; a power of two.
const MAX_SPREAD_PARTS: u8 = 64;

/// What the names of parts end with, inside the braces.
///
/// A CRC is linear, so that the slots of two parts of an owner always differ in the same bits,
/// whatever the owner. These suffixes make part `k` differ from part 0 in the upper bits of the
/// slot by the reverse of `k`. So each of 2^n ranges of slots of equal size holds one of the first
/// 2^n parts, and every number of parts is spread about evenly.
static PART_SUFFIXES: LazyLock<Vec<[u8; 2]>> = LazyLock::new(|| {
    let suffixes = || BASE64_ALPHABET.iter().flat_map(|a| BASE64_ALPHABET.map(|b| [*a, b]));
    let range = |suffix: &[u8; 2]| crc16(suffix) % SLOTS / (SLOTS / u16::from(MAX_SPREAD_PARTS));
    let reversed = |part: u8| part.reverse_bits() >> (MAX_SPREAD_PARTS.leading_zeros() + 1);
    let suffix = |part| suffixes().find(|it| range(it) == u16::from(reversed(part)));
    (0..MAX_SPREAD_PARTS).filter_map(suffix).collect()
});

/// The tag of a standalone counter; chosen not to look like the numbers of a state.
const STANDALONE_TAG: u64 = 0xd3a5_7c19_e86b_42f4;

/// Where one state of a counter is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    /// The key of the page or log.
    pub(crate) name: KeyName,
    /// The record on the page.
    pub(crate) tag: u64,
}

impl RecordLocation {
    /// The location on the owner's page.
    pub(crate) fn on_page(prefix: &str, key: &Key<'_>, part: StateKind) -> Self {
        let rule = is_standalone(key).then_some(key.rule);
        Self { name: key_name(prefix, rule, key), tag: record_tag(key, part) }
    }

    /// The location in a separate key.
    pub(crate) fn in_log(prefix: &str, key: &Key<'_>, part: StateKind) -> Self {
        let (mut name, tag) = (key_name(prefix, Some(key.rule), key), record_tag(key, part));
        name.extend(base64_digits(u128::from(tag) << 64, 11));
        Self { name, tag }
    }
}

fn is_standalone(key: &Key<'_>) -> bool {
    key.namespace == Fingerprint::default()
}

/// The tag of a counter's record.
fn record_tag(key: &Key<'_>, part: StateKind) -> u64 {
    let rule = if is_standalone(key) { STANDALONE_TAG } else { key.namespace.hi };
    let part = match part {
        StateKind::Main => 0,
        StateKind::Grace => 1,
        StateKind::Ban => 2,
    };
    rule & !0b11 | part
}

fn key_name(prefix: &str, rule: Option<&str>, key: &Key<'_>) -> KeyName {
    let (mut name, owner) = (KeyName::new(), key.owner());
    name.extend_from_slice(prefix.as_bytes());
    if let Some(rule) = rule {
        name.extend(rule.bytes().take(MAX_RULE_ID_LEN).map(|byte| match byte {
            b'{' => b'(',
            b'}' => b')',
            other => other,
        }));
        name.push(b':');
    }
    name.push(b'{');
    name.extend(base64_digits(u128::from(owner.hi) << 64 | u128::from(owner.lo), 22));
    if let Some(part) = key.part {
        name.extend(PART_SUFFIXES[usize::from(part % MAX_SPREAD_PARTS)]);
    }
    name.push(b'}');
    name
}

/// The upper bits of a number as base64 digits.
fn base64_digits(bits: u128, digits: i32) -> impl Iterator<Item = u8> {
    (0..digits).map(move |digit| {
        let shift = 122 - 6 * digit;
        let six = if shift >= 0 { bits >> shift } else { bits << -shift } & 0x3f;
        BASE64_ALPHABET[usize::try_from(six).unwrap_or(0)]
    })
}

/// The cluster slot of a key name.
pub(crate) fn hash_slot(name: &[u8]) -> u16 {
    let tagged = name.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &name[open + 1..];
        let length = inside.iter().position(|byte| *byte == b'}')?;
        (length > 0).then_some(&inside[..length])
    });
    crc16(tagged.unwrap_or(name)) % SLOTS
}

/// CRC-16/XMODEM, as the cluster specification requires.
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

    fn name_text(location: &RecordLocation) -> String {
        String::from_utf8(location.name.to_vec()).unwrap()
    }

    fn fingerprint(hi: u64, lo: u64) -> Fingerprint {
        Fingerprint { hi, lo }
    }

    #[test]
    fn owner_has_one_page_with_rule_records() {
        let (owner, most) = (fingerprint(u64::MAX, u64::MAX), fingerprint(0, 0));
        let rules = [fingerprint(4, 0), fingerprint(8, 0)];
        let key =
            |namespace| Key { namespace, ..Key::without_namespace("free", owner ^ namespace) };
        let locations =
            rules.map(|rule| RecordLocation::on_page("tg:", &key(rule), StateKind::Main));
        assert_eq!(name_text(&locations[0]), "tg:{_____________________w}");
        assert_eq!(locations[0].name, locations[1].name);
        assert_eq!(locations.map(|location| location.tag), [4, 8]);
        let alone = Key::without_namespace("free", most);
        assert_eq!(
            name_text(&RecordLocation::on_page("tg:", &alone, StateKind::Main)),
            "tg:free:{AAAAAAAAAAAAAAAAAAAAAA}"
        );
        let braces = Key::without_namespace("a{b}c", fingerprint(1, 2));
        assert_eq!(
            name_text(&RecordLocation::on_page("tg:", &braces, StateKind::Ban))
                .matches('{')
                .count(),
            1
        );
    }

    #[test]
    fn log_key_shares_its_owners_slot() {
        let namespace = fingerprint(u64::MAX, 3);
        let key = Key { namespace, ..Key::without_namespace("free", fingerprint(0, 3)) };
        let log = RecordLocation::in_log("tg:", &key, StateKind::Main);
        assert_eq!(name_text(&log), "tg:free:{__________8AAAAAAAAAAA}__________w");
        assert_ne!(log.name, RecordLocation::in_log("tg:", &key, StateKind::Grace).name);
        assert_eq!(
            hash_slot(&log.name),
            hash_slot(&RecordLocation::on_page("tg:", &key, StateKind::Main).name)
        );
    }

    #[test]
    fn counter_parts_have_distinct_tags() {
        for key in [
            Key::without_namespace("r", fingerprint(7, 9)),
            Key { namespace: fingerprint(7, 7), ..Key::without_namespace("r", fingerprint(7, 9)) },
        ] {
            let locations = [StateKind::Main, StateKind::Grace, StateKind::Ban]
                .map(|part| RecordLocation::on_page("tg:", &key, part));
            assert!(locations.iter().all(|location| location.name == locations[0].name));
            let [main, grace, ban] = locations.map(|location| location.tag);
            assert!(main != grace && grace != ban && ban != main);
        }
    }

    #[test]
    fn key_name_contains_every_hash_bit() {
        let mut names = std::collections::HashSet::new();
        for bit in 0..64 {
            for print in [fingerprint(1 << bit, 0), fingerprint(0, 1 << bit)] {
                names.insert(
                    RecordLocation::on_page(
                        "tg:",
                        &Key::without_namespace("r", print),
                        StateKind::Main,
                    )
                    .name,
                );
            }
        }
        assert_eq!(names.len(), 128);
    }

    /// The ranges need not be those of the servers: what matters is that no range has many.
    #[test]
    fn parts_of_any_owner_are_spread_evenly() {
        let mut owner = fingerprint(1, 2);
        for _ in 0..100 {
            owner.hi = owner.hi.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let global = Key::without_namespace("r", owner);
            let grouped = Key { namespace: fingerprint(8, 8), ..global };
            for key in [global, grouped] {
                let slots = |kind: fn(&str, &Key<'_>, StateKind) -> RecordLocation, parts: u8| {
                    let part = |k: u8| key.part(k, fingerprint(u64::from(k) + 100, 3));
                    let name = move |k| kind("tg:", &part(k), StateKind::Main).name;
                    (0..parts).map(name).map(|name| hash_slot(&name)).collect::<Vec<_>>()
                };
                for n in 1..=6 {
                    for kind in [RecordLocation::on_page, RecordLocation::in_log] {
                        let ranges = slots(kind, 1 << n).into_iter().map(|slot| slot >> (14 - n));
                        let distinct: std::collections::BTreeSet<u16> = ranges.collect();
                        assert_eq!(distinct.len(), 1 << n, "one part in each range");
                    }
                }
                for (parts, servers, most) in [(3, 3, 2), (6, 3, 3), (8, 3, 3), (16, 5, 4)] {
                    let mut counts = vec![0; servers];
                    for slot in slots(RecordLocation::on_page, parts) {
                        counts[usize::from(slot) * servers / usize::from(SLOTS)] += 1;
                    }
                    assert!(counts.iter().all(|count| *count <= most), "{parts}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn hash_slots_match_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo{hash_tag}bar"), hash_slot(b"hash_tag"));
        assert_eq!(hash_slot(b"foo{}bar"), crc16(b"foo{}bar") % SLOTS);
    }
}
