//! One table of requests through every door: the same verdicts, the same numbers.
//!
//! A server of its own for each door, so that each begins with untouched counters, and clients that nobody
//! here wrote: curl, redis-cli, and a gRPC client in Python.

use serde_json::{Value, json};
use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestFolder, call_grpc, run_curl, utf8_text};

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
type TestRequest = (&'static str, Option<&'static str>, &'static str, &'static str);

/// What it is told: whether it passes, and the tightest rule's limit and what is left of it.
type ExpectedDecision = (bool, Option<u64>, Option<u64>);

const FIRST_CLIENT: &str = "203.0.113.7";
const SECOND_CLIENT: &str = "2001:db8::7";

#[rustfmt::skip]
const TABLE: [(TestRequest, ExpectedDecision); 13] = [
    ((FIRST_CLIENT, None,      "GET",  "/"),           (true,  Some(6), Some(5))),
    ((FIRST_CLIENT, None,      "POST", "/api/orders"), (true,  Some(2), Some(1))),
    ((FIRST_CLIENT, Some("k"), "POST", "/api/orders"), (true,  Some(2), Some(0))),
    ((FIRST_CLIENT, Some("k"), "POST", "/api/orders"), (false, Some(2), Some(0))),
    ((FIRST_CLIENT, None,      "POST", "/api/other"),  (false, Some(2), Some(0))),
    ((FIRST_CLIENT, Some("k"), "GET",  "/api/orders"), (true,  Some(3), Some(1))),
    ((SECOND_CLIENT, Some("k"), "POST", "/api/orders"), (true,  Some(3), Some(0))),
    ((SECOND_CLIENT, Some("k"), "GET",  "/"),           (false, Some(3), Some(0))),
    ((SECOND_CLIENT, None,      "GET",  "/closed"),     (false, None,    None)),
    ((FIRST_CLIENT, None,      "GET",  "/"),           (true,  Some(6), Some(1))),
    ((FIRST_CLIENT, None,      "GET",  "/"),           (true,  Some(6), Some(0))),
    ((FIRST_CLIENT, None,      "GET",  "/"),           (false, Some(6), Some(0))),
    // Of the same /64, and what was refused has cost nobody anything.
    (("2001:db8::8", None, "POST", "/api/x"), (true,  Some(2), Some(0))),
];

fn start_server(args: &[&str]) -> (ServerProcess, TestFolder) {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", RULES);
    (ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat()), folder)
}

