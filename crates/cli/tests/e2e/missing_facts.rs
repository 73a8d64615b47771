//! Rules on facts that requests do not have: which fail the start, and where others are reported.

use serde_json::{Value, json};

use crate::control_plane;
use crate::support::{
    RecordingUpstream, ServerProcess, TestFolder, run_tidegate, tidegate_command, utf8_text,
    wait_for,
};

/// A document with rules on facts that only API callers can supply.
const DOCUMENT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../rules/tests/testdata/config_service.yaml");

const IDENTITY: &str =
    "identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }";

fn readyz_body(server: &ServerProcess) -> Value {
    server.client().get("/readyz").body
}

/// Regression test: the gateway started, and limited no request.
#[test]
fn gateway_rejects_rules_on_missing_facts() {
    let output = run_tidegate(&["serve", "--config", DOCUMENT, "--upstream", "http://127.0.0.1:9"]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no request at the gateway supplies `tier` and `api_key`"), "{errors}");
    assert!(errors.contains(IDENTITY), "{errors}");
    let folder = TestFolder::new();
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let file = folder.write("rules.yaml", format!("{IDENTITY}\n{document}"));
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway_with_config(&file, &["--upstream", &upstream.url()]);
    assert_eq!(server.gateway_client().get("/api/x").status, 200);
    assert!(server.gateway_client().get("/api/x").head.contains("x-ratelimit-limit: 1000"));
}

#[test]
fn decision_api_warns_about_undeclared_facts() {
    let server = ServerProcess::start(&["--config", DOCUMENT]);
    server.wait_for_log("rules use facts that no `identity` entry supplies");
    let facts = json!({"tier": "free", "api_key": "k", "method": "POST", "path": "/api/x"});
    let body = server.client().check(&facts).body;
    assert_eq!(body["rules"].as_array().map(Vec::len), Some(2), "{body}");
    assert_eq!(readyz_body(&server)["status"], "ready");
}

#[test]
fn forward_auth_rejects_rules_on_missing_facts() {
    let folder = TestFolder::new();
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.1/32] } }";
    let file = folder.write("rules.yaml", format!("{trusts}\nrules: [1/s by user_id]"));
    let file = file.to_str().unwrap();
    let output =
        run_tidegate(&["serve", "--http", "127.0.0.1:0", "--resp", "off", "--config", file]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("no request at forward-auth supplies `user_id`"), "{errors}");
}

/// Regression test: `--limit "2/min by api_key"` counted by address.
#[test]
fn api_key_limit_requires_key_header() {
    let limit = ["--limit", "2/d by api_key"];
    let output =
        run_tidegate(&[&["serve", "--upstream", "http://127.0.0.1:9"], &limit[..]].concat());
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("write: --api-key-header x-api-key"), "{errors}");
    let upstream = RecordingUpstream::start();
    let header = ["--api-key-header", "X-API-Key"];
    let server = ServerProcess::start_gateway(&upstream.url(), &[limit, header].concat());
    let send = |key: &str| server.gateway_client().get_with("/", &[("x-api-key", key)]).status;
    assert_eq!([send("a"), send("a"), send("a"), send("b")], [200, 200, 429, 200]);
}

#[test]
fn custom_facts_are_declared_by_flag() {
    let unknown = run_tidegate(&["serve", "--limit", "2/d by tenant"]);
    let errors = utf8_text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{errors}");
    assert!(errors.contains("no request has this fact, found `tenant`"), "{errors}");
    assert!(errors.contains("`--facts tenant`"), "{errors}");
    let server = ServerProcess::start(&["--limit", "2/d by tenant", "--facts", "tenant,region"]);
    let mut client = server.client();
    let mut send =
        |tenant: &str| client.check(&json!({ "tenant": tenant })).body["allowed"].clone();
    assert_eq!([send("a"), send("a"), send("a"), send("b")], [true, true, false, true]);
}

