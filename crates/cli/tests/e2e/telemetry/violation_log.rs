//! Violations in the log of a running server: the fields of a line, sampling, and escaping of
//! hostile text.

use serde_json::{Value, json};

use super::{fetch_metrics, sample_value};
use crate::support::{
    HttpTestClient, RecordingUpstream, ServerProcess, TestFolder, run_tidegate, wait_for,
};

const RULES: &str = r#"
identity: { api_key: { header: x-api-key } }
rules:
  - { id: writes, match: { endpoint: "POST /api/*" }, key_by: api_key, limit: 2/30d using fixed_window }
  - { id: watched, key_by: ip, limit: 1/30d using sliding_window_counter, mode: shadow }
"#;

const API_KEY: &str = "sk-live-0123456789";

/// Terminal escapes, line ends, forged fields, and characters that change the text direction.
const HOSTILE: &str =
    "\u{1b}[2J\n{\"level\":\"ERROR\"}\r\u{202e}\u{9b}31m rule=forged \u{200b}\"\0";

fn start_server(folder: &TestFolder, args: &[&str]) -> ServerProcess {
    let rules = folder.write("rules.yaml", RULES);
    ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat())
}

/// The violation lines of a JSON log; fails if any line is not valid JSON.
pub(super) fn violation_lines(log: &str) -> Vec<Value> {
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["target"] == "tidegate::violation").collect()
}

/// Stops the server and returns its whole log; it writes pending lines before it exits.
#[track_caller]
pub(super) fn stop_and_read_log(mut server: ServerProcess) -> String {
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
    server.wait_for_log("stopped");
    server.log()
}

/// The access log lines.
fn access_lines(log: &str) -> Vec<Value> {
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["message"] == "answered").collect()
}

const FORWARDED_RULES: &str = r#"
identity: { ip: { trusted_proxies: [127.0.0.0/8] } }
rules: [{ id: shut, match: { endpoint: "GET /users/{id}" }, key_by: ip, limit: { requests: deny } }]
"#;

/// A gateway behind a trusted proxy, with an access log.
fn start_gateway(
    folder: &TestFolder,
    upstream: &RecordingUpstream,
    args: &[&str],
) -> ServerProcess {
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef");
    let rules = folder.write("rules.yaml", FORWARDED_RULES);
    let always = ["--config", rules.to_str().unwrap(), "--access-log", "--log", "json"];
    let admin = ["--admin", "127.0.0.1:0", "--key-secret-file", secret.to_str().unwrap()];
    ServerProcess::start_gateway(&upstream.url(), &[&always[..], &admin, args].concat())
}

#[test]
fn client_hash_is_the_same_everywhere() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let token = folder.write("token", "a-token-of-some-length");
    let args = ["--admin-token-file", token.to_str().unwrap()];
    let server = start_gateway(&folder, &upstream, &args);
    // Rules treat the addresses of one IPv6 network as one client, and so do logs.
    for ip in ["2001:db8::1", "2001:db8::2"] {
        let refused = server.gateway_client().get_with("/users/7", &[("x-forwarded-for", ip)]);
        assert_eq!(refused.status, 429);
    }
    let mut admin = HttpTestClient::connect(&server.admin_address());
    let bearer = [("authorization", "Bearer a-token-of-some-length")];
    let rows = wait_for("both violations to be recorded", || {
        let found = admin.get_with("/v1/violations?ip=2001:db8::99", &bearer).body;
        found["violations"].as_array().filter(|rows| rows.len() == 2).cloned()
    });
    // Callers without a token see hashes.
    let top = admin.get("/v1/top").body;
    let shown: Vec<Value> =
        top["top"].as_array().unwrap().iter().map(|key| key["client"].clone()).collect();
    let log = stop_and_read_log(server);
    let hash = rows[0]["ip"].as_str().unwrap();
    let all = [
        rows.iter().map(|row| row["ip"].clone()).collect::<Vec<_>>(),
        violation_lines(&log).iter().map(|line| line["ip"].clone()).collect(),
        access_lines(&log).iter().map(|line| line["client"].clone()).collect(),
    ];
    assert_eq!(all, [(); 3].map(|()| vec![json!(hash); 2]), "{log}");
    assert_eq!(shown, [json!(format!("ip={hash}"))], "{top}");
}

#[test]
fn access_log_shows_patterns_by_default() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let paths = |args: &[&str]| {
        let server = start_gateway(&folder, &upstream, args);
        let mut client = server.gateway_client();
        // A rule's endpoint, one without a rule, and one refused before rules are evaluated.
        for path in ["/users/alice", "/orders/bob", "/a%2fcarol"] {
            client.get_with(path, &[("x-forwarded-for", "203.0.113.7")]);
        }
        let log = stop_and_read_log(server);
        let path = |line: &Value| line["path"].as_str().unwrap().to_owned();
        let paths: Vec<_> = access_lines(&log).iter().map(path).collect();
        (paths, log)
    };
    let (patterns, log) = paths(&[]);
    assert_eq!(patterns, ["/users/{id}", "*", "*"]);
    for name in ["alice", "bob", "carol"] {
        assert!(!log.contains(name), "{log}");
    }
    let (raw, _) = paths(&["--log-paths"]);
    assert_eq!(raw, ["/users/alice", "/orders/bob", "/a%2fcarol"]);
}

