//! Commands for counters and violations: `reset`, `keys` and `violations`.

use std::process::Stdio;

use serde_json::json;

use super::AdminCliFixture;
use crate::support::{tidegate_command, wait_for};

/// Sends `times + 2` requests, of which `per-user` refuses `times`.
fn send_refused_requests(fixture: &AdminCliFixture, user: &str, times: usize) {
    let mut client = fixture.server.client();
    let facts = json!({ "user_id": user, "ip": "192.0.2.7", "method": "GET", "path": "/x" });
    let refused = (0..times + 2).filter(|_| client.check(&facts).status == 429).count();
    assert_eq!(refused, times);
}

/// Waits until the log has `count` violations; the server writes them in batches.
fn wait_for_violations(fixture: &AdminCliFixture, count: usize) {
    wait_for("recorded violations", || {
        let body = fixture.run_json(&["violations"]);
        (body["violations"].as_array().unwrap().len() == count).then_some(())
    });
}

#[test]
fn violations_command_filters_and_ranks() {
    let fixture = AdminCliFixture::start();
    assert_eq!(fixture.run_ok(&["violations"]), "no violations\n");
    send_refused_requests(&fixture, "ann", 3);
    send_refused_requests(&fixture, "bob", 1);
    wait_for_violations(&fixture, 4);
    let top = fixture.run_ok(&["violations", "--since", "1h", "--top"]);
    let lines: Vec<Vec<&str>> = top.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["times", "last", "rule", "user", "ip", "endpoint"]);
    assert_eq!((lines[1][0], lines[2][0]), ("3", "1"), "{top}");
    assert_eq!((lines[1][2], lines[1][5..].join(" ").as_str()), ("per-user", "GET /x"));
    assert!(lines[1][3].starts_with("h:") && !top.contains("ann"), "users are hashed: {top}");
    let counted = |args: &[&str]| {
        let body = fixture.run_json(&[&["violations"], args].concat());
        body["violations"].as_array().unwrap().len()
    };
    assert_eq!(counted(&["--user", "ann"]), 3);
    assert_eq!(counted(&["--user", lines[2][3]]), 1, "the hash as it is shown");
    assert_eq!(counted(&["--ip", "192.0.2.7", "--rule", "per-user"]), 4);
    assert_eq!(counted(&["--ip", "192.0.2.8"]), 0);
    assert_eq!(counted(&["--rule", "writes"]), 0);
    assert_eq!(counted(&["--api-key", "ann"]), 0);
    assert_eq!(counted(&["--max", "2"]), 2);
    let list = fixture.run_ok(&["violations", "--max", "2"]);
    assert!(list.ends_with("there are more; raise --max to list them\n"), "{list}");
}

#[test]
fn keys_command_lists_busiest_and_refused() {
    let fixture = AdminCliFixture::start();
    assert_eq!(fixture.run_ok(&["keys"]), "no requests in the last minute\n");
    send_refused_requests(&fixture, "ann", 3);
    send_refused_requests(&fixture, "bob", 1);
    let listed = fixture.run_ok(&["keys", "--rule", "per-user"]);
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["list", "times", "rule", "client"]);
    assert_eq!(lines[1], ["refused", "3", "per-user", "user_id=ann"], "{listed}");
    assert_eq!(lines[2], ["refused", "1", "per-user", "user_id=bob"], "{listed}");
    assert_eq!((lines[3][0], lines[3][3]), ("busiest", "user_id=ann"), "{listed}");
    assert_eq!(fixture.run_ok(&["keys", "--rule", "writes"]), "no requests in the last minute\n");
    let busiest = fixture.run_json(&["keys", "--kind", "busiest", "--max", "1"]);
    assert_eq!(busiest["top"].as_array().unwrap().len(), 1, "{busiest}");
}

#[test]
fn violations_follow_streams_new_entries() {
    let fixture = AdminCliFixture::start();
    send_refused_requests(&fixture, "ann", 1);
    wait_for_violations(&fixture, 1);
    let file = fixture.folder.path("followed");
    let mut command = tidegate_command();
    command.args(["violations", "--follow"]).env("TIDEGATE_ADMIN_URL", &fixture.url);
    let out = std::fs::File::create(&file).unwrap();
    let mut child = command.stdout(Stdio::from(out)).spawn().unwrap();
    let lines = || std::fs::read_to_string(&file).unwrap().lines().count();
    wait_for("the first violation", || (lines() == 1).then_some(()));
    send_refused_requests(&fixture, "bob", 2);
    wait_for("two more", || (lines() >= 3).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lines(), 3, "each violation once");
}

/// If the command reported success, the client would still be refused and the operator would
/// search for the cause elsewhere.
#[test]
fn failed_store_reset_is_an_error() {
    // No process listens on that port.
    let store = ["--store", "redis://127.0.0.1:1"];
    let fixture =
        AdminCliFixture::start_with("rules:\n  - { id: a, key_by: ip, limit: 1/h }\n", &store);
    fixture
        .run(&["reset", "ip=192.0.2.1"])
        .assert_failed(3, &["the counters were not reset", "/readyz"]);
}

