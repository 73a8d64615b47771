//! One table of requests, sent through every API: all must return the same decisions and numbers.
//!
//! Each test starts its own server, so that counters start full. The clients are independent
//! programs: curl, redis-cli, and a gRPC client in Python.

use serde_json::{Value, json};
use tidegate_testkit::nginx::NginxServer;

use crate::support::{ServerProcess, TestFolder, call_grpc, run_curl, utf8_text};

/// Windows of 30 days, which Envoy calls a month: no quota is restored while the test runs.
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

/// A request: client address, API key, method and path.
type TestRequest = (&'static str, Option<&'static str>, &'static str, &'static str);

/// Whether the request is allowed, and the limit and remaining quota of the tightest rule.
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
    // In the same /64 as the second client, whose refused requests used no quota.
    (("2001:db8::8", None, "POST", "/api/x"), (true,  Some(2), Some(0))),
];

fn start_server(args: &[&str]) -> (ServerProcess, TestFolder) {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", RULES);
    (ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat()), folder)
}

/// Asserts that `/metrics` counts the requests of the table, under this listener only.
#[track_caller]
fn assert_decision_metrics(server: &ServerProcess, listener: &str) {
    let metrics = run_curl(&[&format!("http://{}/metrics", server.admin_address())]).body;
    let passed = TABLE.iter().filter(|(_, (passes, ..))| *passes).count();
    let counted: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("tidegate_decisions_total{") && !line.ends_with(" 0"))
        .collect();
    let line = |outcome: &str, count: usize| {
        let by = "answered_by=\"store\"";
        format!("tidegate_decisions_total{{api=\"{listener}\",{by},outcome=\"{outcome}\"}} {count}")
    };
    assert_eq!(counted, [line("allowed", passed), line("refused", TABLE.len() - passed)]);
}

#[track_caller]
fn assert_decisions(api: &str, mut decide: impl FnMut(TestRequest) -> ExpectedDecision) {
    for (row, (request, expected)) in TABLE.into_iter().enumerate() {
        assert_eq!(decide(request), expected, "row {row} through {api}: {request:?}");
    }
}

/// The request's facts, as names and values.
fn request_facts((ip, key, method, path): TestRequest) -> Vec<(&'static str, &'static str)> {
    let mut facts = vec![("ip", ip), ("method", method), ("path", path)];
    facts.extend(key.map(|key| ("api_key", key)));
    facts
}

/// Sends a request with curl and reads the decision from the response headers.
fn decide_by_headers(
    url: &str,
    (ip, key, method, _): TestRequest,
    more: &[String],
) -> ExpectedDecision {
    let mut headers = vec![format!("X-Forwarded-For: {ip}")];
    headers.extend(key.map(|key| format!("X-Api-Key: {key}")));
    headers.extend_from_slice(more);
    let mut args = vec!["-X", method];
    headers.iter().for_each(|header| args.extend(["-H", header]));
    args.push(url);
    let response = run_curl(&args);
    assert!([200, 429].contains(&response.status), "{response:?}");
    let number = |name| response.header(name).map(|value| value.parse().unwrap());
    (response.status == 200, number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

/// Reads the decision from a JSON response.
fn decision_from_json(body: &Value) -> ExpectedDecision {
    (body["allowed"] == true, body["limit"].as_u64(), body["remaining"].as_u64())
}

/// The request as a call of Envoy's rate limit service.
fn rate_limit_call(request: TestRequest) -> Value {
    let entries: Vec<_> = request_facts(request)
        .into_iter()
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect();
    json!({ "domain": "edge", "descriptors": [{ "entries": entries }] })
}

fn decision_from_envoy(response: &Value) -> ExpectedDecision {
    let status = &response["statuses"][0];
    let limit = status["currentLimit"]["requestsPerUnit"].as_u64();
    // The JSON form of protobuf omits zeros.
    let remaining = limit.map(|_| status["limitRemaining"].as_u64().unwrap_or_default());
    (response["overallCode"] == "OK", limit, remaining)
}

#[test]
fn gateway_matches_decision_table() {
    let app = NginxServer::start("return 200 ok;");
    let (server, _folder) = start_server(&["--gateway", "127.0.0.1:0", "--upstream", &app.url()]);
    assert_decisions("the gateway", |request| {
        decide_by_headers(&format!("http://{}{}", server.gateway, request.3), request, &[])
    });
    assert_decision_metrics(&server, "gateway");
}

#[test]
fn http_check_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    assert_decisions("POST /v1/check", |request| {
        let facts: serde_json::Map<_, _> = request_facts(request)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        let body = json!({ "facts": facts }).to_string();
        let response = run_curl(&["--data", &body, &format!("http://{}/v1/check", server.address)]);
        let number = |name| response.header(name).map(|value| value.parse().unwrap());
        let json = decision_from_json(&serde_json::from_str(&response.body).unwrap());
        let headers = (number("x-ratelimit-limit"), number("x-ratelimit-remaining"));
        assert_eq!((response.status == 200, headers.0, headers.1), json, "{response:?}");
        json
    });
    assert_decision_metrics(&server, "http");
}

#[test]
fn forward_auth_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let url = format!("http://{}/v1/forward-auth", server.address);
    assert_decisions("forward-auth", |request| {
        let original =
            [format!("X-Original-Method: {}", request.2), format!("X-Original-URI: {}", request.3)];
        decide_by_headers(&url, (request.0, request.1, "GET", ""), &original)
    });
    assert_decision_metrics(&server, "forward_auth");
}

#[test]
fn resp_check_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let port = server.resp.rsplit_once(':').unwrap().1;
    assert_decisions("TIDEGATE.CHECK", |request| {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", port, "-3", "--json", "TIDEGATE.CHECK"]);
        request_facts(request).into_iter().for_each(|(name, value)| _ = cli.args([name, value]));
        let response = utf8_text(&cli.output().unwrap().stdout);
        decision_from_json(
            &serde_json::from_str(&response).unwrap_or_else(|error| panic!("{error}: {response}")),
        )
    });
    assert_decision_metrics(&server, "resp");
}

#[test]
fn envoy_json_matches_decision_table() {
    let (server, _folder) = start_server(&[]);
    let url = format!("http://{}/json", server.address);
    assert_decisions("POST /json", |request| {
        let response = run_curl(&["--data", &rate_limit_call(request).to_string(), &url]);
        decision_from_envoy(
            &serde_json::from_str(&response.body)
                .unwrap_or_else(|error| panic!("{error}: {response:?}")),
        )
    });
    assert_decision_metrics(&server, "http");
}

#[test]
fn envoy_grpc_matches_decision_table() {
    let (server, _folder) = start_server(&["--grpc", "127.0.0.1:0"]);
    let calls: Vec<Value> = TABLE.iter().map(|(request, _)| rate_limit_call(*request)).collect();
    let answers = call_grpc(&server.grpc_address(), &calls);
    let mut answers = answers.iter();
    assert_decisions("gRPC", |_| decision_from_envoy(answers.next().unwrap()));
    assert_decision_metrics(&server, "grpc");
}
