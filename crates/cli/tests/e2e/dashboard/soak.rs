//! Many keys while the dashboard is open: memory grows with the keys, and then stays constant.

use std::time::Duration;

use serde_json::json;

use super::browser_script::BrowserScript;
use crate::control_plane::is_soak;
use crate::support::{HttpTestClient, ServerProcess, TestFolder, now};

const RULES: &str = "\
rules:
  - { id: each, key_by: api_key, limit: 3/h }
  - { id: place, key_by: ip, limit: 1000/s, mode: shadow }
";

/// Checks per call.
const BATCH_SIZE: u64 = 1_000;

/// Allowance for queues and caches that still fill, in addition to 10 %.
const SLACK_KIB: u64 = 24 * 1024;

/// Resident memory of a process in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Checks `BATCH_SIZE` keys once each, beginning with number `from`.
fn check_batch(client: &mut HttpTestClient, from: u64) {
    let checks: Vec<_> = (from..from + BATCH_SIZE)
        .map(|key| json!({"facts": {"api_key": format!("key-{key}"), "ip": format!("10.0.{}.{}", key / 250 % 250, key % 250)}}))
        .collect();
    assert_eq!(client.post("/v1/checks", &json!({"checks": checks}).to_string()).status, 200);
}

/// A million keys and a minute of load in a soak run; far less otherwise.
#[test]
fn memory_stays_flat_with_open_dashboard() {
    let (keys, duration) = match is_soak() {
        true => (1_000_000, Duration::from_secs(60)),
        false => (50_000, Duration::from_secs(5)),
    };
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    let server = ServerProcess::with_config(&file, &["--admin", "127.0.0.1:0"]);
    let base = format!("http://{}", server.admin_address());
    let mut script = BrowserScript::start("watch.js", &json!({"base": base}));
    script.wait_for_line("open");
    let mut client = server.client();
    // Every key is seen and refused, so that the state of keys and violations is at its maximum.
    for _ in 0..4 {
        (0..keys / BATCH_SIZE).for_each(|batch| check_batch(&mut client, batch * BATCH_SIZE));
    }
    let (before, end, mut batch) = (resident_kib(server.pid()), now() + duration, 0);
    while now() < end {
        check_batch(&mut client, batch % (keys / BATCH_SIZE) * BATCH_SIZE);
        batch += 1;
    }
    let after = resident_kib(server.pid());
    println!(
        "{keys} keys, {batch} calls of {BATCH_SIZE}: resident {before} KiB before, {after} after"
    );
    assert!(after <= before * 11 / 10 + SLACK_KIB, "{before} KiB, {after} after {batch} calls");
    let report = script.finish();
    assert!(report["since"].as_str().unwrap().ends_with("since the start"), "{report}");
    server.stop();
}
