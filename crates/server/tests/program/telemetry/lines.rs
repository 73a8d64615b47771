//! Violations in the log of a running server: what a line says, how many there are, and what becomes of hostile text.

use serde_json::{Value, json};

use super::{page, sample};
use crate::support::{Client, Folder, Server, Upstream, run, wait_for};

const RULES: &str = r#"
identity: { api_key: { header: x-api-key } }
rules:
  - { id: writes, match: { endpoint: "POST /api/*" }, key_by: api_key, limit: 2/30d using fixed_window }
  - { id: watched, key_by: ip, limit: 1/30d using sliding_window_counter, mode: shadow }
"#;

const API_KEY: &str = "sk-live-0123456789";

/// What terminals obey, what ends lines, what forges fields, and what turns the direction of writing.
const HOSTILE: &str =
    "\u{1b}[2J\n{\"level\":\"ERROR\"}\r\u{202e}\u{9b}31m rule=forged \u{200b}\"\0";

fn serve(folder: &Folder, args: &[&str]) -> Server {
    let rules = folder.write("rules.yaml", RULES);
    Server::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat())
}

/// The lines about violations, each an object; all others are objects too.
fn lines(log: &str) -> Vec<Value> {
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["target"] == "tidegate::violation").collect()
}

/// Stops the server and returns all that it has said: what is left to tell is told at the end.
#[track_caller]
fn last_log(mut server: Server) -> String {
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    server.wait_log("stopped");
    server.log()
}

#[test]
fn a_client_has_one_hash_in_the_access_log_in_violations_and_on_record() {
    let (folder, upstream) = (Folder::new(), Upstream::start());
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef");
    let source = "rules: [{ id: shut, key_by: ip, limit: { requests: deny } }]";
    let rules = folder.write("rules.yaml", source);
    let args = ["--config", rules.to_str().unwrap(), "--key-secret-file", secret.to_str().unwrap()];
    let more = ["--access-log", "--log", "json", "--admin", "127.0.0.1:0"];
    let server = Server::in_front_of(&upstream.url(), &[&args[..], &more].concat());
    assert_eq!(server.visitor().get("/").status, 429);
    let mut admin = Client::connect(&server.admin());
    let row = wait_for("it to be on record", || {
        admin.get("/v1/violations?limit=1").body["violations"].get(0).cloned()
    });
    let log = last_log(server);
    let line = lines(&log).remove(0);
    let answered = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answered = answered.filter(|line| line["message"] == "answered");
    let clients: Vec<Value> = answered.map(|line| line["client"].clone()).collect();
    assert_eq!((&line["ip"], &clients), (&row["ip"], &vec![row["ip"].clone()]), "{log}");
}

