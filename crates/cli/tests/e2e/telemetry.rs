//! What a running server tells of itself: metrics that Prometheus reads, alerts and boards that fit them, and who asks
//! most.

mod dashboards_and_alerts;
mod exposition;
mod store_metrics;
mod violation_log;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{ServerProcess, run_curl, utf8_text};

/// Rules with a pattern, a shadow and a warning, so that every family has samples.
const RULES: &str = r#"
rules:
  - { id: writes, match: { endpoint: "POST /api/*" }, key_by: ip, limit: 2/30d using fixed_window }
  - { id: watched, key_by: ip, limit: 1/30d using fixed_window, mode: shadow }
"#;

/// The page of metrics.
#[track_caller]
pub(crate) fn fetch_metrics(server: &ServerProcess) -> String {
    let told = run_curl(&[&format!("http://{}/metrics", server.admin_address())]);
    assert_eq!(told.status, 200, "{told:?}");
    told.body
}

/// The value of a sample, as it is written.
#[track_caller]
pub(crate) fn sample_value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in:\n{page}")).parse().unwrap()
}

/// The families of a page with their kinds.
fn metric_families(page: &str) -> BTreeMap<String, String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// So many writes of one client, of which two pass.
fn send_writes(server: &ServerProcess, times: usize) {
    let mut client = server.client();
    let facts = json!({ "ip": "203.0.113.7", "method": "POST", "path": "/api/orders" });
    (0..times).for_each(|_| _ = client.check(&facts));
}

/// Runs promtool with words, and something to read; what it says, and whether it is content.
fn run_promtool(words: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool, which `cargo xtask setup` installs");
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (output.status.success(), utf8_text(&[output.stdout, output.stderr].concat()))
}
