//! Very many violations, written while decisions run: every one is on record, or counted as dropped.

use std::thread;

use serde_json::{Value, json};
use tidegate_testkit::postgres::TestDatabase;

use super::{admin_client, is_soak, start_server};
use crate::support::{ServerProcess, TestFolder, now, wait_for};

const WORKERS: usize = 4;

/// Refusals in one call.
const BATCH: usize = 500;

const RULES: &str = "rules: [{ id: shut, key_by: user_id, limit: { requests: deny } }]";

fn violation_counts(server: &ServerProcess) -> [u64; 4] {
    let told = admin_client(server).get("/v1/status").body["violations"].clone();
    ["heard", "written", "dropped", "waiting"].map(|name| told[name].as_u64().unwrap())
}

/// Makes so many requests that are all refused.
fn send_refused_batches(server: &ServerProcess, calls: usize) {
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let mut client = server.client();
                let check =
                    json!({"facts": {"user_id": format!("u{worker}"), "ip": "203.0.113.7"}});
                let body = json!({"checks": vec![check; BATCH]}).to_string();
                for _ in 0..calls / WORKERS {
                    let answer = client.post("/v1/checks", &body);
                    let results = answer.body["results"].as_array().unwrap();
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
    let begun = now();
    send_refused_batches(&server, total / BATCH);
    let took = begun.elapsed();
    let [heard, written, dropped, waiting] = violation_counts(&server);
    assert_eq!((heard, written + dropped + waiting), (total as u64, heard));
    let [heard, written, dropped, _] = wait_for("all to be written", || {
        Some(violation_counts(&server)).filter(|[.., waiting]| *waiting == 0)
    });
    println!("{heard} refused in {took:?}, {written} written and {dropped} dropped");
    assert_eq!((heard, written + dropped), (total as u64, heard));
    assert_eq!(count(), written);
    // What is heard last is on record when the process has ended.
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
    let path = folder.path("office.db");
    let count = || {
        let mut command = std::process::Command::new("sqlite3");
        command.arg(&path).args([".timeout 5000", "SELECT count(*) FROM rate_limit_violation"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().parse().unwrap()
    };
    assert_all_recorded_or_dropped(&format!("sqlite:{}", path.display()), count);
}
