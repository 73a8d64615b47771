//! One table of requests through every door: the same verdicts, the same numbers.
//!
//! A server of its own for each door, so that each begins with untouched counters, and clients that nobody
//! here wrote: curl, redis-cli, and a gRPC client in Python.

use serde_json::{Value, json};
use tidegate_testkit::nginx::Nginx;

use crate::support::{Folder, Server, ask_grpc, curl, text};

/// Windows of 30 days, which Envoy calls a month: nothing comes back while the test runs.
const RULES: &str = r#"
identity:
  ip: { trusted_proxies: [127.0.0.1/32] }
  api_key: { header: x-api-key }
rules:
  - { id: writes, match: { endpoint: "POST /api/*" }, key_by: ip, limit: 2/30d using fixed_window }
  - { id: key, match: { api_key: "*" }, key_by: api_key, limit: 3/30d using fixed_window }
  - { id: client, key_by: ip, limit: 6/30d using fixed_window }
  - { id: closed, match: { endpoint: "/closed" }, limit: { requests: deny } }
"#;

/// A request: from whom, with which key, what.
type Asked = (&'static str, Option<&'static str>, &'static str, &'static str);

/// What it is told: whether it passes, and the tightest rule's limit and what is left of it.
type Told = (bool, Option<u64>, Option<u64>);

const ANN: &str = "203.0.113.7";
const BOB: &str = "2001:db8::7";

#[rustfmt::skip]
const TABLE: [(Asked, Told); 13] = [
    ((ANN, None,      "GET",  "/"),           (true,  Some(6), Some(5))),
    ((ANN, None,      "POST", "/api/orders"), (true,  Some(2), Some(1))),
    ((ANN, Some("k"), "POST", "/api/orders"), (true,  Some(2), Some(0))),
    ((ANN, Some("k"), "POST", "/api/orders"), (false, Some(2), Some(0))),
    ((ANN, None,      "POST", "/api/other"),  (false, Some(2), Some(0))),
    ((ANN, Some("k"), "GET",  "/api/orders"), (true,  Some(3), Some(1))),
    ((BOB, Some("k"), "POST", "/api/orders"), (true,  Some(3), Some(0))),
    ((BOB, Some("k"), "GET",  "/"),           (false, Some(3), Some(0))),
    ((BOB, None,      "GET",  "/closed"),     (false, None,    None)),
    ((ANN, None,      "GET",  "/"),           (true,  Some(6), Some(1))),
    ((ANN, None,      "GET",  "/"),           (true,  Some(6), Some(0))),
    ((ANN, None,      "GET",  "/"),           (false, Some(6), Some(0))),
    // Of the same /64, and what was refused has cost nobody anything.
    (("2001:db8::8", None, "POST", "/api/x"), (true,  Some(2), Some(0))),
];

fn start(args: &[&str]) -> (Server, Folder) {
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", RULES);
    (Server::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat()), folder)
}

/// `/metrics` counts the table, at this door and no other.
#[track_caller]
fn assert_counted(server: &Server, door: &str) {
    let told = curl(&[&format!("http://{}/metrics", server.admin())]).body;
    let passed = TABLE.iter().filter(|(_, (passes, ..))| *passes).count();
    let counted: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("tidegate_decisions_total{") && !line.ends_with(" 0"))
        .collect();
    let line = |outcome: &str, count: usize| {
        let by = "answered_by=\"store\"";
        format!("tidegate_decisions_total{{door=\"{door}\",{by},outcome=\"{outcome}\"}} {count}")
    };
    assert_eq!(counted, [line("allowed", passed), line("refused", TABLE.len() - passed)]);
}

#[track_caller]
fn assert_table(door: &str, mut ask: impl FnMut(Asked) -> Told) {
    for (row, (asked, expected)) in TABLE.into_iter().enumerate() {
        assert_eq!(ask(asked), expected, "row {row} through {door}: {asked:?}");
    }
}

/// Facts as names and values.
fn facts((ip, key, method, path): Asked) -> Vec<(&'static str, &'static str)> {
    let mut facts = vec![("ip", ip), ("method", method), ("path", path)];
    facts.extend(key.map(|key| ("api_key", key)));
    facts
}

