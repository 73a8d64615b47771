//! Envoy's rate limit service (`envoy.service.ratelimit.v3`): the descriptors of a call become questions, and
//! what is decided on them the statuses of the answer.
//!
//! Here is what it means, and how it is written in protobuf and in JSON. Calls come over gRPC
//! ([`grpc`](crate::grpc)) or over HTTP (`POST /json`).

mod answer;
mod call;
mod facts;
mod json;
mod proto;
mod service;
#[cfg(test)]
mod tests;
mod unit;

pub(crate) use answer::{Answer, Code};
pub(crate) use json::{AnswerView, parse as parse_json};
pub(crate) use proto::{read, write};
pub(crate) use service::Service;
pub use service::{ChargeMode, Settings};

/// The service's full name.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
