//! The RESP door as Redis clients meet it: programs and libraries that nobody here wrote.

mod cli;
mod clients;
mod door;
mod flood;
mod store;
mod tls;

use std::process::Command;

use crate::support::{Server, text};

/// Ten an hour for each API key.
const RULES: &[&str] = &["--limit", "10/h by api_key"];

fn port(server: &Server) -> &str {
    server.resp.rsplit_once(':').unwrap().1
}

/// What redis-cli prints, without the line end.
fn redis_cli(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    let output = command.args(["-p", port(server)]).args(words).output().unwrap();
    text(&output.stdout).trim_end().to_owned()
}
