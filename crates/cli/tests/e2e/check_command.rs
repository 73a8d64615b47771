//! `check` and `explain`, without a server and against a running one.

use serde_json::Value;

use crate::support::{ServerProcess, assert_golden, run_tidegate, tidegate_command, utf8_text};

const RULES: &str = "example.yaml";
const FACTS: [&str; 4] = ["ip=203.0.113.7", "method=POST", "path=/api/orders", "api_key=demo"];

fn run_with_facts(command: &str, more: &[&str]) -> std::process::Output {
    run_tidegate(&[&[command, "--config", RULES], &FACTS[..], more].concat())
}

#[test]
fn local_decisions_match_golden_files() {
    for (name, command, more, code) in [
        ("check-allowed.txt", "check", &[][..], 0),
        ("check-allowed.json", "check", &["--json"], 0),
        ("check-refused.txt", "check", &["--cost", "25"], 1),
        ("check-denied.txt", "check", &["tier=banned"], 1),
        ("explain-allowed.txt", "explain", &[], 0),
        ("explain-allowed.json", "explain", &["--json"], 0),
        ("explain-refused.txt", "explain", &["--cost", "25"], 1),
    ] {
        let output = run_with_facts(command, more);
        assert_eq!(output.status.code(), Some(code), "{name}: {}", utf8_text(&output.stderr));
        assert_golden(name, &mask_timestamp(&utf8_text(&output.stdout)));
    }
}

/// Replaces the only timestamp in the output by `TIME`.
fn mask_timestamp(text: &str) -> String {
    const FIELD: &str = "\"charged_at_us\":";
    let Some((before, after)) = text.split_once(FIELD) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let time = if rest.len() < after.len() { "TIME" } else { "" };
    format!("{before}{FIELD}{time}{rest}")
}

#[test]
fn unmatched_request_is_allowed() {
    let output = run_tidegate(&["check", "--config", "valid.yaml", "--json", "tier=x"]);
    assert_eq!(output.status.code(), Some(0));
    let output = run_tidegate(&["check", "--config", "quiet.yaml", "ip=203.0.113.7"]);
    assert_eq!(output.status.code(), Some(0), "{}", utf8_text(&output.stderr));
    assert_eq!(utf8_text(&output.stdout), "allowed: no rule governs this request\n");
}

#[test]
fn invalid_and_missing_documents_set_exit_code() {
    assert_eq!(run_tidegate(&["check", "--config", "broken.yaml"]).status.code(), Some(1));
    assert_eq!(run_tidegate(&["check", "--config", "no-such-file.yaml"]).status.code(), Some(3));
}

#[test]
fn check_and_explain_use_running_server() {
    let server = ServerProcess::start(&["--limit", "2/h by ip"]);
    let url = format!("http://{}", server.address);
    let run = |command: &str| run_tidegate(&[command, "ip=192.0.2.1", "--server", &url, "--json"]);
    let codes = [run("check"), run("check"), run("check")].map(|output| output.status.code());
    assert_eq!(codes, [Some(0), Some(0), Some(1)], "the server counts requests");
    let explained = run("explain");
    assert_eq!(explained.status.code(), Some(1));
    let explained: Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(explained["rules"][0]["remaining"], 0);
    let text = run_tidegate(&["explain", "ip=192.0.2.1", "--server", &server.address]);
    assert!(utf8_text(&text.stdout).contains("refused by"), "{}", utf8_text(&text.stdout));
    let wrong = run_tidegate(&["check", "ip=nonsense", "--server", &url]);
    assert_eq!(wrong.status.code(), Some(2), "the server rejects the request as invalid");
    assert!(utf8_text(&wrong.stderr).contains("facts.ip"), "{}", utf8_text(&wrong.stderr));
}

#[test]
fn unreachable_server_exits_with_code_3() {
    // Bound and closed again: a port on which no process listens.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = taken.local_addr().unwrap();
    drop(taken);
    let output = run_tidegate(&["check", "ip=192.0.2.1", "--server", &format!("http://{free}")]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("no answer from") && errors.contains("tidegate serve"), "{errors}");
}

#[test]
fn flag_overrides_environment_for_decision_source() {
    let server = ServerProcess::start(&["--limit", "1/h by ip"]);
    let url = format!("http://{}", server.address);
    let ids = |command: &mut std::process::Command| {
        let output = command.args(["ip=192.0.2.9", "--json"]).output().unwrap();
        let decision: Value = serde_json::from_slice(&output.stdout).unwrap();
        decision["rule"].as_str().unwrap().to_owned()
    };
    let local = ids(tidegate_command().arg("check").env("TIDEGATE_LIMIT", "5/s by ip"));
    assert!(local.contains("1s"), "the environment sets the rules: {local}");
    let remote = ids(tidegate_command()
        .args(["check", "--server", &url])
        .env("TIDEGATE_LIMIT", "5/s by ip"));
    assert!(remote.contains("1h"), "the flag selects a server: {remote}");
    let local =
        ids(tidegate_command().args(["check", "--limit", "5/m"]).env("TIDEGATE_SERVER", &url));
    assert!(local.contains("1m"), "the flag sets the rules: {local}");
}
