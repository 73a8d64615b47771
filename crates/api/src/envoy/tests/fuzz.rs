//! Fuzzes request parsing: no input may panic, hang, or yield a request beyond the size limits.
//! The stable toolchain has no coverage-guided fuzzer; mutating valid requests reaches deep enough.

use ::prost::Message as _;
use proptest::prelude::*;
use tidegate_rules::ApiKind;
use tidegate_testkit::byte_mutation::{apply_mutations, byte_mutations};

use super::super::descriptor_facts::facts_from_descriptor;
use super::super::proto::read_request;
use super::super::proto_json::parse;
use super::super::request::{EnvoyRequest, MAX_DESCRIPTORS, MAX_ENTRIES};
use super::prost::requests;

/// Number of cases: `TIDEGATE_CASES` as for other property tests, or a default for each change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// Checks what must hold for every accepted request.
fn assert_bounded(call: &EnvoyRequest<'_>) {
    assert!(!call.domain.is_empty() && call.descriptors.len() <= MAX_DESCRIPTORS);
    let entries: usize = call.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    assert!(entries <= MAX_ENTRIES);
    for descriptor in &call.descriptors {
        let facts = facts_from_descriptor(&call.domain, descriptor, ApiKind::Grpc);
        assert_eq!(facts.get("domain"), Some(&*call.domain));
    }
}

fn assert_json_bounded(bytes: &[u8]) {
    if let Ok(call) = parse(bytes)
        && call.validate().is_ok()
    {
        assert_bounded(&call);
    }
}

const JSON: &[&str] = &[
    r#"{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#,
    r#"{"domain":"edge","hitsAddend":7,"descriptors":[{"entries":[{"key":"k"}],"limit":
        {"requestsPerUnit":"10","unit":"MINUTE"},"hitsAddend":"18446744073709551615","isNegativeHits":true}]}"#,
    r#"{"domain":"edge","descriptors":[{},{"entries":[]},{"entries":null},{"entries":[{}]}]}"#,
    r#"{"descriptors":[{"entries":[{"key":"é","value":null}],"hits_addend":null,"limit":null}],"domain":"\u0065"}"#,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn random_bytes_yield_bounded_request(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(call) = read_request(&bytes) {
            assert_bounded(&call);
        }
        assert_json_bounded(&bytes);
    }

    #[test]
    fn corrupted_protobuf_yields_bounded_request(request in requests(), mutations in byte_mutations()) {
        let bytes = apply_mutations(request.encode_to_vec(), &mutations);
        if let Ok(call) = read_request(&bytes) {
            assert_bounded(&call);
        }
    }

    /// Every request that Envoy can send is accepted: a fail-open Envoy lets the request pass on an
    /// error.
    #[test]
    fn valid_envoy_request_is_accepted(request in requests()) {
        prop_assert!(read_request(&request.encode_to_vec()).is_ok());
    }

    #[test]
    fn corrupted_json_yields_bounded_request(which in 0..JSON.len(), mutations in byte_mutations()) {
        assert_json_bounded(&apply_mutations(JSON[which].as_bytes().to_vec(), &mutations));
    }
}
