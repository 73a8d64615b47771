//! Tests invalid requests: each is rejected with the name of the invalid field and charges nothing.

use serde_json::Value;

use tidegate_fixtures::server::{TEN_PER_HOUR, TestServer};

/// An invalid body, the expected status, and the field that the error must name.
type InvalidRequest = (&'static str, u16, Option<&'static str>);

const CHECK_CASES: &[InvalidRequest] = &[
    ("", 400, None),
    (" ", 400, None),
    ("nonsense", 400, None),
    ("{", 400, None),
    (r#"{"facts":{}"#, 400, None),
    (r#"{"facts":{}}}"#, 400, None),
    (r#"{"facts":{}} {}"#, 400, None),
    (r#"{"facts":{"a":"\ud800"}}"#, 400, None),
    (r#"{"facts":{"a":"\x"}}"#, 400, None),
    (r#"{"facts":{},"cost":01}"#, 400, None),
    ("null", 422, Some(".")),
    ("7", 422, Some(".")),
    (r#""facts""#, 422, Some(".")),
    ("[{},1]", 422, Some(".")),
    ("{}", 422, Some("facts")),
    (r#"{"cost":1}"#, 422, Some("facts")),
    (r#"{"facts":{},"csot":1}"#, 422, Some("csot")),
    (r#"{"facts":{},"rule":"ten"}"#, 422, Some("rule")),
    (r#"{"facts":{},"facts":{}}"#, 422, Some("facts")),
    (r#"{"facts":{},"cost":1,"cost":1}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":0}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":-1}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":1.5}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":1.0}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":1e3}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":1e999}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":4294967296}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":18446744073709551616}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":"1"}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":true}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":null}"#, 422, Some("cost")),
    (r#"{"facts":{},"cost":[1]}"#, 422, Some("cost")),
    (r#"{"facts":null}"#, 422, Some("facts")),
    (r#"{"facts":[]}"#, 422, Some("facts")),
    (r#"{"facts":"ip"}"#, 422, Some("facts")),
    (r#"{"facts":{"a":null}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":[]}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":{"b":"c"}}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":1.5}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":18446744073709551616}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":"1","b":"2","a":"1"}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"a":"1","\u0061":"2"}}"#, 422, Some("facts.a")),
    (r#"{"facts":{"":"x"}}"#, 422, Some("facts.")),
    (r#"{"facts":{"ip":"203.0.113"}}"#, 422, Some("facts.ip")),
    (r#"{"facts":{"ip":"203.0.113.7:80"}}"#, 422, Some("facts.ip")),
    (r#"{"facts":{"ip":""}}"#, 422, Some("facts.ip")),
    (r#"{"facts":{"ip":7}}"#, 422, Some("facts.ip")),
    (r#"{"facts":{"method":"GET /"}}"#, 422, Some("facts.method")),
    (r#"{"facts":{"path":"api"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/a%2Fb"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/a%00"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/a\u0000"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/a\\b"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/%zz"}}"#, 422, Some("facts.path")),
    (r#"{"facts":{"path":"/%ff"}}"#, 422, Some("facts.path")),
];

const BATCH_CASES: &[InvalidRequest] = &[
    ("{}", 422, Some("checks")),
    (r#"{"checks":{}}"#, 422, Some("checks")),
    (r#"{"checks":[{}]}"#, 422, Some("checks[0].facts")),
    (
        r#"{"checks":[{"facts":{}},{"facts":{}},{"facts":{}},{"facts":{},"cost":0}]}"#,
        422,
        Some("checks[3].cost"),
    ),
    (r#"{"checks":[{"facts":{}},{"facts":{"ip":"x"}}]}"#, 422, Some("checks[1].facts.ip")),
    (r#"{"checks":[{"facts":{}},{"facts":{},"x":1}]}"#, 422, Some("checks[1].x")),
    (r#"{"checks":[{"facts":{}},7]}"#, 422, Some("checks[1]")),
    (r#"{"checks":[[{},1]]}"#, 422, Some("checks[0]")),
    (r#"{"checks":[{"facts":{}}],"x":1}"#, 422, Some("x")),
    (r#"{"checks":[{"facts":{}}]"#, 400, None),
];

const OTHER_CASES: &[(&str, InvalidRequest)] = &[
    ("/v1/peek", (r#"{"facts":{},"cost":0}"#, 422, Some("cost"))),
    ("/v1/peek", (r#"{"facts":{},"rule":7}"#, 422, Some("rule"))),
    ("/v1/peek", (r#"{"facts":{},"rule":"none"}"#, 404, Some("rule"))),
    ("/v1/refund", (r#"{"facts":{},"charged_at_us":-1}"#, 422, Some("charged_at_us"))),
    ("/v1/refund", (r#"{"facts":{},"rule":"none"}"#, 404, Some("rule"))),
    ("/v1/reset", (r#"{"facts":{},"cost":1}"#, 422, Some("cost"))),
    ("/v1/reset", (r#"{"facts":{},"rule":"none"}"#, 404, Some("rule"))),
    ("/v1/counters", (r#"{"facts":{},"cost":1}"#, 422, Some("cost"))),
    ("/v1/counters", (r#"{"facts":{},"rule":"none"}"#, 404, Some("rule"))),
    ("/v1/explain", (r#"{"facts":{},"rule":"ten"}"#, 422, Some("rule"))),
    ("/v1/explain", (r#"{"facts":{"ip":"x"}}"#, 422, Some("facts.ip"))),
];

#[tokio::test]
async fn invalid_field_is_named_and_uncharged() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let check = CHECK_CASES.iter().map(|case| ("/v1/check", *case));
    let checks = BATCH_CASES.iter().map(|case| ("/v1/checks", *case));
    for (path, (body, status, field)) in check.chain(checks).chain(OTHER_CASES.iter().copied()) {
        assert_rejected(&server, path, body.as_bytes(), status, field).await;
    }
}

#[tokio::test]
async fn oversized_input_is_rejected_and_uncharged() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let long = "x".repeat(8 * 1024 + 1);
    let many =
        |count: usize| (0..count).map(|n| format!(r#""{n}":"x""#)).collect::<Vec<_>>().join(",");
    let check = |facts: &str| format!(r#"{{"facts":{{{facts}}}}}"#);
    let batch = |count| format!(r#"{{"checks":[{}]}}"#, vec![r#"{"facts":{}}"#; count].join(","));
    let name = &long[..129];

    let named = format!(r#""{name}":"x""#);
    let field = format!("facts.{name}");
    assert_rejected(&server, "/v1/check", check(&named).as_bytes(), 422, Some(&field)).await;
    let valued = format!(r#""a":"{long}""#);
    assert_rejected(&server, "/v1/check", check(&valued).as_bytes(), 422, Some("facts.a")).await;
    assert_rejected(&server, "/v1/check", check(&many(65)).as_bytes(), 422, Some("facts")).await;
    assert_rejected(&server, "/v1/checks", batch(1001).as_bytes(), 422, Some("checks")).await;
    assert_rejected(&server, "/v1/check", b"{\"facts\":{\"a\":\"\xff\"}}", 400, None).await;
    assert_rejected(&server, "/v1/check", "[".repeat(60_000).as_bytes(), 422, Some(".")).await;
    let deep = format!(r#"{{"facts":{{"a":{}"#, "[".repeat(60_000));
    assert_rejected(&server, "/v1/check", deep.as_bytes(), 422, Some("facts.a")).await;

    let answer = server.connect().await.post("/v1/check", &check(&many(64))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn syntax_error_reports_line_and_column() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let answer = server.connect().await.post("/v1/check", "{\"facts\":{},\n \"cost\" 1}").await;
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("line 2 column 9"), "{detail}");
    let answer = server.connect().await.request("POST", "/v1/check", b"{\"facts\xff").await;
    assert!(answer.body.contains("at byte 7"), "{}", answer.body);
}

#[tokio::test]
async fn batch_of_thousand_checks_is_accepted() {
    let server = TestServer::start(TEN_PER_HOUR).await;
    let body = format!(r#"{{"checks":[{}]}}"#, vec![r#"{"facts":{}}"#; 1000].join(","));
    let answer = server.connect().await.post("/v1/checks", &body).await;
    let results = answer.json()["results"].as_array().unwrap().clone();
    let allowed: Vec<bool> = results.iter().map(|r| r["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed.len(), 1000);
    assert!(allowed[..10].iter().all(|allowed| *allowed) && !allowed[10..].contains(&true));
}

#[tokio::test]
async fn integer_and_boolean_facts_match_as_text() {
    let rules = r#"{ facts: [n, b], rules: [{ id: ten, match: { n: "-7", b: "true" }, key_by: global, limit: 10/h }] }"#;
    let server = TestServer::start(rules).await;
    let answer = server.connect().await.post("/v1/check", r#"{"facts":{"n":-7,"b":true}}"#).await;
    assert_eq!(answer.json()["rule"], Value::from("ten"));
}

async fn assert_rejected(
    server: &TestServer,
    path: &str,
    body: &[u8],
    status: u16,
    field: Option<&str>,
) {
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    let answer = server.connect().await.request("POST", path, body).await;
    assert_eq!(answer.status, status, "{path} {shown}\n{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown}");
    let problem = answer.json();
    assert_eq!(problem["status"], Value::from(status), "{shown}");
    assert_eq!(problem.get("field").and_then(Value::as_str), field, "{path} {shown}\n{problem}");
    assert!(!problem["detail"].as_str().unwrap().is_empty(), "{shown}");
    assert!(answer.body.len() < 1500, "an error repeats only part of the input: {shown}");
    assert_eq!(server.remaining().await, 10, "charged by {path} {shown}");
}
