//! The decision APIs: HTTP (with forward-auth), gRPC (Envoy's rate limit service) and RESP.

mod counter_problem;
pub mod envoy;
pub mod grpc;
pub mod http;
pub mod json;
pub mod resp;
