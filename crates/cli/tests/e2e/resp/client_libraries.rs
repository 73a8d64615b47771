//! redis-py, ioredis and node-redis, which `cargo xtask setup` installs. Their scripts are in
//! `tests/clients`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::python::python;

use super::{RULES, resp_port};
use crate::support::{ServerProcess, TestFolder, utf8_text};

fn script_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// A program that is killed after a minute: some clients retry forever if they reject a server.
fn command_with_timeout(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(program);
    command
}

#[track_caller]
fn run_json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let (text, error) = (utf8_text(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{error}");
    serde_json::from_str(text.trim()).unwrap_or_else(|invalid| panic!("{invalid}: {text}\n{error}"))
}

fn run_redis_py(server: &ServerProcess, password: &str) -> Value {
    run_json(
        command_with_timeout(python().get_program())
            .arg(script_path("redis_py.py"))
            .args([resp_port(server), password]),
    )
}

fn run_node_script(server: &ServerProcess, name: &str, password: &str) -> Value {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/node/node_modules");
    assert!(modules.exists(), "{} is missing: run `cargo xtask setup`", modules.display());
    let mut node = command_with_timeout("node");
    run_json(
        node.env("NODE_PATH", modules).arg(script_path(name)).args([resp_port(server), password]),
    )
}

/// Asserts that three requests pass and the fourth must wait, and the replies in each layout.
#[track_caller]
fn assert_throttled(report: &Value) {
    let throttle = report["throttle"].as_array().unwrap();
    let verdicts: Vec<_> = throttle.iter().map(|reply| reply[0].as_i64().unwrap()).collect();
    assert_eq!(verdicts, [0, 0, 0, 1], "{report}");
    assert_eq!(throttle[0], json!([0, 3, 2, -1, 3600]), "{report}");
    assert_eq!((&report["peek"][1], &report["peek"][2]), (&json!(3), &json!(0)), "{report}");
    assert_eq!(report["crab"], json!([1, 2, 1, 3600, 0]), "{report}");
    assert_eq!(report["pipeline"], 10, "{report}");
    let unknown = report["unknown"].as_str().unwrap().to_lowercase();
    assert!(unknown.contains("unknown command 'get'"), "{report}");
}

#[track_caller]
fn assert_checked(report: &Value, allowed: &Value) {
    let check = &report["check"];
    assert_eq!((&check["allowed"], &check["remaining"]), (allowed, &json!(9)), "{report}");
    assert_eq!(check["answered_by"], "store", "{report}");
}

#[test]
fn redis_py_works_with_resp2_and_resp3() {
    let server = ServerProcess::start(RULES);
    let report = run_redis_py(&server, "");
    assert_throttled(&report["resp3"]);
    assert_checked(&report["resp3"], &json!(true));
    assert_eq!(report["resp3"]["name"], "worker");
    // The buckets are used up by now; the counters of rules were reset.
    assert_checked(&report["resp2"], &json!(1));
    assert_eq!(report["resp2"]["pipeline"], 0);
    assert_eq!(report["crowd"], 100, "of 400");
}

#[test]
fn ioredis_passes_its_ready_check() {
    let server = ServerProcess::start(RULES);
    let report = run_node_script(&server, "ioredis.cjs", "");
    assert_eq!((&report["ping"], &report["quit"]), (&json!("PONG"), &json!("OK")));
    assert_throttled(&report);
    assert!(report["check"].to_string().contains("answered_by"), "{report}");
}

#[test]
fn node_redis_completes_its_handshake() {
    let server = ServerProcess::start(RULES);
    let report = run_node_script(&server, "node_redis.cjs", "");
    assert_throttled(&report);
    assert!(report["check"].to_string().contains("answered_by"), "{report}");
}

#[test]
fn client_libraries_authenticate_with_token() {
    let folder = TestFolder::new();
    let token = folder.write("token", "0123456789abcdef\n");
    let args = [RULES, &["--admin-token-file", token.to_str().unwrap()]].concat();
    let server = ServerProcess::start(&args);
    assert_throttled(&run_redis_py(&server, "0123456789abcdef")["resp3"]);
    assert_throttled(&run_node_script(&server, "ioredis.cjs", "0123456789abcdef"));
    assert_throttled(&run_node_script(&server, "node_redis.cjs", "0123456789abcdef"));
}
