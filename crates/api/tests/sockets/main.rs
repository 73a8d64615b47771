//! The doors from outside: real sockets on free ports, a store on a clock that stands still.

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