#[test]
fn reset_clears_one_or_all_rules() {
    let fixture = AdminCliFixture::start();
    let remaining = || {
        let facts = json!({"user_id": "ann"});
        fixture.server.client().check(&facts).body["remaining"].as_u64()
    };
    assert_eq!((remaining(), remaining()), (Some(1), Some(0)));
    let out = fixture.run_ok(&["reset", "user_id=ann"]);
    assert_eq!(
        out,
        "reset\n  rule      verdict  left    full again in\n  per-user  allow    2 of 2  0 s\n"
    );
    assert_eq!(remaining(), Some(1));
    fixture.run_ok(&["reset", "per-user", "user_id=ann"]);
    assert_eq!(remaining(), Some(1));
    fixture
        .run(&["reset", "per-uesr", "user_id=ann"])
        .assert_failed(1, &["did you mean `per-user`?"]);
    fixture.run(&["reset"]).assert_failed(2, &["whose counters to reset"]);
    fixture
        .run(&["reset", "per-user"])
        .assert_failed(2, &["facts that are missing: `user_id`", "per-user FACT=VALUE"]);
    fixture.run(&["reset", "per-user", "ann"]).assert_failed(2, &["name=value"]);
    let ended = fixture.run(&["reset", "tenant=acme"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.starts_with("nothing was reset: no rule counts by these facts"),
        "{ended:?}"
    );
}

/// The examples of `tidegate reset --help`.
#[test]
fn client_counters_are_found_across_endpoints() {
    let fixture = AdminCliFixture::start_with(
        "rules:
  - id: login
    match: { endpoint: POST /login }
    key_by: ip
    limit: 2/30d using fixed_window
    ban: { after: 1, within: 1h, for: 1h }
  - { id: each, key_by: \"ip:endpoint\", limit: 50/30d using fixed_window }
  - { id: total, key_by: global, limit: 99/30d using fixed_window }\n",
        &[],
    );
    let login = || {
        let facts = json!({"ip": "203.0.113.7", "method": "POST", "path": "/login"});
        fixture.server.client().check(&facts).status
    };
    assert_eq!([login(), login(), login()], [200, 200, 429]);
    let listed = fixture.run_ok(&["keys", "ip=203.0.113.7"]);
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "rule key used left full again in warnings banned until");
    assert_eq!(lines[1][..6], ["login", "ip=203.0.113.7", "2", "of", "2", "0"], "{listed}");
    assert!(lines[1].last().unwrap().ends_with('Z'), "the end of the ban: {listed}");
    assert_eq!(lines[2][..4], ["each", "endpoint=POST", "/login", "ip=203.0.113.7"], "{listed}");
    assert_eq!(lines.len(), 3, "{listed}");
    let json = fixture.run_json(&["keys", "ip=203.0.113.7", "--rule", "login"]);
    assert_eq!(json["counters"][0]["used"], 2, "{json}");
    fixture.run_ok(&["reset", "login", "ip=203.0.113.7"]);
    assert_eq!([login(), login(), login()], [200, 200, 429]);
    let out = fixture.run_ok(&["reset", "ip=203.0.113.7"]);
    assert!(out.contains("login") && out.contains("each") && !out.contains("total"), "{out}");
    assert_eq!(login(), 200);
    fixture
        .run(&["keys", "--kind", "refused", "ip=203.0.113.7"])
        .assert_failed(2, &["cannot be used"]);
    assert_eq!(fixture.run_ok(&["keys", "tenant=x"]).lines().count(), 1);
}

#[test]
fn reset_all_starts_a_new_generation() {
    let fixture = AdminCliFixture::start();
    let remaining = |user: &str| {
        fixture.server.client().check(&json!({"user_id": user})).body["remaining"].as_u64()
    };
    assert_eq!((remaining("ann"), remaining("bob"), remaining("bob")), (Some(1), Some(1), Some(0)));
    let all = ["reset", "--rule", "per-user", "--all"];
    fixture.run(&all).assert_failed(2, &["Reset all counters", "--yes"]);
    fixture.run(&["reset", "per-user", "--all", "user_id=ann"]).assert_failed(2, &["RULE --all"]);
    fixture.run(&["reset", "--all", "--yes"]).assert_failed(2, &["RULE --all"]);
    fixture
        .run(&["reset", "per-uesr", "--all", "--yes"])
        .assert_failed(1, &["did you mean `per-user`?"]);
    assert_eq!(remaining("bob"), Some(0), "nothing was reset yet");
    let out = fixture.run_ok(&[&all[..], &["--yes"]].concat());
    assert_eq!(out, "reset: rule per-user is at generation 2\n");
    assert_eq!((remaining("ann"), remaining("bob")), (Some(1), Some(1)));
    let listed = fixture.run_json(&["reset", "per-user", "--all", "--yes"]);
    assert_eq!(listed["rule"]["generation"], 3);
    assert_eq!(remaining("bob"), Some(1));
}
