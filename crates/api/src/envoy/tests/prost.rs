//! The same messages as defined with prost, to check our reader against an independent one.

use ::prost::Message;
use proptest::prelude::*;
use tidegate_rules::DescriptorPair;

use super::super::proto::read_request;
use super::super::request::{EnvoyDescriptor, EnvoyLimitOverride, EnvoyRequest};

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<ProtoDescriptorEntry>,
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<UInt64Value>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtoDescriptorEntry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub(super) value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub(super) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<ProtoDescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) response_headers_to_add: Vec<ProtoDescriptorEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtoDescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<ProtoDuration>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// The request that our reader should return.
fn expected_request(request: &RateLimitRequest) -> EnvoyRequest<'_> {
    let entry = |entry: &ProtoDescriptorEntry| DescriptorPair {
        key: entry.key.clone().into(),
        value: entry.value.clone().into(),
    };
    let descriptor = |proto: &RateLimitDescriptor| EnvoyDescriptor {
        entries: proto.entries.iter().map(entry).collect(),
        limit: proto.limit.map(|limit| EnvoyLimitOverride {
            requests_per_unit: limit.requests_per_unit,
            unit: i64::from(limit.unit).cast_unsigned(),
        }),
        hits_addend: proto.hits_addend.map(|hits| hits.value),
        is_negative_hits: proto.is_negative_hits,
    };
    EnvoyRequest {
        domain: request.domain.clone().into(),
        descriptors: request.descriptors.iter().map(descriptor).collect(),
        hits_addend: request.hits_addend,
    }
}

/// Entry values as in headers: mostly short, sometimes as long as Envoy forwards.
fn values() -> impl Strategy<Value = String> {
    let long = (".{1,20}", 0_usize..3_000).prop_map(|(text, times)| text.repeat(times));
    prop_oneof![400 => ".{0,200}", 1 => long]
}

/// Requests as Envoy may send them: descriptors without entries, entries without a key, limits with
/// an invalid unit, few or many descriptors.
pub(super) fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let entry =
        ("\\PC{0,200}", values()).prop_map(|(key, value)| ProtoDescriptorEntry { key, value });
    let limit = (any::<u32>(), 0..9)
        .prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
    let descriptor =
        (
            prop_oneof![9 => prop::collection::vec(entry, 0..5), 1 => Just(Vec::new())],
            prop::option::of(limit),
            prop::option::of(any::<u64>().prop_map(|value| UInt64Value { value })),
            any::<bool>(),
        )
            .prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
                RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
            });
    let descriptors = prop::collection::vec(descriptor, 1..5);
    // Sometimes repeat the same descriptors, past a former maximum.
    let many = prop_oneof![60 => Just(1_usize), 1 => 2_usize..20];
    (".{1,20}", descriptors, many, any::<u32>()).prop_map(|(domain, some, times, hits_addend)| {
        let descriptors = some.iter().cycle().take(some.len() * times).cloned().collect();
        RateLimitRequest { domain, descriptors, hits_addend }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn prost_encoded_request_is_parsed(request in requests()) {
        let bytes = request.encode_to_vec();
        prop_assert_eq!(read_request(&bytes), Ok(expected_request(&request)));
    }

    /// If both readers accept the bytes, they read the same request. (Ours is more lenient: it
    /// replaces invalid UTF-8 and skips fields of the wrong wire type.)
    #[test]
    fn corrupted_request_parses_like_prost(
        request in requests(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = request.encode_to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (library, ours) = (RateLimitRequest::decode(&bytes[..]), read_request(&bytes));
        if let (Ok(library), Ok(ours)) = (&library, &ours) {
            prop_assert_eq!(ours, &expected_request(library));
        }
    }
}