/// `/metrics` counts the table, at this door and no other.
#[track_caller]
fn assert_decision_metrics(server: &ServerProcess, door: &str) {
    let told = run_curl(&[&format!("http://{}/metrics", server.admin_address())]).body;
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
fn assert_decisions(door: &str, mut ask: impl FnMut(TestRequest) -> ExpectedDecision) {
    for (row, (asked, expected)) in TABLE.into_iter().enumerate() {
        assert_eq!(ask(asked), expected, "row {row} through {door}: {asked:?}");
    }
}

/// Facts as names and values.
fn request_facts((ip, key, method, path): TestRequest) -> Vec<(&'static str, &'static str)> {
    let mut facts = vec![("ip", ip), ("method", method), ("path", path)];
    facts.extend(key.map(|key| ("api_key", key)));
    facts
}

/// A request with curl, for doors that tell in headers.
fn decide_by_headers(
    url: &str,
    (ip, key, method, _): TestRequest,
    more: &[String],
) -> ExpectedDecision {
    let mut headers = vec![format!("X-Forwarded-For: {ip}")];
    headers.extend(key.map(|key| format!("X-Api-Key: {key}")));
    headers.extend_from_slice(more);
    let mut words = vec!["-X", method];
    headers.iter().for_each(|header| words.extend(["-H", header]));
    words.push(url);
    let told = run_curl(&words);
    assert!([200, 429].contains(&told.status), "{told:?}");
    let number = |name| told.header(name).map(|value| value.parse().unwrap());
    (told.status == 200, number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

/// A door that answers with the decision in JSON.
fn decision_from_json(told: &Value) -> ExpectedDecision {
    (told["allowed"] == true, told["limit"].as_u64(), told["remaining"].as_u64())
}

/// The form of Envoy's rate limit service.
fn rate_limit_call(asked: TestRequest) -> Value {
    let entries: Vec<_> = request_facts(asked)
        .into_iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect();
    json!({ "domain": "edge", "descriptors": [{ "entries": entries }] })
}

fn decision_from_envoy(told: &Value) -> ExpectedDecision {
    let status = &told["statuses"][0];
    let limit = status["currentLimit"]["requestsPerUnit"].as_u64();
    // Zeros are left out in this form.
    let left = limit.map(|_| status["limitRemaining"].as_u64().unwrap_or_default());
    (told["overallCode"] == "OK", limit, left)
}

#[test]
fn gateway_matches_decision_table() {
    let app = NginxServer::start("return 200 well;");
    let (server, _folder) = start_server(&["--gateway", "127.0.0.1:0", "--upstream", &app.url()]);
    assert_decisions("the gateway", |asked| {
        decide_by_headers(&format!("http://{}{}", server.gateway, asked.3), asked, &[])
    });
    assert_decision_metrics(&server, "gateway");
}

#[test]
fn http_check_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    assert_decisions("POST /v1/check", |asked| {
        let facts: serde_json::Map<_, _> = request_facts(asked)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let body = json!({ "facts": facts }).to_string();
        let told = run_curl(&["--data", &body, &format!("http://{}/v1/check", server.address)]);
        let number = |name| told.header(name).map(|value| value.parse().unwrap());
        let json = decision_from_json(&serde_json::from_str(&told.body).unwrap());
        let headers = (number("x-ratelimit-limit"), number("x-ratelimit-remaining"));
        assert_eq!((told.status == 200, headers.0, headers.1), json, "{told:?}");
        json
    });
    assert_decision_metrics(&server, "http");
}

#[test]
fn forward_auth_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let url = format!("http://{}/v1/forward-auth", server.address);
    assert_decisions("forward-auth", |asked| {
        let original =
            [format!("X-Original-Method: {}", asked.2), format!("X-Original-URI: {}", asked.3)];
        decide_by_headers(&url, (asked.0, asked.1, "GET", ""), &original)
    });
    assert_decision_metrics(&server, "forward_auth");
}

#[test]
fn resp_check_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let port = server.resp.rsplit_once(':').unwrap().1;
    assert_decisions("TIDEGATE.CHECK", |asked| {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", port, "-3", "--json", "TIDEGATE.CHECK"]);
        request_facts(asked).into_iter().for_each(|(name, value)| _ = cli.args([name, value]));
        let told = utf8_text(&cli.output().unwrap().stdout);
        decision_from_json(
            &serde_json::from_str(&told).unwrap_or_else(|why| panic!("{why}: {told}")),
        )
    });
    assert_decision_metrics(&server, "resp");
}

#[test]
fn envoy_json_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let url = format!("http://{}/json", server.address);
    assert_decisions("POST /json", |asked| {
        let told = run_curl(&["--data", &rate_limit_call(asked).to_string(), &url]);
        decision_from_envoy(
            &serde_json::from_str(&told.body).unwrap_or_else(|why| panic!("{why}: {told:?}")),
        )
    });
    assert_decision_metrics(&server, "http");
}

#[test]
fn envoy_grpc_matches_decision_table() {
    let (server, _folder) = start_server(&["--grpc", "127.0.0.1:0"]);
    let calls: Vec<Value> = TABLE.iter().map(|(asked, _)| rate_limit_call(*asked)).collect();
    let answers = call_grpc(&server.grpc_address(), &calls);
    let mut answers = answers.iter();
    assert_decisions("gRPC", |_| decision_from_envoy(answers.next().unwrap()));
    assert_decision_metrics(&server, "grpc");
}
