//! Tests Envoy's wire format byte for byte, and compares the protobuf reader with prost's.

mod fuzz;
mod prost;
mod reference;
mod statuses;

use std::borrow::Cow;

use smallvec::smallvec;
use tidegate_core::time::Micros;
use tidegate_limiter::QueryAction;
use tidegate_rules::{ApiKind, DescriptorPair, InlineLimit};

use super::descriptor_facts::facts_from_descriptor;
use super::proto::{read_request, read_unvalidated};
use super::request::{
    EnvoyDescriptor, EnvoyLimitOverride, EnvoyRequest, EnvoyRequestError, MAX_DESCRIPTORS,
    MAX_ENTRIES,
};
use super::unit::RateLimitUnit;
use tidegate_web::protobuf::ProtoWriter;

fn entry(key: &'static str, value: &'static str) -> DescriptorPair<'static> {
    DescriptorPair { key: Cow::Borrowed(key), value: Cow::Borrowed(value) }
}

fn descriptor(entries: &[(&'static str, &'static str)]) -> EnvoyDescriptor<'static> {
    let entries = entries.iter().map(|(key, value)| entry(key, value)).collect();
    EnvoyDescriptor { entries, ..EnvoyDescriptor::default() }
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
    let mut writer = ProtoWriter::default();
    writer.bytes(1, b"edge");
    writer.repeated_bytes(2, &field(1, b"").repeat(count));
    writer.finish()
}

const KV: &[u8] = b"\x0a\x06\x0a\x01k\x12\x01v";

#[test]
fn envoy_request_bytes_are_parsed() {
    let bytes = b"\x0a\x04edge\x12\x1d\x0a\x1b\x0a\x0eremote_address\x12\x09192.0.2.7";
    assert_eq!(bytes.len(), 37);
    let expected = EnvoyRequest {
        domain: "edge".into(),
        descriptors: vec![descriptor(&[("remote_address", "192.0.2.7")])],
        hits_addend: 0,
    };
    assert_eq!(read_request(bytes), Ok(expected));
}

#[test]
fn hits_addend_presence_selects_action() {
    let action = |descriptor: &[u8], hits: u32| {
        let bytes = call_with(&[KV, descriptor].concat());
        let mut call = read_request(&bytes).unwrap();
        call.hits_addend = hits;
        call.descriptors[0].requested_action(&call)
    };
    assert_eq!(action(b"", 0), QueryAction::Charge(1), "what Envoy sends normally");
    assert_eq!(action(b"", 7), QueryAction::Charge(7));
    assert_eq!(action(b"\x1a\x00", 7), QueryAction::Charge(0), "present but empty means a peek");
    assert_eq!(
        action(b"\x1a\x02\x08\x05", 7),
        QueryAction::Charge(5),
        "the descriptor's addend takes precedence"
    );
    assert_eq!(action(b"\x1a\x02\x08\x05\x20\x01", 0), QueryAction::Refund(5));
    assert_eq!(action(b"\x20\x01", 3), QueryAction::Refund(3));
    let max = b"\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(action(max, 0), QueryAction::Charge(u64::MAX), "the field has 64 bits");
}

#[test]
fn override_unit_uses_override_enum() {
    let limit = |inner: &[u8]| {
        let bytes = call_with(&[KV, &field(2, inner)].concat());
        let call = read_request(&bytes).unwrap();
        (call.descriptors[0].limit, call.descriptors[0].inline_limit(), call.validate_units())
    };
    let minute = EnvoyLimitOverride { requests_per_unit: 10, unit: 2 };
    let window = Micros::from_secs(60);
    let inline = |requests| Some(InlineLimit { requests, window });
    assert_eq!(limit(b"\x08\x0a\x10\x02"), (Some(minute), inline(10), Ok(())));
    let none = EnvoyLimitOverride { requests_per_unit: 0, unit: 2 };
    assert_eq!(limit(b"\x10\x02"), (Some(none), inline(0), Ok(())));
    // Envoy accepts `UNKNOWN` from metadata; only the response's enum has a week.
    for (unit, number) in [(&b""[..], 0), (b"\x10\x07", 7), (b"\x10\x08", 8)] {
        let (_, inline, checked) = limit(unit);
        assert_eq!(
            (inline, checked),
            (None, Err(EnvoyRequestError::Unit(0, number))),
            "the override is ignored"
        );
    }
    assert_eq!(RateLimitUnit::override_number("WEEK"), None);
    let twice = [KV, &field(2, b"\x08\x0a"), &field(2, b"\x10\x02")].concat();
    assert_eq!(
        read_request(&call_with(&twice)).unwrap().descriptors[0].limit,
        Some(minute),
        "merged"
    );
}

