//! What callers are told of decisions: headers in every style, refusals of every kind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fixture;
mod golden;
mod properties;
mod refusal_over_http;
mod upstream_headers;
