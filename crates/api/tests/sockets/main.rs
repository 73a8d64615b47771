//! Tests the APIs over real sockets on free ports, with a store on a manual clock.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod authorization;
mod bad_input;
mod drain;
mod envoy_json;
mod exact_admission;
mod forward_auth;
mod golden;
mod grpc;
mod raw_http;
mod resp;
mod unix_socket;
