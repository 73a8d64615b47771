//! Listeners on Unix sockets, with independent clients: curl, redis-cli, and a gRPC client in
//! Python. Covers permissions, ownership and removal of the socket file.

mod socket_file;
mod socket_handover;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tidegate_testkit::python::python;

use crate::support::external_programs::CurlResponse;
use crate::support::{
    ServerProcess, TestFolder, run_curl, run_tidegate, tidegate_command, utf8_text,
};

/// A server that listens only on sockets in a folder.
fn start_server(folder: &TestFolder, args: &[&str]) -> ServerProcess {
    ServerProcess::spawn(server_command(folder, args))
}

fn server_command(folder: &TestFolder, args: &[&str]) -> Command {
    let mut command = tidegate_command();
    command.args(["serve", "--http", &socket_address(folder, "http.sock")]);
    if !args.contains(&"--resp") {
        command.args(["--resp", "off"]);
    }
    command.args(args);
    command
}

fn socket_address(folder: &TestFolder, name: &str) -> String {
    format!("unix:{}", folder.path(name).display())
}

/// Sends a check to the HTTP listener.
fn send_check(file: &Path) -> CurlResponse {
    let socket = file.to_str().unwrap();
    let body = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    run_curl(&["--unix-socket", socket, "--data", body, "http://tidegate/v1/check"])
}

#[test]
fn every_api_listens_on_unix_socket() {
    let folder = TestFolder::new();
    let [http, grpc, resp] =
        ["http.sock", "grpc.sock", "resp.sock"].map(|name| socket_address(&folder, name));
    let server = start_server(&folder, &["--limit", "5/h by ip", "--grpc", &grpc, "--resp", &resp]);
    let lines = format!("listening http {http}\nlistening grpc {grpc}\nlistening resp {resp}\n");
    assert_eq!(server.stdout(), lines);

    let checked = send_check(&folder.path("http.sock"));
    assert_eq!((checked.status, checked.header("x-ratelimit-remaining")), (200, Some("4")));

    let mut cli = Command::new("redis-cli");
    cli.arg("-s").arg(folder.path("resp.sock")).args(["-3", "--json"]);
    let output = cli.args(["TIDEGATE.CHECK", "ip", "192.0.2.1"]).output().unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["remaining"], 3, "{reply}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/envoy/call.py");
    let entry = json!({ "key": "remote_address", "value": "192.0.2.1" });
    let calls = json!([{ "domain": "edge", "descriptors": [{ "entries": [entry] }] }]);
    let output = python().arg(script).arg(&grpc).arg(calls.to_string()).output().unwrap();
    let responses = utf8_text(&[output.stdout, output.stderr].concat());
    assert!(responses.contains(r#""limitRemaining": 2"#), "{responses}");
}

#[test]
fn document_and_environment_set_unix_socket() {
    let folder = TestFolder::new();
    let section = "server: { http: 'unix:api.sock', socket_mode: 0600 }";
    let rules = folder.write("rules.yaml", format!("{section}\nrules: [{{ limit: 5/h }}]"));
    let start = |variable: Option<&str>| {
        let mut command = tidegate_command();
        command.args(["serve", "--resp", "off", "--config"]).arg(&rules);
        ServerProcess::spawn({
            command.envs(variable.map(|value| ("TIDEGATE_HTTP", value)));
            command
        })
    };
    let server = start(None);
    assert_eq!(
        server.address,
        socket_address(&folder, "api.sock"),
        "paths are relative to the document"
    );
    assert_eq!(socket_file::file_mode(&folder.path("api.sock")), 0o600);
    server.stop();
    let other = socket_address(&folder, "other.sock");
    assert_eq!(start(Some(&other)).address, other);
}

#[test]
fn invalid_socket_path_is_a_usage_error() {
    for (wrong, advice) in [
        ("unix:", "this is not the path of a file"),
        ("unix:@hidden", "has no file permissions"),
        ("/run/http.sock", "unix:/run/tidegate/http.sock"),
    ] {
        let output = crate::support::run_tidegate(&["serve", "--http", wrong]);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(advice), "{errors}");
    }
}

#[test]
fn check_command_uses_unix_socket() {
    let folder = TestFolder::new();
    let server = start_server(&folder, &["--limit", "2/d by ip"]);
    let at = socket_address(&folder, "http.sock");
    let run = |command: &str| run_tidegate(&[command, "--server", &at, "ip=192.0.2.1"]);
    let codes = [(); 3].map(|()| run("check").status.code());
    assert_eq!(codes, [Some(0), Some(0), Some(1)], "{}", server.log());
    assert_eq!(send_check(&folder.path("http.sock")).status, 429, "both use the same server");
    assert!(utf8_text(&run("explain").stdout).contains("refused"));
    server.stop();
    let output = run("check");
    assert_eq!(output.status.code(), Some(3));
    let errors = utf8_text(&output.stderr);
    assert!(errors.contains(&format!("no answer from {at}: No such file")), "{errors}");
    let output = run_tidegate(&["check", "--server", "unix:http.sock", "ip=192.0.2.1"]);
    assert_eq!(output.status.code(), Some(2), "the path must be absolute");
    let errors = utf8_text(&output.stderr);
    assert!(errors.contains("--server unix:/run/tidegate/http.sock"), "{errors}");
}
