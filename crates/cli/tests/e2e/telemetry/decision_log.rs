//! The log of decisions.

use serde_json::{Value, json};
use tidegate_core::time::{Clock as _, SystemClock};

use super::violation_log::{stop_and_read_log, violation_lines};
use super::{RULES, send_writes};
use crate::support::{ServerProcess, TestFolder};

fn decision_lines(log: &str) -> Vec<Value> {
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["target"] == "tidegate::decision").collect()
}

/// Starts a server, sends three writes, and returns its log.
fn log_of_writes(level: &str) -> String {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", RULES);
    let server = ServerProcess::with_config(&rules, &["--log", "json", "--log-level", level]);
    send_writes(&server, 3);
    stop_and_read_log(server)
}

#[test]
fn debug_log_has_each_counter_of_each_decision() {
    let now = || SystemClock::new().now().as_micros();
    let before = now();
    let log = log_of_writes("debug");
    let lines = decision_lines(&log);
    let fields = ["rule", "message", "verdict", "remaining", "cost", "api", "answered_by"];
    let shown: Vec<Value> = lines
        .iter()
        .map(|line| fields.iter().map(|field| line[*field].clone()).collect())
        .collect();
    assert_eq!(
        shown,
        [
            json!(["writes", "allowed", "allow", 1, 1, "http", "store"]),
            json!(["watched", "allowed", "allow", 0, 1, "http", "store"]),
            json!(["writes", "allowed", "allow", 0, 1, "http", "store"]),
            json!(["watched", "allowed", "shadow_deny", 0, 1, "http", "store"]),
            json!(["writes", "refused", "deny", 0, 1, "http", "store"]),
            json!(["watched", "refused", "shadow_deny", 0, 1, "http", "store"]),
        ]
    );
    let times: Vec<u64> = lines.iter().map(|line| line["at_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && before <= times[0] && times[5] <= now(), "{times:?}");
    assert!(lines.iter().all(|line| line["took_us"].is_u64()), "{log}");
    let keys = |lines: &[Value]| lines.iter().map(|line| line["key"].clone()).collect::<Vec<_>>();
    let violation = &violation_lines(&log)[0];
    assert!(keys(&lines).contains(&violation["key"]) && violation["key"].is_string(), "{log}");
}

#[test]
fn other_levels_log_no_decision() {
    assert_eq!(decision_lines(&log_of_writes("info")), Vec::<Value>::new());
}
