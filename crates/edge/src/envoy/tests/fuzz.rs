//! Anything at all as a call: no crash, no hang, and no more kept than there may be. There is no coverage-guided
//! fuzzer on a stable toolchain; these start from what is right and damage it, which goes deep enough.

use ::prost::Message as _;
use proptest::prelude::*;
use tidegate_rules::Door;
use tidegate_testkit::damage::{damaged, damages};

use super::super::call::{Call, MAX_DESCRIPTORS, MAX_ENTRIES};
use super::super::facts::facts;
use super::super::json::parse;
use super::super::proto::read;
use super::prost::requests;

/// `TIDEGATE_CASES`, as for other properties, or enough for each change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// What must hold of whatever is taken for a call.
fn bounded(call: &Call<'_>) {
    assert!(!call.domain.is_empty() && call.descriptors.len() <= MAX_DESCRIPTORS);
    let entries: usize = call.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    assert!(entries <= MAX_ENTRIES);
    for descriptor in &call.descriptors {
        let facts = facts(&call.domain, descriptor, Door::Grpc);
        assert_eq!(facts.get("domain"), Some(&*call.domain));
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
    fn bytes_at_random(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(call) = read(&bytes) {
            bounded(&call);
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn calls_in_protobuf_that_are_damaged(request in requests(), damages in damages()) {
        let bytes = damaged(request.encode_to_vec(), &damages);
        if let Ok(call) = read(&bytes) {
            bounded(&call);
        }
    }

    /// What was not damaged is always decided: an error would let the request pass.
    #[test]
    fn calls_that_envoy_may_send_are_taken(request in requests()) {
        prop_assert!(read(&request.encode_to_vec()).is_ok());
    }

    #[test]
    fn calls_in_json_that_are_damaged(which in 0..JSON.len(), damages in damages()) {
        let bytes = damaged(JSON[which].as_bytes().to_vec(), &damages);
        if let Ok(call) = parse(&bytes)
            && call.check().is_ok()
        {
            bounded(&call);
        }
    }
}
