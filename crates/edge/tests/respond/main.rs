//! What callers are told of decisions: headers in every style, refusals of every kind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod golden;
mod house;
mod laws;
mod upstream;
mod wire;
