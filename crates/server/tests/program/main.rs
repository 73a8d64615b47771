//! The program as its users meet it: a real process, its output, its signals, its files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]
#![allow(unreachable_pub, reason = "one program; nothing here is seen from outside")]

mod admin;
mod ask;
mod bench;
mod config_check;
mod dashboard;
mod demo;
mod doors;
mod envoy;
mod facts;
mod files;
mod forward_auth;
mod gateway;
mod help;
mod import;
mod key_secret;
mod office;
mod outage;
mod redis;
mod reload;
mod reload_under_load;
mod resp;
mod serve;
mod settings;
mod snapshot;
mod support;
mod telemetry;
mod top;
mod traces;
mod unix_socket;
