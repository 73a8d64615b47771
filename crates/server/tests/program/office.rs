//! The rule office of real processes: alone with a file of SQLite, and as a fleet on one PostgreSQL and one Redis.

mod alone;
mod crash;
mod fleet;
mod fleet_faults;
mod schemathesis;
mod seeded;
mod table;
mod violations;

use std::path::Path;

use serde_json::Value;

use crate::support::{Client, Server, tidegate, wait_for};

/// Whether tests may take long.
pub fn soak() -> bool {
    std::env::var("TIDEGATE_CASES")
        .is_ok_and(|cases| cases.parse().is_ok_and(|n: u64| n >= 1_000_000))
}

/// A process with an admin door.
pub fn serve(rules: &Path, args: &[&str]) -> Server {
    let mut command = tidegate();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--admin", "127.0.0.1:0"]);
    command.arg("--config").arg(rules).args(args);
    Server::spawn(command)
}

pub fn admin(server: &Server) -> Client {
    Client::connect(&server.admin())
}

/// A change of whatever is there.
#[track_caller]
pub fn apply(admin: &mut Client, document: &str) -> u64 {
    let answer = admin.ask("PUT /v1/document", &[("if-match", "*")], document);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body["version"].as_u64().unwrap()
}

fn version(admin: &mut Client) -> u64 {
    admin.get("/v1/status").body["version"].as_u64().unwrap()
}

#[track_caller]
fn wait_version(admin: &mut Client, wanted: u64) {
    wait_for(&format!("version {wanted}"), || (version(admin) == wanted).then_some(()));
}

/// The limits that a check was told, by rule.
fn limits(client: &mut Client, facts: &Value) -> Vec<(String, u64)> {
    let body = client.check(facts).body;
    let rules = body["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| (rule["id"].as_str().unwrap().to_owned(), rule["limit"].as_u64().unwrap()))
        .collect()
}
