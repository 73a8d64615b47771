//! Envoy's rate limit service (`envoy.service.ratelimit.v3`).
//!
//! Each descriptor of a request becomes a decision query; each decision becomes a status in the
//! response. This module holds those semantics and the protobuf and JSON encodings. Requests arrive
//! over gRPC ([`grpc`](crate::grpc)) or over HTTP (`POST /json`).

mod descriptor_facts;
mod proto;
mod proto_json;
mod request;
mod response;
mod service;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use proto::{read_request, write_response};
pub(crate) use proto_json::{EnvoyResponseView, parse as parse_json};
pub(crate) use response::{EnvoyResponse, RateLimitCode};
pub(crate) use service::RateLimitService;
pub use service::{ChargeMode, Settings};

/// Full name of the gRPC service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
