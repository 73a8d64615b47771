//! The importers, as whoever calls them sees them.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

mod envoy;
mod fuzz;
mod golden;
mod limitador;
