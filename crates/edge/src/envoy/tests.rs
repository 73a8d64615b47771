//! What Envoy sends and is told, byte for byte; and the reader of protobuf beside one that nobody here wrote.

mod fuzz;
mod prost;
mod reference;
mod statuses;

use std::borrow::Cow;

use smallvec::smallvec;
use tidegate_core::time::Micros;
use tidegate_engine::Asked;
use tidegate_rules::{BroughtLimit, Door, Entry};

use super::call::{Call, Descriptor, Invalid, MAX_DESCRIPTORS, MAX_ENTRIES, Override};
use super::facts::facts;
use super::proto::{read, read_call};
use super::unit::Unit;
use crate::protobuf::Writer;

fn entry(key: &'static str, value: &'static str) -> Entry<'static> {
    Entry { key: Cow::Borrowed(key), value: Cow::Borrowed(value) }
}

fn descriptor(entries: &[(&'static str, &'static str)]) -> Descriptor<'static> {
    let entries = entries.iter().map(|(key, value)| entry(key, value)).collect();
    Descriptor { entries, ..Descriptor::default() }
}

/// A length-delimited field, shorter than 128 bytes.
fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(inner.len()).unwrap()], inner].concat()
}

/// A call to `edge` with one descriptor.
fn call_with(descriptor: &[u8]) -> Vec<u8> {
    [field(1, b"edge"), field(2, descriptor)].concat()
}

/// A call to `edge` with one descriptor of the given number of entries, which carry no facts.
fn call_with_entries(count: usize) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(1, b"edge");
    writer.entry(2, &field(1, b"").repeat(count));
    writer.finish()
}

const KV: &[u8] = b"\x0a\x06\x0a\x01k\x12\x01v";

#[test]
fn the_request_that_envoy_sends() {
    let bytes = b"\x0a\x04edge\x12\x1d\x0a\x1b\x0a\x0eremote_address\x12\x09192.0.2.7";
    assert_eq!(bytes.len(), 37);
    let expected = Call {
        domain: "edge".into(),
        descriptors: vec![descriptor(&[("remote_address", "192.0.2.7")])],
        hits_addend: 0,
    };
    assert_eq!(read(bytes), Ok(expected));
}

#[test]
fn addends_are_read_with_their_presence_and_mean_what_envoy_means() {
    let asked = |descriptor: &[u8], hits: u32| {
        let bytes = call_with(&[KV, descriptor].concat());
        let mut call = read(&bytes).unwrap();
        call.hits_addend = hits;
        call.descriptors[0].asked(&call)
    };
    assert_eq!(asked(b"", 0), Asked::Charge(1), "what Envoy sends normally");
    assert_eq!(asked(b"", 7), Asked::Charge(7));
    assert_eq!(asked(b"\x1a\x00", 7), Asked::Charge(0), "there, and empty: a look");
    assert_eq!(asked(b"\x1a\x02\x08\x05", 7), Asked::Charge(5), "the descriptor's own wins");
    assert_eq!(asked(b"\x1a\x02\x08\x05\x20\x01", 0), Asked::GiveBack(5));
    assert_eq!(asked(b"\x20\x01", 3), Asked::GiveBack(3));
    let most = b"\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(asked(most, 0), Asked::Charge(u64::MAX), "the wire has 64 bits");
}

#[test]
fn overrides_are_read_and_their_units_are_those_of_their_own_enum() {
    let limit = |inner: &[u8]| {
        let bytes = call_with(&[KV, &field(2, inner)].concat());
        let call = read(&bytes).unwrap();
        (call.descriptors[0].limit, call.descriptors[0].brought(), call.check_units())
    };
    let minute = Override { requests_per_unit: 10, unit: 2 };
    let window = Micros::from_secs(60);
    let brought = |requests| Some(BroughtLimit { requests, window });
    assert_eq!(limit(b"\x08\x0a\x10\x02"), (Some(minute), brought(10), Ok(())));
    let none = Override { requests_per_unit: 0, unit: 2 };
    assert_eq!(limit(b"\x10\x02"), (Some(none), brought(0), Ok(())));
    // Envoy takes `UNKNOWN` from metadata; the week is in the answer's enum only.
    for (unit, told) in [(&b""[..], 0), (b"\x10\x07", 7), (b"\x10\x08", 8)] {
        let (_, brought, checked) = limit(unit);
        assert_eq!((brought, checked), (None, Err(Invalid::Unit(0, told))), "rules decide");
    }
    assert_eq!(Unit::number_of("WEEK"), None);
    let twice = [KV, &field(2, b"\x08\x0a"), &field(2, b"\x10\x02")].concat();
    assert_eq!(read(&call_with(&twice)).unwrap().descriptors[0].limit, Some(minute), "merged");
}

