//! `check` and `explain`, in this process and against a running server.

use serde_json::Value;

use crate::support::{Server, assert_golden, run, text, tidegate};

const RULES: &str = "ask.yaml";
const FACTS: [&str; 4] = ["ip=203.0.113.7", "method=POST", "path=/api/orders", "api_key=demo"];

fn ask(command: &str, more: &[&str]) -> std::process::Output {
    run(&[&[command, "--config", RULES], &FACTS[..], more].concat())
}

#[test]
fn answers_in_this_process_are_as_they_were_reviewed() {
    for (name, command, more, code) in [
        ("check-allowed.txt", "check", &[][..], 0),
        ("check-allowed.json", "check", &["--json"], 0),
        ("check-refused.txt", "check", &["--cost", "25"], 1),
        ("check-denied.txt", "check", &["tier=banned"], 1),
        ("explain-allowed.txt", "explain", &[], 0),
        ("explain-allowed.json", "explain", &["--json"], 0),
        ("explain-refused.txt", "explain", &["--cost", "25"], 1),
    ] {
        let output = ask(command, more);
        assert_eq!(output.status.code(), Some(code), "{name}: {}", text(&output.stderr));
        assert_golden(name, &timeless(&text(&output.stdout)));
    }
}

/// The text without the one number that is the time of day.
fn timeless(text: &str) -> String {
    const FIELD: &str = "\"charged_at_us\":";
    let Some((before, after)) = text.split_once(FIELD) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let time = if rest.len() < after.len() { "TIME" } else { "" };
    format!("{before}{FIELD}{time}{rest}")
}

#[test]
fn a_request_that_no_rule_governs_is_allowed_and_says_so() {
    let output = run(&["check", "--config", "valid.yaml", "--json", "tier=x"]);
    assert_eq!(output.status.code(), Some(0));
    let output = run(&["check", "--config", "quiet.yaml", "ip=203.0.113.7"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "allowed: no rule governs this request\n");
}

#[test]
fn a_faulty_document_is_exit_code_1_and_a_missing_one_3() {
    assert_eq!(run(&["check", "--config", "broken.yaml"]).status.code(), Some(1));
    assert_eq!(run(&["check", "--config", "no-such-file.yaml"]).status.code(), Some(3));
}

#[test]
fn a_running_server_is_asked_charged_and_explained() {
    let server = Server::start(&["--limit", "2/h by ip"]);
    let url = format!("http://{}", server.address);
    let ask = |command: &str| run(&[command, "ip=192.0.2.1", "--server", &url, "--json"]);
    let codes = [ask("check"), ask("check"), ask("check")].map(|output| output.status.code());
    assert_eq!(codes, [Some(0), Some(0), Some(1)], "the server counts");
    let explained = ask("explain");
    assert_eq!(explained.status.code(), Some(1));
    let explained: Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(explained["rules"][0]["remaining"], 0);
    let told = run(&["explain", "ip=192.0.2.1", "--server", &server.address]);
    assert!(text(&told.stdout).contains("refused by"), "{}", text(&told.stdout));
    let wrong = run(&["check", "ip=nonsense", "--server", &url]);
    assert_eq!(wrong.status.code(), Some(2), "the server finds fault with the question");
    assert!(text(&wrong.stderr).contains("facts.ip"), "{}", text(&wrong.stderr));
}

#[test]
fn a_server_that_is_not_there_is_exit_code_3_and_says_what_to_do() {
    // Bound, so that nobody else is there, and not listening.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = taken.local_addr().unwrap();
    drop(taken);
    let output = run(&["check", "ip=192.0.2.1", "--server", &format!("http://{free}")]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("no answer from") && told.contains("tidegate serve"), "{told}");
}

#[test]
fn a_flag_counts_before_the_environment_when_it_says_who_decides() {
    let server = Server::start(&["--limit", "1/h by ip"]);
    let url = format!("http://{}", server.address);
    let ids = |command: &mut std::process::Command| {
        let output = command.args(["ip=192.0.2.9", "--json"]).output().unwrap();
        let decision: Value = serde_json::from_slice(&output.stdout).unwrap();
        decision["rule"].as_str().unwrap().to_owned()
    };
    let here = ids(tidegate().arg("check").env("TIDEGATE_LIMIT", "5/s by ip"));
    assert!(here.contains("1s"), "the environment names rules: {here}");
    let there =
        ids(tidegate().args(["check", "--server", &url]).env("TIDEGATE_LIMIT", "5/s by ip"));
    assert!(there.contains("1h"), "the flag names a server: {there}");
    let here = ids(tidegate().args(["check", "--limit", "5/m"]).env("TIDEGATE_SERVER", &url));
    assert!(here.contains("1m"), "the flag names rules: {here}");
}
