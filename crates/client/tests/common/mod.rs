//! A server with a real limiter and its headers, and callers of it in virtual time.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses some of it")]

pub(crate) mod fleet_model;
pub(crate) mod limited_server;
