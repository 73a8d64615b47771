//! Doors on unix sockets, with clients that nobody here wrote: curl, redis-cli, a gRPC client in Python. Whose
//! the file is, who may use it, and when it goes away.

mod file;
mod handed_on;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tidegate_testkit::python::python;

use crate::support::programs::Fetched;
use crate::support::{Folder, Server, curl, run, text, tidegate};

/// A server whose doors are files of a folder, and which has no others.
fn start(folder: &Folder, args: &[&str]) -> Server {
    Server::spawn(command(folder, args))
}

fn command(folder: &Folder, args: &[&str]) -> Command {
    let mut command = tidegate();
    command.args(["serve", "--http", &at(folder, "http.sock")]);
    if !args.contains(&"--resp") {
        command.args(["--resp", "off"]);
    }
    command.args(args);
    command
}

fn at(folder: &Folder, name: &str) -> String {
    format!("unix:{}", folder.path(name).display())
}

/// Asks the HTTP door for a check.
fn check(file: &Path) -> Fetched {
    let socket = file.to_str().unwrap();
    let body = r#"{"facts":{"ip":"192.0.2.1"}}"#;
    curl(&["--unix-socket", socket, "--data", body, "http://tidegate/v1/check"])
}

#[test]
fn every_door_answers_on_a_file_and_says_where_it_is() {
    let folder = Folder::new();
    let [http, grpc, resp] = ["http.sock", "grpc.sock", "resp.sock"].map(|name| at(&folder, name));
    let server = start(&folder, &["--limit", "5/h by ip", "--grpc", &grpc, "--resp", &resp]);
    let lines = format!("listening http {http}\nlistening grpc {grpc}\nlistening resp {resp}\n");
    assert_eq!(server.out(), lines);

    let checked = check(&folder.path("http.sock"));
    assert_eq!((checked.status, checked.header("x-ratelimit-remaining")), (200, Some("4")));

    let mut cli = Command::new("redis-cli");
    cli.arg("-s").arg(folder.path("resp.sock")).args(["-3", "--json"]);
    let output = cli.args(["TIDEGATE.CHECK", "ip", "192.0.2.1"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["remaining"], 3, "{told}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/envoy/ask.py");
    let entry = json!({ "key": "remote_address", "value": "192.0.2.1" });
    let calls = json!([{ "domain": "edge", "descriptors": [{ "entries": [entry] }] }]);
    let output = python().arg(script).arg(&grpc).arg(calls.to_string()).output().unwrap();
    let told = text(&[output.stdout, output.stderr].concat());
    assert!(told.contains(r#""limitRemaining": 2"#), "{told}");
}

#[test]
fn the_document_and_the_environment_say_it_too() {
    let folder = Folder::new();
    let section = "server: { http: 'unix:door.sock', socket_mode: 0600 }";
    let rules = folder.write("rules.yaml", format!("{section}\nrules: [{{ limit: 5/h }}]"));
    let started = |variable: Option<&str>| {
        let mut command = tidegate();
        command.args(["serve", "--resp", "off", "--config"]).arg(&rules);
        Server::spawn({
            command.envs(variable.map(|value| ("TIDEGATE_HTTP", value)));
            command
        })
    };
    let server = started(None);
    assert_eq!(server.address, at(&folder, "door.sock"), "relative paths start at the document");
    assert_eq!(file::mode(&folder.path("door.sock")), 0o600);
    server.stop();
    let other = at(&folder, "other.sock");
    assert_eq!(started(Some(&other)).address, other);
}

#[test]
fn what_is_no_place_for_a_socket_is_a_mistake_with_advice() {
    for (wrong, advice) in [
        ("unix:", "this names no file"),
        ("unix:@hidden", "has no permissions"),
        ("/run/http.sock", "unix:/run/tidegate/http.sock"),
    ] {
        let output = crate::support::run(&["serve", "--http", wrong]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(advice), "{told}");
    }
}

#[test]
fn the_command_line_asks_over_a_unix_socket() {
    let folder = Folder::new();
    let server = start(&folder, &["--limit", "2/d by ip"]);
    let at = at(&folder, "http.sock");
    let ask = |command: &str| run(&[command, "--server", &at, "ip=192.0.2.1"]);
    let codes = [(); 3].map(|()| ask("check").status.code());
    assert_eq!(codes, [Some(0), Some(0), Some(1)], "{}", server.log());
    assert_eq!(check(&folder.path("http.sock")).status, 429, "it is one and the same server");
    assert!(text(&ask("explain").stdout).contains("refused"));
    server.stop();
    let output = ask("check");
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert!(told.contains(&format!("no answer from {at}: No such file")), "{told}");
    let output = run(&["check", "--server", "unix:http.sock", "ip=192.0.2.1"]);
    assert_eq!(output.status.code(), Some(2), "a path from the root is meant");
    let told = text(&output.stderr);
    assert!(told.contains("--server unix:/run/tidegate/http.sock"), "{told}");
}
