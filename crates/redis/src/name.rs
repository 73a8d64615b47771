//! Where a counter is in Redis.
//!
//! All that is counted of one owner is on one page, `tg:` + the owner's hash, as records that are told
//! apart by a tag of their rule's; a counter that lies alone has its rule's id before the hash. A log
//! is a key of its own. Nobody's API key or address is in a name. The hash is in braces, so that what
//! is counted of an owner shares a cluster slot; braces of a rule's id are replaced, so that no text
//! of a user's decides about slots.

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

/// The tag of a counter that lies alone: any but one that numbers of a state look like.
const ALONE: u64 = 0xd3a5_7c19_e86b_42f4;

/// Where one part of a counter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// The page, or the log.
    pub(crate) name: Name,
    /// Which record of the page.
    pub(crate) tag: u64,
}

impl Home {
    /// On the page of the counter's owner.
    pub(crate) fn page(prefix: &str, key: &Key<'_>, part: Part) -> Self {
        let rule = is_alone(key).then_some(key.rule);
        Self { name: name(prefix, rule, key.owner()), tag: tag(key, part) }
    }

    /// By itself.
    pub(crate) fn log(prefix: &str, key: &Key<'_>, part: Part) -> Self {
        let (mut name, tag) = (name(prefix, Some(key.rule), key.owner()), tag(key, part));
        name.extend(digits(u128::from(tag) << 64, 11));
        Self { name, tag }
    }
}

fn is_alone(key: &Key<'_>) -> bool {
    key.namespace == Fingerprint::default()
}

/// Which of an owner's records.
fn tag(key: &Key<'_>, part: Part) -> u64 {
    let rule = if is_alone(key) { ALONE } else { key.namespace.hi };
    let part = match part {
        Part::Main => 0,
        Part::Grace => 1,
        Part::Ban => 2,
    };
    rule & !0b11 | part
}

fn name(prefix: &str, rule: Option<&str>, owner: Fingerprint) -> Name {
    let mut name = Name::new();
    name.extend_from_slice(prefix.as_bytes());
    if let Some(rule) = rule {
        name.extend(rule.bytes().take(LONGEST_ID).map(|byte| match byte {
            b'{' => b'(',
            b'}' => b')',
            other => other,
        }));
        name.push(b':');
    }
    name.push(b'{');
    name.extend(digits(u128::from(owner.hi) << 64 | u128::from(owner.lo), 22));
    name.push(b'}');
    name
}

/// The upper bits of a number, in digits of six.
fn digits(bits: u128, digits: i32) -> impl Iterator<Item = u8> {
    (0..digits).map(move |digit| {
        let shift = 122 - 6 * digit;
        let six = if shift >= 0 { bits >> shift } else { bits << -shift } & 0x3f;
        ALPHABET[usize::try_from(six).unwrap_or(0)]
    })
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

    fn told(home: &Home) -> String {
        String::from_utf8(home.name.to_vec()).unwrap()
    }

    fn print(hi: u64, lo: u64) -> Fingerprint {
        Fingerprint { hi, lo }
    }

    #[test]
    fn an_owner_has_one_page_and_its_rules_have_records() {
        let (owner, most) = (print(u64::MAX, u64::MAX), print(0, 0));
        let rules = [print(4, 0), print(8, 0)];
        let key = |namespace| Key { rule: "free", fingerprint: owner ^ namespace, namespace };
        let homes = rules.map(|rule| Home::page("tg:", &key(rule), Part::Main));
        assert_eq!(told(&homes[0]), "tg:{_____________________w}");
        assert_eq!(homes[0].name, homes[1].name);
        assert_eq!(homes.map(|home| home.tag), [4, 8]);
        let alone = Key::alone("free", most);
        assert_eq!(
            told(&Home::page("tg:", &alone, Part::Main)),
            "tg:free:{AAAAAAAAAAAAAAAAAAAAAA}"
        );
        let braces = Key::alone("a{b}c", print(1, 2));
        assert_eq!(told(&Home::page("tg:", &braces, Part::Ban)).matches('{').count(), 1);
    }

    #[test]
    fn a_log_is_by_itself_on_the_slot_of_its_owner() {
        let namespace = print(u64::MAX, 3);
        let key = Key { rule: "free", fingerprint: print(0, 3), namespace };
        let log = Home::log("tg:", &key, Part::Main);
        assert_eq!(told(&log), "tg:free:{__________8AAAAAAAAAAA}__________w");
        assert_ne!(log.name, Home::log("tg:", &key, Part::Grace).name);
        assert_eq!(slot(&log.name), slot(&Home::page("tg:", &key, Part::Main).name));
    }

    #[test]
    fn parts_have_tags_of_their_own() {
        for key in [
            Key::alone("r", print(7, 9)),
            Key { namespace: print(7, 7), ..Key::alone("r", print(7, 9)) },
        ] {
            let homes =
                [Part::Main, Part::Grace, Part::Ban].map(|part| Home::page("tg:", &key, part));
            assert!(homes.iter().all(|home| home.name == homes[0].name));
            let [main, grace, ban] = homes.map(|home| home.tag);
            assert!(main != grace && grace != ban && ban != main);
        }
    }

    #[test]
    fn every_bit_of_the_hash_is_in_the_name() {
        let mut names = std::collections::HashSet::new();
        for bit in 0..64 {
            for print in [print(1 << bit, 0), print(0, 1 << bit)] {
                names.insert(Home::page("tg:", &Key::alone("r", print), Part::Main).name);
            }
        }
        assert_eq!(names.len(), 128);
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo{hash_tag}bar"), slot(b"hash_tag"));
        assert_eq!(slot(b"foo{}bar"), crc16(b"foo{}bar") % SLOTS);
    }
}
