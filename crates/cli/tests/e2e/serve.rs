//! `serve`: its output, its listeners, and its shutdown.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{
    HttpTestClient, ServerProcess, TestFolder, run_tidegate, tidegate_command, utf8_text, wait_for,
};

#[test]
fn serve_without_arguments_prints_working_example() {
    let mut command = tidegate_command();
    command.arg("serve").env("TIDEGATE_HTTP", "127.0.0.1:0");
    let server = ServerProcess::spawn(command);
    let line = wait_for("the curl line", || {
        server.stdout().lines().find(|line| line.trim().starts_with("curl ")).map(str::to_owned)
    });
    let (_, rest) = line.split_once("http://").unwrap();
    let (address, rest) = rest.split_once("/v1/check").unwrap();
    assert_eq!(address, server.address);
    let body = rest.split('\'').nth(1).unwrap();
    let response = HttpTestClient::connect(address).post("/v1/check", body);
    assert_eq!((response.status, response.rule_ids()), (200, vec!["free-writes", "free-hourly"]));
    assert_eq!(server.client().get("/readyz").body["status"], "ready");
}

#[test]
fn stdout_has_one_line_per_listener() {
    let server = ServerProcess::start(&["--limit", "1/s"]);
    server.signal("HUP");
    server.wait_for_log("nothing changed");
    let lines = format!("listening http {}\nlistening resp {}\n", server.address, server.resp);
    assert_eq!(server.stdout(), lines);
}

#[test]
fn taken_http_port_exits_with_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run_tidegate(&["serve", "--http", &address]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(&format!("cannot listen on {address}: the port is taken")), "{errors}");
}

/// Regression test: the server moved to another port, where no client connects.
#[test]
fn taken_default_port_suggests_the_flag() {
    for (port, listener) in
        [(8080, "gateway"), (8081, "http"), (8082, "grpc"), (8083, "resp"), (8084, "admin")]
    {
        // If this fails, another process already uses the port, which serves as well.
        let _taken = TcpListener::bind(("127.0.0.1", port));
        let mut command = tidegate_command();
        command.args(["serve", "--limit", "1/s", "--upstream", "http://127.0.0.1:9"]);
        for name in ["gateway", "http", "grpc", "resp", "admin"] {
            let variable = format!("TIDEGATE_{}", name.to_uppercase());
            match name == listener {
                true => command.env_remove(variable),
                false => command.env(variable, "127.0.0.1:0"),
            };
        }
        let output = command.output().unwrap();
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{listener}: {errors}");
        for words in [
            format!(
                "cannot listen on 127.0.0.1:{port}: the default port of the {listener} listener"
            ),
            format!("--{listener} 127.0.0.1:0"),
            format!("--{listener} off"),
        ] {
            assert!(errors.contains(&words), "{listener}: {errors}");
        }
    }
}

/// Limits in the words of other programs.
#[test]
fn mistyped_limit_flag_suggests_a_limit() {
    for (limit, hint) in [
        ("100 per minute", "`100/min`"),
        ("10rps", "`10/s`"),
        ("1sec", "`100/1s`"),
        ("0/s", "at least `1/s`"),
        ("-5/s", "`5/s`"),
    ] {
        let output = run_tidegate(&["serve", "--http", "127.0.0.1:0", "--limit", limit]);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{limit}: {errors}");
        assert!(errors.contains(&format!("write: {hint}")), "{limit}: {errors}");
    }
}

#[test]
fn file_without_a_flag_suggests_config() {
    for command in ["serve", "doctor", "bench"] {
        let output = run_tidegate(&[command, "rules.yaml"]);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {errors}");
        assert!(errors.contains("write '--config rules.yaml'"), "{command}: {errors}");
    }
    let output = run_tidegate(&["serve", "rules"]);
    assert!(!utf8_text(&output.stderr).contains("--config rules"), "{output:?}");
}

#[test]
fn startup_logs_each_rule_unless_many() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", "rules:\n- { id: a, limit: 10/s burst 20, mode: shadow }\n- { id: b, key_by: global, limit: deny }\n");
    let server = ServerProcess::with_config(&file, &["--log", "json"]);
    server.wait_for_log("rules loaded");
    let rule_lines = |server: &ServerProcess| -> Vec<serde_json::Value> {
        let log = server.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &serde_json::Value| line["message"] == "rule").collect()
    };
    let logged = rule_lines(&server);
    let field = |at: usize, name: &str| logged[at][name].as_str().unwrap_or_default().to_owned();
    assert_eq!(logged.len(), 2, "{}", server.log());
    let first = ["rule", "limit", "algorithm", "mode", "key_by"].map(|name| field(0, name));
    assert_eq!(first, ["a", "10/1s burst 20", "token_bucket", "shadow", "ip"]);
    assert_eq!(["rule", "limit", "mode"].map(|name| field(1, name)), ["b", "deny", "enforce"]);
    let many: String = (0..51).map(|n| format!("- {{ id: r{n}, limit: 1/s }}\n")).collect();
    folder.write("rules.yaml", format!("rules:\n{many}"));
    let quiet = ServerProcess::with_config(&folder.path("rules.yaml"), &["--log", "json"]);
    assert_eq!(rule_lines(&quiet).len(), 0);
    let debug = ServerProcess::with_config(
        &folder.path("rules.yaml"),
        &["--log", "json", "--log-level", "debug"],
    );
    assert_eq!(rule_lines(&debug).len(), 51);
}

#[test]
fn public_listener_without_token_warns() {
    let open = |more: &[&str]| {
        let mut command = tidegate_command();
        command.args(["serve", "--http", "0.0.0.0:0", "--limit", "1/s"]).args(more);
        ServerProcess::spawn(command)
    };
    open(&[]).wait_for_log("no --admin-token-file is set");
    let folder = TestFolder::new();
    let token = folder.write("token", "0123456789abcdef\n");
    let server = open(&["--admin-token-file", token.to_str().unwrap()]);
    server.signal("HUP");
    server.wait_for_log("nothing changed");
    assert!(!server.log().contains("--admin-token-file"), "{}", server.log());
}

#[test]
fn empty_rules_start_with_a_warning() {
    let folder = TestFolder::new();
    let server = ServerProcess::with_config(&folder.write("rules.yaml", "rules: []"), &[]);
    server.wait_for_log("no active rules: every request is allowed");
    assert_eq!(server.client().check(&json!({})).status, 200);
}

#[test]
fn in_flight_request_completes_before_exit() {
    let mut server = ServerProcess::start(&["--limit", "5/h"]);
    let mut client = server.client();
    let body = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    let (first, rest) = body.split_at(10);
    client.send(&format!("{}{first}", client.request_head("POST", "/v1/check", body.len())));
    // A response on a second connection shows that the first was accepted.
    assert_eq!(server.client().get("/livez").status, 200);
    server.signal("TERM");
    server.wait_for_log("stopping");
    client.send(rest);
    let response = client.read_response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert_eq!(server.wait_for_exit().code(), Some(0));
    server.wait_for_log("stopped");
}

#[test]
fn second_signal_exits_immediately() {
    let mut server = ServerProcess::start(&["--limit", "5/h"]);
    let mut client = server.client();
    client.send(&client.request_head("POST", "/v1/check", 10));
    assert_eq!(server.client().get("/livez").status, 200);
    server.signal("INT");
    server.wait_for_log("stopping");
    server.signal("INT");
    assert_eq!(server.wait_for_exit().code(), Some(3));
    server.wait_for_log("second signal: stopping immediately");
}
