//! The RESP listener with independent Redis clients: command-line tools and libraries.

mod client_libraries;
mod listener;
mod memory_flood;
mod redis_store;
mod redis_tools;
mod tls;

use std::process::Command;

use crate::support::{ServerProcess, utf8_text};

/// Ten requests per hour for each API key.
const RULES: &[&str] = &["--limit", "10/h by api_key"];

fn resp_port(server: &ServerProcess) -> &str {
    server.resp.rsplit_once(':').unwrap().1
}

/// The output of redis-cli, without the line end.
fn run_redis_cli(server: &ServerProcess, args: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let output = command.args(["-p", resp_port(server)]).args(args).output().unwrap();
    utf8_text(&output.stdout).trim_end().to_owned()
}
