//! Tests of the headers and refusals that clients see: every header style and every body format.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fixture;
mod golden;
mod properties;
mod refusal_over_http;
mod upstream_headers;
