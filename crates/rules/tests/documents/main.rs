//! The crate as others see it: documents in, decisions about who is limited out.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod accepted_forms;
mod common;
mod diagnostics;
mod facts;
mod keys;
mod secrets;
