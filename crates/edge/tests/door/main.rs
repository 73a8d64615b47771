//! The doors from outside: real sockets on free ports, a store on a clock that stands still.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod drain;
mod envoy_json;
mod exact;
mod forward_auth;
mod gateway;
mod golden;
mod grpc;
mod guard;
mod house;
mod random;
mod resp;
mod unix;
mod wire;
