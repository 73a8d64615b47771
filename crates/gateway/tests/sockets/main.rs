//! Tests of the gateway over real sockets, with scripted upstreams.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client_identity;
mod client_limits;
mod counting_upstream;
mod delay_queue;
mod gateway_responses;
mod http2;
mod method_case;
mod proxying;
mod request_costs;
mod scripted_upstream;
mod smuggling;
mod unix_socket;
mod untrusted_headers;
mod upgrades;
mod upload_costs;
mod upstream_faults;
mod upstream_goaway;

/// A limit that no test reaches.
const UNREACHED_LIMIT: &str = "rules: [{ id: many, limit: 1000000/h }]";
