//! A gRPC client of another language, which learns the messages by reflection.

use std::process::Command;

use tidegate_testkit::python::python;

use super::checkout;
use crate::support::{Folder, Server, text};

fn script(name: &str) -> Command {
    let mut command = python();
    command.arg(checkout("crates/server/tests/program/envoy").join(name));
    command
}

#[track_caller]
fn well(mut command: Command) -> String {
    let output = command.output().unwrap();
    let told = text(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{told}");
    told
}

#[test]
fn a_client_in_python_finds_everything_by_reflection() {
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", include_str!("client.yaml"));
    let server = Server::with_config(&rules, &["--grpc", "127.0.0.1:0"]);
    let mut command = script("client.py");
    command.arg(server.grpc());
    assert_eq!(well(command).lines().last(), Some("well"));
}

/// What reflection tells was compiled from the `.proto` files beside it. `UPDATE_GOLDEN=1` compiles them anew.
#[test]
fn the_descriptors_are_those_of_the_proto_files() {
    let (folder, proto) = (Folder::new(), checkout("crates/edge/proto"));
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
    well(command);
    let (compiled, kept) = (std::fs::read(compiled).unwrap(), proto.join("services.binpb"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(kept, compiled).unwrap();
    }
    assert!(compiled == std::fs::read(kept).unwrap(), "services.binpb is not what the files say");
}

#[test]
fn who_watches_hears_of_the_stop_and_does_not_hold_it_up() {
    let server = Server::start(&["--grpc", "127.0.0.1:0", "--limit", "1/s"]);
    let mut command = script("watch.py");
    command.arg(server.grpc()).arg(server.pid().to_string());
    assert_eq!(well(command).lines().last(), Some("SERVING NOT_SERVING UNAVAILABLE"));
    let mut server = server;
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}
