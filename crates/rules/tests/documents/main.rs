//! Tests of the public API: documents, the facts and keys of requests, and the rules that apply.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod accepted_forms;
mod common;
mod consistency;
mod diagnostics;
mod facts;
mod keys;
mod regions;
mod secrets;