/// A request with curl, for doors that tell in headers.
fn by_headers(url: &str, (ip, key, method, _): Asked, more: &[String]) -> Told {
    let mut headers = vec![format!("X-Forwarded-For: {ip}")];
    headers.extend(key.map(|key| format!("X-Api-Key: {key}")));
    headers.extend_from_slice(more);
    let mut words = vec!["-X", method];
    headers.iter().for_each(|header| words.extend(["-H", header]));
    words.push(url);
    let told = curl(&words);
    assert!([200, 429].contains(&told.status), "{told:?}");
    let number = |name| told.header(name).map(|value| value.parse().unwrap());
    (told.status == 200, number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

/// A door that answers with the decision in JSON.
fn by_json(told: &Value) -> Told {
    (told["allowed"] == true, told["limit"].as_u64(), told["remaining"].as_u64())
}

/// The form of Envoy's rate limit service.
fn call(asked: Asked) -> Value {
    let entries: Vec<_> = facts(asked)
        .into_iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect();
    json!({ "domain": "edge", "descriptors": [{ "entries": entries }] })
}

fn by_envoy(told: &Value) -> Told {
    let status = &told["statuses"][0];
    let limit = status["currentLimit"]["requestsPerUnit"].as_u64();
    // Zeros are left out in this form.
    let left = limit.map(|_| status["limitRemaining"].as_u64().unwrap_or_default());
    (told["overallCode"] == "OK", limit, left)
}

#[test]
fn the_gateway() {
    let app = Nginx::start("return 200 well;");
    let (server, _folder) = start(&["--gateway", "127.0.0.1:0", "--upstream", &app.url()]);
    assert_table("the gateway", |asked| {
        by_headers(&format!("http://{}{}", server.gateway, asked.3), asked, &[])
    });
    assert_counted(&server, "gateway");
}

#[test]
fn the_http_door_and_its_headers() {
    let (server, _folder) = start(&[]);
    assert_table("POST /v1/check", |asked| {
        let facts: serde_json::Map<_, _> =
            facts(asked).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let body = json!({ "facts": facts }).to_string();
        let told = curl(&["--data", &body, &format!("http://{}/v1/check", server.address)]);
        let number = |name| told.header(name).map(|value| value.parse().unwrap());
        let json = by_json(&serde_json::from_str(&told.body).unwrap());
        let headers = (number("x-ratelimit-limit"), number("x-ratelimit-remaining"));
        assert_eq!((told.status == 200, headers.0, headers.1), json, "{told:?}");
        json
    });
    assert_counted(&server, "http");
}

#[test]
fn forward_auth() {
    let (server, _folder) = start(&[]);
    let url = format!("http://{}/v1/forward-auth", server.address);
    assert_table("forward-auth", |asked| {
        let original =
            [format!("X-Original-Method: {}", asked.2), format!("X-Original-URI: {}", asked.3)];
        by_headers(&url, (asked.0, asked.1, "GET", ""), &original)
    });
    assert_counted(&server, "forward_auth");
}

#[test]
fn the_resp_door() {
    let (server, _folder) = start(&[]);
    let port = server.resp.rsplit_once(':').unwrap().1;
    assert_table("TIDEGATE.CHECK", |asked| {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", port, "-3", "--json", "TIDEGATE.CHECK"]);
        facts(asked).into_iter().for_each(|(name, value)| _ = cli.args([name, value]));
        let told = text(&cli.output().unwrap().stdout);
        by_json(&serde_json::from_str(&told).unwrap_or_else(|why| panic!("{why}: {told}")))
    });
    assert_counted(&server, "resp");
}

#[test]
fn envoys_service_in_json() {
    let (server, _folder) = start(&[]);
    let url = format!("http://{}/json", server.address);
    assert_table("POST /json", |asked| {
        let told = curl(&["--data", &call(asked).to_string(), &url]);
        by_envoy(&serde_json::from_str(&told.body).unwrap_or_else(|why| panic!("{why}: {told:?}")))
    });
    assert_counted(&server, "http");
}

#[test]
fn envoys_service_over_grpc() {
    let (server, _folder) = start(&["--grpc", "127.0.0.1:0"]);
    let calls: Vec<Value> = TABLE.iter().map(|(asked, _)| call(*asked)).collect();
    let answers = ask_grpc(&server.grpc(), &calls);
    let mut answers = answers.iter();
    assert_table("gRPC", |_| by_envoy(answers.next().unwrap()));
    assert_counted(&server, "grpc");
}