#[test]
fn violation_line_matches_recorded_violation() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &["--log", "json"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/orders"});
    let mut client = server.client();
    let allowed = (0..3).filter(|_| client.check(&facts).status == 200).count();
    assert_eq!(allowed, 2);
    let admin = format!("http://{}", server.admin_address());
    let recorded = wait_for("the recorded violations", || {
        let output = run_tidegate(&["violations", "--json", "--admin", &admin]);
        let body: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = body["violations"].as_array().unwrap().clone();
        (rows.len() == 3).then_some(rows)
    });
    let log = stop_and_read_log(server);
    let lines = violation_lines(&log);
    let lines_of =
        |rule: &str| lines.iter().filter(|line| line["rule"] == rule).collect::<Vec<_>>();
    let [refused] = lines_of("writes")[..] else { panic!("{log}") };
    for (field, value) in [
        ("level", json!("INFO")),
        ("message", json!("refused")),
        ("verdict", json!("deny")),
        ("mode", json!("enforce")),
        ("algorithm", json!("fixed_window")),
        ("api", json!("http")),
        ("method", json!("POST")),
        ("endpoint", json!("POST /api/*")),
        ("limit", json!(2)),
        ("remaining", json!(0)),
        ("suppressed", json!(0)),
    ] {
        assert_eq!(refused[field], value, "{field}: {refused}");
    }
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0, "{refused}");
    let shadow = lines_of("watched");
    assert_eq!(shadow.len(), 2, "{log}");
    assert!(shadow.iter().all(|line| line["verdict"] == "shadow_deny" && line["mode"] == "shadow"));
    // The hashes equal those in the records, so that both can be joined; no identity is in plain
    // text.
    let row = recorded.iter().find(|row| row["rule"] == "writes").unwrap();
    for (field, column) in [("key", "bucket_key"), ("user", "user_id"), ("ip", "ip")] {
        assert_eq!(refused[field], row[column], "{field}: {refused} {row}");
        assert!(refused[field].as_str().unwrap().len() >= 16, "{refused}");
    }
    for secret in [API_KEY, "203.0.113.7"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn hostile_text_is_escaped_in_logs() {
    let folder = TestFolder::new();
    for format in ["json", "pretty"] {
        let server = start_server(&folder, &["--log", format]);
        let hostile = format!("x{HOSTILE}");
        let facts = json!({"ip": "203.0.113.7", "api_key": hostile, "user_id": hostile,
                           "endpoint": hostile, "tenant": hostile});
        let mut client = server.client();
        (0..3).for_each(|_| _ = client.check(&facts));
        let log = stop_and_read_log(server);
        assert!(log.contains("[2J"), "the endpoint is logged, in escaped form: {log}");
        let hidden =
            |c: &char| *c != '\n' && (c.is_control() || ('\u{200b}'..='\u{206f}').contains(c));
        assert_eq!(log.chars().find(hidden), None, "{format}: {log:?}");
        let violations = log.lines().filter(|line| line.contains("would be refused"));
        let violations: Vec<&str> = violations.collect();
        assert_eq!(violations.len(), 2, "{log}");
        if format == "json" {
            assert!(violation_lines(&log).iter().all(|line| line["rule"] == "watched"), "{log}");
        } else {
            // Inside quotes, the forged text is not a field.
            assert!(violations.iter().all(|line| line.contains(r#"rule="watched""#)), "{log}");
            let forges_field =
                |line: &&&str| line.split('"').step_by(2).any(|bare| bare.contains("forged"));
            assert!(!violations.iter().any(|line| forges_field(&line)), "{log}");
        }
    }
}

#[test]
fn violation_flood_is_sampled_and_counted() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &["--log", "json", "--log-violations", "2"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/x"});
    let body = json!({"checks": vec![json!({"facts": facts}); 500]}).to_string();
    let mut client = server.client();
    (0..6).for_each(|_| assert_eq!(client.post("/v1/checks", &body).status, 200));
    let metrics = fetch_metrics(&server);
    let verdicts =
        |labels: &str| sample_value(&metrics, &format!("tidegate_rule_verdicts_total{{{labels}}}"));
    let refused = verdicts(r#"rule="writes",endpoint="POST /api/*",mode="enforce",verdict="deny""#);
    assert_eq!(refused, 2998.0);
    let log = stop_and_read_log(server);
    for (rule, refused) in [("writes", 2998), ("watched", 2999)] {
        let lines: Vec<Value> =
            violation_lines(&log).into_iter().filter(|line| line["rule"] == rule).collect();
        let logged = lines.iter().filter(|line| line["verdict"].is_string()).count() as u64;
        let suppressed: u64 = lines.iter().map(|line| line["suppressed"].as_u64().unwrap()).sum();
        assert_eq!(logged + suppressed, refused, "{rule}: {log}");
        assert!((1..=40).contains(&logged), "{log}");
    }
}

#[test]
fn zero_disables_violation_lines() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &["--log", "json", "--log-violations", "0"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/x"});
    let mut client = server.client();
    (0..3).for_each(|_| _ = client.check(&facts));
    assert_eq!(client.check(&facts).status, 429);
    assert_eq!(violation_lines(&stop_and_read_log(server)), [json!(null); 0]);
}
