//! Rule management with real processes: a single node with SQLite, and a fleet that shares one
//! PostgreSQL and one Redis.

mod crash;
mod fleet;
mod fleet_faults;
mod rules_table;
mod schemathesis;
mod seed_file;
mod single_node;
mod violation_load;

use std::path::Path;

use serde_json::Value;

use crate::support::{HttpTestClient, ServerProcess, tidegate_command, wait_for};

/// Whether long-running variants of tests are enabled.
pub fn is_soak() -> bool {
    std::env::var("TIDEGATE_CASES")
        .is_ok_and(|cases| cases.parse().is_ok_and(|n: u64| n >= 1_000_000))
}

/// Starts a server with an admin listener.
pub fn start_server(rules: &Path, args: &[&str]) -> ServerProcess {
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--admin", "127.0.0.1:0"]);
    command.arg("--config").arg(rules).args(args);
    ServerProcess::spawn(command)
}

pub fn admin_client(server: &ServerProcess) -> HttpTestClient {
    HttpTestClient::connect(&server.admin_address())
}

/// Replaces the document, whatever its current version, and returns the new version.
#[track_caller]
pub fn apply_document(admin: &mut HttpTestClient, document: &str) -> u64 {
    let response = admin.request("PUT /v1/document", &[("if-match", "*")], document);
    assert_eq!(response.status, 200, "{}", response.body);
    response.body["version"].as_u64().unwrap()
}

fn rules_version(admin: &mut HttpTestClient) -> u64 {
    admin.get("/v1/status").body["version"].as_u64().unwrap()
}

#[track_caller]
fn wait_for_version(admin: &mut HttpTestClient, wanted: u64) {
    wait_for(&format!("version {wanted}"), || (rules_version(admin) == wanted).then_some(()));
}

/// The limits in the response to a check, by rule.
fn limits_by_rule(client: &mut HttpTestClient, facts: &Value) -> Vec<(String, u64)> {
    let body = client.check(facts).body;
    let rules = body["rules"].as_array().unwrap().iter();
    rules
        .map(|rule| (rule["id"].as_str().unwrap().to_owned(), rule["limit"].as_u64().unwrap()))
        .collect()
}