#[test]
fn invalid_request_error_names_reason() {
    let error = |bytes: &[u8]| read_request(bytes).unwrap_err();
    assert_eq!(error(b""), EnvoyRequestError::NoDomain);
    assert_eq!(error(&field(2, KV)), EnvoyRequestError::NoDomain);
    assert_eq!(error(&field(1, b"edge")), EnvoyRequestError::NoDescriptors);
    assert_eq!(error(b"\x0a\x05edge"), EnvoyRequestError::Malformed, "cut off");
    let many = |count: usize| [field(1, b"edge"), field(2, KV).repeat(count)].concat();
    assert_eq!(error(&many(MAX_DESCRIPTORS + 1)), EnvoyRequestError::TooManyDescriptors);
    let kept = read_unvalidated(&many(100_000)).unwrap().descriptors.len();
    assert_eq!(kept, MAX_DESCRIPTORS + 1, "the rest is not stored");
    assert_eq!(read_request(&many(MAX_DESCRIPTORS)).unwrap().descriptors.len(), MAX_DESCRIPTORS);
    let entries = |counts: &[usize]| {
        let mut bytes = field(1, b"edge");
        for count in counts {
            let mut writer = ProtoWriter::default();
            writer.repeated_bytes(2, &field(1, b"\x0a\x01k").repeat(*count));
            bytes.extend(writer.finish());
        }
        read_request(&bytes)
            .map(|call| call.descriptors.iter().map(|one| one.entries.len()).collect())
    };
    let counts = vec![25, MAX_ENTRIES - 26, 1];
    assert_eq!(entries(&counts), Ok(counts));
    assert_eq!(entries(&[25, MAX_ENTRIES - 25, 1]), Err(EnvoyRequestError::TooManyEntries));
    let kept = read_unvalidated(&call_with_entries(100_000)).unwrap().descriptors[0].entries.len();
    assert_eq!(kept, MAX_ENTRIES + 1, "the rest is not stored");
    assert_eq!(
        EnvoyRequestError::Unit(3, 7).to_string(),
        "descriptors[3].limit.unit is 7; send 1 (SECOND) to 6 (YEAR) with a limit"
    );
}

/// Regression: such a request was rejected, so a fail-open Envoy let it pass.
#[test]
fn empty_descriptors_and_entries_keep_position() {
    let bytes = [field(1, b"edge"), field(2, KV), field(2, b""), field(2, &field(1, b""))].concat();
    let call = read_request(&bytes).unwrap();
    let entries = call.descriptors.iter().map(|descriptor| {
        descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect()
    });
    assert_eq!(entries.collect::<Vec<Vec<String>>>(), [vec!["k=v"], vec![], vec!["="]]);
    let none = descriptor(&[]);
    let facts = facts_from_descriptor("edge", &none, ApiKind::Grpc);
    assert_eq!(facts.iter().collect::<Vec<_>>(), [("domain", "edge")]);
}

/// A fail-open Envoy lets a request pass on an error, so a client must not be able to cause one.
#[test]
fn arbitrary_entry_value_is_accepted() {
    let value = |bytes: &[u8]| {
        let mut writer = ProtoWriter::default();
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
    assert_eq!(
        read_request(&value(&long)).unwrap().descriptors[0].entries[0].value.len(),
        0x1_0000
    );
    let broken = vec![0xff; 0x1_0000];
    assert!(
        read_request(&value(&broken)).unwrap().descriptors[0].entries[0]
            .value
            .starts_with('\u{fffd}')
    );
    for odd in ["/a/%2e%2e%2Fb", "/\0", "no path", "", "?", "/a?b=c"] {
        let descriptor = EnvoyDescriptor {
            entries: smallvec![DescriptorPair { key: "path".into(), value: odd.into() }],
            ..EnvoyDescriptor::default()
        };
        assert!(
            facts_from_descriptor("edge", &descriptor, ApiKind::Grpc).get("path").is_some(),
            "{odd:?}"
        );
    }
}

#[test]
fn entries_become_ordered_facts_after_domain() {
    let facts_of = |pairs: &[(&'static str, &'static str)]| {
        let descriptor = descriptor(pairs);
        let facts = facts_from_descriptor("edge", &descriptor, ApiKind::Grpc);
        facts.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(facts_of(&[("b", "1"), ("a", ""), ("b", "2")]), ["domain=edge", "b=1", "a=", "b=2"]);
    assert_eq!(
        facts_of(&[("remote_address", "192.0.2.7")]),
        ["domain=edge", "remote_address=192.0.2.7", "ip=192.0.2.7"]
    );
    assert_eq!(
        facts_of(&[("remote_address", "192.0.2.7"), ("ip", "198.51.100.1")]),
        ["domain=edge", "remote_address=192.0.2.7", "ip=198.51.100.1"],
        "an explicit `ip` entry takes precedence"
    );
    assert_eq!(
        facts_of(&[("remote_address", "somewhere")]),
        ["domain=edge", "remote_address=somewhere"]
    );
    assert_eq!(facts_of(&[("domain", "other")]), ["domain=edge", "domain=other"]);
    let other = descriptor(&[("domain", "other")]);
    assert_eq!(
        facts_from_descriptor("edge", &other, ApiKind::Grpc).get("domain"),
        Some("edge"),
        "rules read the first fact of a name"
    );
    assert_eq!(facts_of(&[("path", "/a/../b?c=d")]), ["domain=edge", "path=/b"]);
    assert_eq!(facts_of(&[("path", "/a%2Fb?c")]), ["domain=edge", "path=/a%2Fb"]);
}
