//! A gRPC client in Python, which learns the messages by reflection.

use std::process::Command;

use tidegate_testkit::python::python;

use super::repository_path;
use crate::support::{ServerProcess, TestFolder, utf8_text};

fn python_script(name: &str) -> Command {
    let mut command = python();
    command.arg(repository_path("crates/cli/tests/e2e/envoy").join(name));
    command
}

#[track_caller]
fn run_ok(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = utf8_text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn python_client_works_by_reflection() {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", include_str!("client.yaml"));
    let server = ServerProcess::with_config(&rules, &["--grpc", "127.0.0.1:0"]);
    let mut command = python_script("client.py");
    command.arg(server.grpc_address());
    assert_eq!(run_ok(command).lines().last(), Some("ok"));
}

/// The descriptors that reflection serves were compiled from the `.proto` files beside them.
/// `UPDATE_GOLDEN=1` compiles them again.
#[test]
fn descriptor_set_matches_proto_files() {
    let (folder, proto) = (TestFolder::new(), repository_path("crates/api/proto"));
    let compiled = folder.path("services.binpb");
    let mut command = python();
    command.args(["-m", "grpc_tools.protoc", "--include_imports", "-I."]).current_dir(&proto);
    command.arg(format!("--descriptor_set_out={}", compiled.display()));
    command.args([
        "envoy/service/ratelimit/v3/rls.proto",
        "grpc/health/v1/health.proto",
        "grpc/reflection/v1/reflection.proto",
        "grpc/reflection/v1alpha/reflection.proto",
    ]);
    run_ok(command);
    let compiled = std::fs::read(compiled).unwrap();
    tidegate_fixtures::golden::assert_golden(&proto.join("services.binpb"), compiled);
}

#[test]
fn health_watch_sees_shutdown_without_blocking() {
    let server = ServerProcess::start(&["--grpc", "127.0.0.1:0", "--limit", "1/s"]);
    let mut command = python_script("watch.py");
    command.arg(server.grpc_address()).arg(server.pid().to_string());
    assert_eq!(run_ok(command).lines().last(), Some("SERVING NOT_SERVING UNAVAILABLE"));
    let mut server = server;
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
}
