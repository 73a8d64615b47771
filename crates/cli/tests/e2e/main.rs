//! The program as its users meet it: a real process, its output, its signals, its files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]
#![allow(unreachable_pub, reason = "one program; nothing here is seen from outside")]

mod admin_cli;
mod api_parity;
mod bench;
mod check_command;
mod config_check;
mod control_plane;
mod dashboard;
mod demo;
mod envoy;
mod forward_auth;
mod gateway;
mod help;
mod import;
mod key_secret;
mod missing_facts;
mod redis_store;
mod reload;
mod reload_under_load;
mod resp;
mod serve;
mod settings;
mod snapshot;
mod special_files;
mod store_outage;
mod support;
mod telemetry;
mod top;
mod traces;
mod unix_socket;
