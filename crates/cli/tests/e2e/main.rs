//! End-to-end tests: they run the compiled program and check its output, signals and files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]
#![allow(unreachable_pub, reason = "a test binary has no outside users")]

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
mod leased_fleet;
mod leases;
mod middleware;
mod missing_facts;
mod redis_store;
mod region_fleet;
mod region_stores;
mod regions;
mod reload;
mod reload_under_load;
mod resp;
mod serve;
mod settings;
mod snapshot;
mod special_files;
mod split;
mod store_outage;
mod support;
mod telemetry;
mod top;
mod traces;
mod unix_socket;
