//! Rules on facts that requests do not have: what stops the start, what is reported, and where.

use serde_json::{Value, json};

use crate::office;
use crate::support::{Folder, Server, Upstream, run, text, tidegate, wait_for};

/// The document of seed 004, as it is printed there.
const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rules/tests/documents/seed_004.yaml");

const IDENTITY: &str =
    "identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }";

fn readyz(server: &Server) -> Value {
    server.client().get("/readyz").body
}

/// It used to start, and to limit no request.
#[test]
fn a_gateway_does_not_start_on_facts_that_its_requests_do_not_have() {
    let output = run(&["serve", "--config", SEED, "--upstream", "http://127.0.0.1:9"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no request at the gateway has `tier` and `api_key`"), "{told}");
    assert!(told.contains(IDENTITY), "{told}");
    let folder = Folder::new();
    let seed = std::fs::read_to_string(SEED).unwrap();
    let file = folder.write("rules.yaml", format!("{IDENTITY}\n{seed}"));
    let upstream = Upstream::start();
    let server = Server::gateway_with(&file, &["--upstream", &upstream.url()]);
    assert_eq!(server.visitor().get("/api/x").status, 200);
    assert!(server.visitor().get("/api/x").head.contains("x-ratelimit-limit: 1000"));
}

#[test]
fn the_same_document_serves_callers_of_the_api_with_a_warning() {
    let server = Server::start(&["--config", SEED]);
    server.wait_log("rules name facts that no `identity` entry supplies");
    let facts = json!({"tier": "free", "api_key": "k", "method": "POST", "path": "/api/x"});
    let body = server.client().check(&facts).body;
    assert_eq!(body["rules"].as_array().map(Vec::len), Some(2), "{body}");
    assert_eq!(readyz(&server)["status"], "ready");
}

#[test]
fn forward_auth_does_not_start_on_them_either() {
    let folder = Folder::new();
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.1/32] } }";
    let file = folder.write("rules.yaml", format!("{trusts}\nrules: [1/s by user_id]"));
    let file = file.to_str().unwrap();
    let output = run(&["serve", "--http", "127.0.0.1:0", "--resp", "off", "--config", file]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no request at forward-auth has `user_id`"), "{told}");
}

/// `--limit "2/min by api_key"` used to count by address.
#[test]
fn a_limit_by_api_key_needs_the_header_and_counts_by_it() {
    let limit = ["--limit", "2/d by api_key"];
    let output = run(&[&["serve", "--upstream", "http://127.0.0.1:9"], &limit[..]].concat());
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("write: --api-key-header x-api-key"), "{told}");
    let upstream = Upstream::start();
    let header = ["--api-key-header", "X-API-Key"];
    let server = Server::in_front_of(&upstream.url(), &[limit, header].concat());
    let ask = |key: &str| server.visitor().get_with("/", &[("x-api-key", key)]).status;
    assert_eq!([ask("a"), ask("a"), ask("a"), ask("b")], [200, 200, 429, 200]);
}

#[test]
fn facts_that_callers_bring_are_declared_on_the_command_line() {
    let unknown = run(&["serve", "--limit", "2/d by tenant"]);
    let told = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{told}");
    assert!(told.contains("no request has this fact, found `tenant`"), "{told}");
    assert!(told.contains("`--facts tenant`"), "{told}");
    let server = Server::start(&["--limit", "2/d by tenant", "--facts", "tenant,region"]);
    let mut client = server.client();
    let mut ask = |tenant: &str| client.check(&json!({ "tenant": tenant })).body["allowed"].clone();
    assert_eq!([ask("a"), ask("a"), ask("a"), ask("b")], [true, true, false, true]);
}