#[test]
fn calls_that_cannot_be_answered_say_why() {
    let of = |bytes: &[u8]| read(bytes).unwrap_err();
    assert_eq!(of(b""), Invalid::NoDomain);
    assert_eq!(of(&field(2, KV)), Invalid::NoDomain);
    assert_eq!(of(&field(1, b"edge")), Invalid::NoDescriptors);
    assert_eq!(of(b"\x0a\x05edge"), Invalid::Malformed, "cut off");
    let many = |count: usize| [field(1, b"edge"), field(2, KV).repeat(count)].concat();
    assert_eq!(of(&many(MAX_DESCRIPTORS + 1)), Invalid::TooManyDescriptors);
    let kept = read_call(&many(100_000)).unwrap().descriptors.len();
    assert_eq!(kept, MAX_DESCRIPTORS + 1, "no more are kept than show that there are too many");
    assert_eq!(read(&many(MAX_DESCRIPTORS)).unwrap().descriptors.len(), MAX_DESCRIPTORS);
    let entries = |counts: &[usize]| {
        let mut bytes = field(1, b"edge");
        for count in counts {
            let mut writer = Writer::default();
            writer.entry(2, &field(1, b"\x0a\x01k").repeat(*count));
            bytes.extend(writer.finish());
        }
        read(&bytes).map(|call| call.descriptors.iter().map(|one| one.entries.len()).collect())
    };
    let counts = vec![25, MAX_ENTRIES - 26, 1];
    assert_eq!(entries(&counts), Ok(counts));
    assert_eq!(entries(&[25, MAX_ENTRIES - 25, 1]), Err(Invalid::TooManyEntries));
    let kept = read_call(&call_with_entries(100_000)).unwrap().descriptors[0].entries.len();
    assert_eq!(kept, MAX_ENTRIES + 1, "nor are more entries kept");
    assert_eq!(
        Invalid::Unit(3, 7).to_string(),
        "descriptors[3].limit.unit is 7; send 1 (SECOND) to 6 (YEAR) with a limit"
    );
}

/// It was refused as a whole, and Envoy let the request pass.
#[test]
fn a_descriptor_without_entries_and_an_entry_without_a_key_are_read_in_their_places() {
    let bytes = [field(1, b"edge"), field(2, KV), field(2, b""), field(2, &field(1, b""))].concat();
    let call = read(&bytes).unwrap();
    let told = call.descriptors.iter().map(|one| {
        one.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect()
    });
    assert_eq!(told.collect::<Vec<Vec<String>>>(), [vec!["k=v"], vec![], vec!["="]]);
    let none = descriptor(&[]);
    let facts = facts("edge", &none, Door::Grpc);
    assert_eq!(facts.iter().collect::<Vec<_>>(), [("domain", "edge")]);
}

/// Envoy lets a request pass where it gets an error, so that a client must not be able to make one.
#[test]
fn no_value_that_a_client_can_send_is_an_error() {
    let value = |bytes: &[u8]| {
        let mut writer = Writer::default();
        writer.bytes(1, b"edge");
        writer.message(2, |descriptor| {
            descriptor.message(1, |entry| {
                entry.bytes(1, b"k");
                entry.bytes(2, bytes);
            });
        });
        writer.finish()
    };
    let long = vec![b'x'; 0x1_0000];
    assert_eq!(read(&value(&long)).unwrap().descriptors[0].entries[0].value.len(), 0x1_0000);
    let broken = vec![0xff; 0x1_0000];
    assert!(read(&value(&broken)).unwrap().descriptors[0].entries[0].value.starts_with('\u{fffd}'));
    for odd in ["/a/%2e%2e%2Fb", "/\0", "no path", "", "?", "/a?b=c"] {
        let descriptor = Descriptor {
            entries: smallvec![Entry { key: "path".into(), value: odd.into() }],
            ..Descriptor::default()
        };
        assert!(facts("edge", &descriptor, Door::Grpc).get("path").is_some(), "{odd:?}");
    }
}

#[test]
fn entries_become_facts_in_order_with_repetitions_and_the_domain_first() {
    let told = |pairs: &[(&'static str, &'static str)]| {
        let descriptor = descriptor(pairs);
        let facts = facts("edge", &descriptor, Door::Grpc);
        facts.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(told(&[("b", "1"), ("a", ""), ("b", "2")]), ["domain=edge", "b=1", "a=", "b=2"]);
    assert_eq!(
        told(&[("remote_address", "192.0.2.7")]),
        ["domain=edge", "remote_address=192.0.2.7", "ip=192.0.2.7"]
    );
    assert_eq!(
        told(&[("remote_address", "192.0.2.7"), ("ip", "198.51.100.1")]),
        ["domain=edge", "remote_address=192.0.2.7", "ip=198.51.100.1"],
        "an entry of that name is what it says"
    );
    assert_eq!(
        told(&[("remote_address", "somewhere")]),
        ["domain=edge", "remote_address=somewhere"]
    );
    assert_eq!(told(&[("domain", "other")]), ["domain=edge", "domain=other"]);
    let other = descriptor(&[("domain", "other")]);
    assert_eq!(
        facts("edge", &other, Door::Grpc).get("domain"),
        Some("edge"),
        "rules look at the first"
    );
    assert_eq!(told(&[("path", "/a/../b?c=d")]), ["domain=edge", "path=/b"]);
    assert_eq!(told(&[("path", "/a%2Fb?c")]), ["domain=edge", "path=/a%2Fb"]);
}
