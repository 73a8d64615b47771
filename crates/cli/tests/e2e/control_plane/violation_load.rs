//! Violations under load: the server records every one, or counts it as dropped.

use std::thread;

use serde_json::{Value, json};
use tidegate_testkit::postgres::TestDatabase;

use super::{admin_client, is_soak, start_server};
use crate::support::{ServerProcess, TestFolder, now, wait_for};

const WORKERS: usize = 4;

/// Refused checks per call.
const BATCH: usize = 500;

const RULES: &str = "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]";

fn violation_counts(server: &ServerProcess) -> [u64; 4] {
    let counts = admin_client(server).get("/v1/status").body["violations"].clone();
    ["received", "written", "dropped", "waiting"].map(|name| counts[name].as_u64().unwrap())
}

/// Sends `calls` batches in which every check is refused.
fn send_refused_batches(server: &ServerProcess, calls: usize) {
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let mut client = server.client();
                let check =
                    json!({"facts": {"user_id": format!("u{worker}"), "ip": "203.0.113.7"}});
                let body = json!({"checks": vec![check; BATCH]}).to_string();
                for _ in 0..calls / WORKERS {
                    let response = client.post("/v1/checks", &body);
                    let results = response.body["results"].as_array().unwrap();
                    assert!(results.iter().all(|result| result["allowed"] == Value::Bool(false)));
                }
            });
        }
    });
}

fn assert_all_recorded_or_dropped(url: &str, count: impl Fn() -> u64) {
    let folder = TestFolder::new();
    let server = start_server(&folder.write("rules.yaml", RULES), &["--rules-db", url]);
    let total = if is_soak() { 1_000_000 } else { 100_000 };
    let started = now();
    send_refused_batches(&server, total / BATCH);
    let elapsed = started.elapsed();
    let [observed, written, dropped, waiting] = violation_counts(&server);
    assert_eq!((observed, written + dropped + waiting), (total as u64, observed));
    let [observed, written, dropped, _] = wait_for("all violations to be written", || {
        Some(violation_counts(&server)).filter(|[.., waiting]| *waiting == 0)
    });
    println!("{observed} refused in {elapsed:?}, {written} written and {dropped} dropped");
    assert_eq!((observed, written + dropped), (total as u64, observed));
    assert_eq!(count(), written);
    // The server writes its last violations before it exits.
    send_refused_batches(&server, WORKERS);
    server.stop();
    assert_eq!(count(), written + (WORKERS * BATCH) as u64);
}

#[test]
fn postgres_records_or_counts_every_violation() {
    let database = TestDatabase::create();
    let count = || database.sql("SELECT count(*) FROM rate_limit_violation").parse().unwrap();
    assert_all_recorded_or_dropped(&database.url(), count);
}

#[test]
fn sqlite_records_or_counts_every_violation() {
    let folder = TestFolder::new();
    let path = folder.path("tidegate.db");
    let count = || {
        let mut command = std::process::Command::new("sqlite3");
        command.arg(&path).args([".timeout 5000", "SELECT count(*) FROM rate_limit_violation"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().parse().unwrap()
    };
    assert_all_recorded_or_dropped(&format!("sqlite:{}", path.display()), count);
}