#[test]
fn reloaded_rule_on_missing_fact_degrades_node() {
    let folder = TestFolder::new();
    let good = format!("{IDENTITY}\nrules: [{{ id: a, match: {{ tier: free }}, limit: 9/h }}]");
    let file = folder.write("rules.yaml", &good);
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway_with_config(&file, &["--upstream", &upstream.url()]);
    assert_eq!(readyz_body(&server)["status"], "ready");
    let missing = "rules: [{ id: b, match: { tier: free }, limit: 9/h }]";
    folder.replace_atomically("rules.yaml", missing);
    let body = wait_for("the node to be degraded", || {
        Some(readyz_body(&server)).filter(|body| body["status"] == "degraded")
    });
    let reason = body["facts_error"].as_str().unwrap_or_default();
    assert!(
        reason.contains("no request at the gateway supplies `tier`, used by rule `b`"),
        "{body}"
    );
    assert!(reason.contains(IDENTITY), "{body}");
    assert_eq!(server.gateway_client().get("/").status, 200, "the gateway still serves");
    server.wait_for_log("rules use facts that requests do not supply");
    folder.write("rules.yaml", "rules: [{ id: c, match: { teir: free }, limit: 9/h }]");
    wait_for("the typo to be refused", || {
        let error = readyz_body(&server)["reload_error"].clone();
        error.as_str().filter(|error| error.contains("match.teir")).map(|_| ())
    });
    folder.write("rules.yaml", &good);
    wait_for("the node to be ready", || (readyz_body(&server)["status"] == "ready").then_some(()));
}

#[test]
fn admin_api_rules_are_checked_for_facts() {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, limit: 9/h }]");
    let (upstream, database) = (RecordingUpstream::start(), folder.path("rules.db"));
    let database = format!("sqlite:{}", database.display());
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &upstream.url()];
    let args = [&["--rules-db", &database], &gateway[..]].concat();
    let server = control_plane::start_server(&rules, &args);
    let mut admin = control_plane::admin_client(&server);
    let refused =
        admin.request("POST /v1/rules", &[], r#"{"id": "t", "key_by": "userid", "limit": "1/s"}"#);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.to_string().contains("`user_id`"), "{}", refused.body);
    let made =
        admin.request("POST /v1/rules", &[], r#"{"id": "t", "key_by": "user_id", "limit": "1/s"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let process = admin.get("/v1/status").body["process"].clone();
    assert_eq!(process["status"], "degraded", "{process}");
    assert!(process["facts_error"].to_string().contains("`user_id`"), "{process}");
    drop(server);
    let mut again = tidegate_command();
    again.args(["serve", "--http", "127.0.0.1:0", "--resp", "off"]).args(&args);
    let output = again.args(["--config", rules.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", utf8_text(&output.stderr));
    assert!(
        utf8_text(&output.stderr).contains("identity: { user_id:"),
        "{}",
        utf8_text(&output.stderr)
    );
}

/// The database stores declarations of the command line with the rules: other nodes need no flags.
#[test]
fn database_stores_command_line_declarations() {
    let folder = TestFolder::new();
    let database = format!("sqlite:{}", folder.path("rules.db").display());
    let copy = folder.path("copy");
    let database = ["--rules-db", &database, "--rules-copy", copy.to_str().unwrap()];
    let limits = ["--limit", "2/d by api_key", "--limit", "5/d by tenant"];
    let declared = ["--api-key-header", "x-api-key", "--facts", "tenant"];
    let server = ServerProcess::start(&[&database[..], &limits[..], &declared[..]].concat());
    server.stop();
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway(&upstream.url(), &database);
    let send = |key: &str| server.gateway_client().get_with("/", &[("x-api-key", key)]).status;
    assert_eq!([send("a"), send("a"), send("a"), send("b")], [200, 200, 429, 200]);
}

#[test]
fn config_check_reports_missing_facts() {
    let folder = TestFolder::new();
    let rules = "rules: [{ id: a, match: { tier: free }, limit: 9/h }]";
    let file = folder.write("rules.yaml", rules);
    let file = file.to_str().unwrap();
    let check = |more: &[&str]| run_tidegate(&[&["config", "check", file], more].concat());
    let output = check(&[]);
    let summary = utf8_text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{summary}");
    assert!(summary.contains("warning: only API callers can supply `tier`"), "{summary}");
    let list: Value = serde_json::from_str(&utf8_text(&check(&["--json"]).stdout)).unwrap();
    assert_eq!((&list[0]["level"], &list[0]["line"]), (&json!("warning"), &json!(1)), "{list}");
    folder.write("rules.yaml", format!("server: {{ upstream: 'http://127.0.0.1:9' }}\n{rules}"));
    let output = check(&[]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("rules.yaml:2: no request at the gateway supplies `tier`"), "{errors}");
    let output = check(&["--json"]);
    let list: Value = serde_json::from_str(&utf8_text(&output.stdout)).unwrap();
    assert_eq!((output.status.code(), &list[0]["level"]), (Some(1), &json!("error")), "{list}");
}