#[test]
fn such_a_rule_that_comes_by_reload_degrades_the_node() {
    let folder = Folder::new();
    let good = format!("{IDENTITY}\nrules: [{{ id: a, match: {{ tier: free }}, limit: 9/h }}]");
    let file = folder.write("rules.yaml", &good);
    let upstream = Upstream::start();
    let server = Server::gateway_with(&file, &["--upstream", &upstream.url()]);
    assert_eq!(readyz(&server)["status"], "ready");
    folder.write("rules.yaml", "rules: [{ id: b, match: { tier: free }, limit: 9/h }]");
    let told = wait_for("the node to be degraded", || {
        Some(readyz(&server)).filter(|told| told["status"] == "degraded")
    });
    let reason = told["facts_error"].as_str().unwrap_or_default();
    assert!(reason.contains("no request at the gateway has `tier`, named by rule `b`"), "{told}");
    assert!(reason.contains(IDENTITY), "{told}");
    assert_eq!(server.visitor().get("/").status, 200, "the gateway goes on");
    server.wait_log("rules name facts that requests do not have");
    folder.write("rules.yaml", "rules: [{ id: c, match: { teir: free }, limit: 9/h }]");
    wait_for("the typo to be refused", || {
        let told = readyz(&server)["reload_error"].clone();
        told.as_str().filter(|told| told.contains("match.teir")).map(|_| ())
    });
    folder.write("rules.yaml", &good);
    wait_for("the node to be ready", || (readyz(&server)["status"] == "ready").then_some(()));
}

#[test]
fn rules_of_the_admin_api_are_checked_alike() {
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", "rules: [{ id: a, limit: 9/h }]");
    let (upstream, database) = (Upstream::start(), folder.path("rules.db"));
    let database = format!("sqlite:{}", database.display());
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &upstream.url()];
    let args = [&["--rules-db", &database], &gateway[..]].concat();
    let server = office::serve(&rules, &args);
    let mut admin = office::admin(&server);
    let refused =
        admin.ask("POST /v1/rules", &[], r#"{"id": "t", "key_by": "userid", "limit": "1/s"}"#);
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.to_string().contains("`user_id`"), "{}", refused.body);
    let made =
        admin.ask("POST /v1/rules", &[], r#"{"id": "t", "key_by": "user_id", "limit": "1/s"}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let process = admin.get("/v1/status").body["process"].clone();
    assert_eq!(process["status"], "degraded", "{process}");
    assert!(process["facts_error"].to_string().contains("`user_id`"), "{process}");
    drop(server);
    let mut again = tidegate();
    again.args(["serve", "--http", "127.0.0.1:0", "--resp", "off"]).args(&args);
    let output = again.args(["--config", rules.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("identity: { user_id:"), "{}", text(&output.stderr));
}

/// What the command line declares goes to the database with the rules, so other nodes need no flags.
#[test]
fn declarations_of_the_command_line_are_taken_over_by_a_database() {
    let folder = Folder::new();
    let database = format!("sqlite:{}", folder.path("rules.db").display());
    let copy = folder.path("copy");
    let database = ["--rules-db", &database, "--rules-copy", copy.to_str().unwrap()];
    let limits = ["--limit", "2/d by api_key", "--limit", "5/d by tenant"];
    let declared = ["--api-key-header", "x-api-key", "--facts", "tenant"];
    let server = Server::start(&[&database[..], &limits[..], &declared[..]].concat());
    server.stop();
    let upstream = Upstream::start();
    let server = Server::in_front_of(&upstream.url(), &database);
    let ask = |key: &str| server.visitor().get_with("/", &[("x-api-key", key)]).status;
    assert_eq!([ask("a"), ask("a"), ask("a"), ask("b")], [200, 200, 429, 200]);
}

#[test]
fn config_check_warns_and_refuses_what_a_gateway_would() {
    let folder = Folder::new();
    let rules = "rules: [{ id: a, match: { tier: free }, limit: 9/h }]";
    let file = folder.write("rules.yaml", rules);
    let file = file.to_str().unwrap();
    let check = |more: &[&str]| run(&[&["config", "check", file], more].concat());
    let output = check(&[]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("warning: only callers of the APIs can bring `tier`"), "{told}");
    let list: Value = serde_json::from_str(&text(&check(&["--json"]).stdout)).unwrap();
    assert_eq!((&list[0]["level"], &list[0]["line"]), (&json!("warning"), &json!(1)), "{list}");
    folder.write("rules.yaml", format!("server: {{ upstream: 'http://127.0.0.1:9' }}\n{rules}"));
    let output = check(&[]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rules.yaml:2: no request at the gateway has `tier`"), "{told}");
    let output = check(&["--json"]);
    let list: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((output.status.code(), &list[0]["level"]), (Some(1), &json!("error")), "{list}");
}
