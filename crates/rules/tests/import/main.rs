//! Tests of the importers through their public API.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod envoy;
mod fuzz;
mod golden;
mod limitador;
