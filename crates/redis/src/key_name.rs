//! Where a counter is stored in Redis.
//!
//! All counters of one owner are records on one page, the key `tg:` + the owner's hash in braces.
//! The rule's tag identifies a record. A standalone counter has its rule's id before the hash. A
//! log has a separate key. No API key or address appears in a key name.
//!
//! The braces make everything counted for one owner share a cluster slot. Braces in a rule's id are
//! replaced, so that no configured text determines slots.

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
        Self { name: key_name(prefix, rule, key.owner()), tag: record_tag(key, part) }
    }

    /// The location in a separate key.
    pub(crate) fn in_log(prefix: &str, key: &Key<'_>, part: StateKind) -> Self {
        let (mut name, tag) =
            (key_name(prefix, Some(key.rule), key.owner()), record_tag(key, part));
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

fn key_name(prefix: &str, rule: Option<&str>, owner: Fingerprint) -> KeyName {
    let mut name = KeyName::new();
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
        let key = |namespace| Key { rule: "free", fingerprint: owner ^ namespace, namespace };
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
        let key = Key { rule: "free", fingerprint: fingerprint(0, 3), namespace };
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

    #[test]
    fn hash_slots_match_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(hash_slot(b"foo{hash_tag}bar"), hash_slot(b"hash_tag"));
        assert_eq!(hash_slot(b"foo{}bar"), crc16(b"foo{}bar") % SLOTS);
    }
}
