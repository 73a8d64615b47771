//! Telemetry of a running server: metrics in Prometheus format, matching alerts and dashboards, and
//! the violation log.

mod dashboards_and_alerts;
mod decision_log;
mod exposition;
mod store_metrics;
mod violation_log;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{ServerProcess, run_curl, utf8_text};

/// Rules with an endpoint pattern and shadow mode, so that every metric family has samples.
const RULES: &str = r#"
rules:
  - { id: writes, match: { endpoint: "POST /api/*" }, key_by: ip, limit: 2/30d using fixed_window }
  - { id: watched, key_by: ip, limit: 1/30d using fixed_window, mode: shadow }
"#;

/// The metrics page.
#[track_caller]
pub(crate) fn fetch_metrics(server: &ServerProcess) -> String {
    let response = run_curl(&[&format!("http://{}/metrics", server.admin_address())]);
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

/// The value of a sample.
#[track_caller]
pub(crate) fn sample_value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in:\n{page}")).parse().unwrap()
}

/// The metric families of a page with their types.
fn metric_families(page: &str) -> BTreeMap<String, String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Sends `times` writes of one client, of which two pass.
fn send_writes(server: &ServerProcess, times: usize) {
    let mut client = server.client();
    let facts = json!({ "ip": "203.0.113.7", "method": "POST", "path": "/api/orders" });
    (0..times).for_each(|_| _ = client.check(&facts));
}

/// Runs promtool with input on stdin; returns whether it succeeded, and its output.
fn run_promtool(args: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool, which `cargo xtask setup` installs");
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (output.status.success(), utf8_text(&[output.stdout, output.stderr].concat()))
}