#[test]
fn a_line_says_who_was_refused_by_which_rule_and_can_be_found_again() {
    let folder = Folder::new();
    let server = serve(&folder, &["--log", "json"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/orders"});
    let mut client = server.client();
    let allowed = (0..3).filter(|_| client.check(&facts).status == 200).count();
    assert_eq!(allowed, 2);
    let admin = format!("http://{}", server.admin());
    let on_record = wait_for("them to be on record", || {
        let asked = run(&["violations", "--json", "--admin", &admin]);
        let told: Value = serde_json::from_slice(&asked.stdout).unwrap();
        let rows = told["violations"].as_array().unwrap().clone();
        (rows.len() == 3).then_some(rows)
    });
    let log = last_log(server);
    let lines = lines(&log);
    let of = |rule: &str| lines.iter().filter(|line| line["rule"] == rule).collect::<Vec<_>>();
    let [refused] = of("writes")[..] else { panic!("{log}") };
    for (field, value) in [
        ("level", json!("INFO")),
        ("message", json!("refused")),
        ("verdict", json!("deny")),
        ("mode", json!("enforce")),
        ("algorithm", json!("fixed_window")),
        ("door", json!("http")),
        ("method", json!("POST")),
        ("endpoint", json!("POST /api/*")),
        ("limit", json!(2)),
        ("remaining", json!(0)),
        ("suppressed", json!(0)),
    ] {
        assert_eq!(refused[field], value, "{field}: {refused}");
    }
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0, "{refused}");
    let shadow = of("watched");
    assert_eq!(shadow.len(), 2, "{log}");
    assert!(shadow.iter().all(|line| line["verdict"] == "shadow_deny" && line["mode"] == "shadow"));
    // The same hashes as on record, so that the two can be joined; and no plain identity anywhere.
    let row = on_record.iter().find(|row| row["rule"] == "writes").unwrap();
    for (field, column) in [("key", "bucket_key"), ("user", "user_id"), ("ip", "ip")] {
        assert_eq!(refused[field], row[column], "{field}: {refused} {row}");
        assert!(refused[field].as_str().unwrap().len() >= 16, "{refused}");
    }
    for secret in [API_KEY, "203.0.113.7"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn hostile_text_neither_ends_a_line_nor_is_obeyed_in_either_format() {
    let folder = Folder::new();
    for format in ["json", "pretty"] {
        let server = serve(&folder, &["--log", format]);
        let hostile = format!("x{HOSTILE}");
        let facts = json!({"ip": "203.0.113.7", "api_key": hostile, "user_id": hostile,
                           "endpoint": hostile, "tenant": hostile});
        let mut client = server.client();
        (0..3).for_each(|_| _ = client.check(&facts));
        let log = last_log(server);
        assert!(log.contains("[2J"), "the endpoint is there, as far as it may be: {log}");
        let hidden =
            |c: &char| *c != '\n' && (c.is_control() || ('\u{200b}'..='\u{206f}').contains(c));
        assert_eq!(log.chars().find(hidden), None, "{format}: {log:?}");
        let violations = log.lines().filter(|line| line.contains("would be refused"));
        let violations: Vec<&str> = violations.collect();
        assert_eq!(violations.len(), 2, "{log}");
        if format == "json" {
            assert!(lines(&log).iter().all(|line| line["rule"] == "watched"), "{log}");
        } else {
            // Within quotes it is no field.
            assert!(violations.iter().all(|line| line.contains(r#"rule="watched""#)), "{log}");
            let quoted =
                |line: &&&str| line.split('"').step_by(2).any(|bare| bare.contains("forged"));
            assert!(!violations.iter().any(|line| quoted(&line)), "{log}");
        }
    }
}

#[test]
fn of_a_flood_few_lines_are_written_and_all_others_counted() {
    let folder = Folder::new();
    let server = serve(&folder, &["--log", "json", "--log-violations", "2"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/x"});
    let body = json!({"checks": vec![json!({"facts": facts}); 500]}).to_string();
    let mut client = server.client();
    (0..6).for_each(|_| assert_eq!(client.post("/v1/checks", &body).status, 200));
    let told = page(&server);
    let said = |labels: &str| sample(&told, &format!("tidegate_rule_verdicts_total{{{labels}}}"));
    let refused = said(r#"rule="writes",endpoint="POST /api/*",mode="enforce",verdict="deny""#);
    assert_eq!(refused, 2998.0);
    let log = last_log(server);
    for (rule, refused) in [("writes", 2998), ("watched", 2999)] {
        let lines: Vec<Value> =
            lines(&log).into_iter().filter(|line| line["rule"] == rule).collect();
        let told = lines.iter().filter(|line| line["verdict"].is_string()).count() as u64;
        let suppressed: u64 = lines.iter().map(|line| line["suppressed"].as_u64().unwrap()).sum();
        assert_eq!(told + suppressed, refused, "{rule}: {log}");
        assert!((1..=40).contains(&told), "{log}");
    }
}

#[test]
fn nought_logs_none() {
    let folder = Folder::new();
    let server = serve(&folder, &["--log", "json", "--log-violations", "0"]);
    let facts =
        json!({"ip": "203.0.113.7", "api_key": API_KEY, "method": "POST", "path": "/api/x"});
    let mut client = server.client();
    (0..3).for_each(|_| _ = client.check(&facts));
    assert_eq!(client.check(&facts).status, 429);
    assert_eq!(lines(&last_log(server)), [json!(null); 0]);
}
