//! The unit tests of each language, in its own runner.

use std::process::Command;

use super::application::{go_command, python_command, repository_path};

#[track_caller]
fn assert_succeeds(command: &mut Command, expected: &str) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains(expected), "no tests ran: {text}");
}

#[test]
fn python_unit_tests_pass() {
    let folder = repository_path("clients/python");
    let mut command = python_command();
    command.args(["-m", "unittest", "discover", "--start-directory", "tests"]);
    assert_succeeds(command.current_dir(folder), "\nOK");
}

#[test]
fn node_unit_tests_pass() {
    let mut command = Command::new("node");
    command.args(["--test", "test"]).current_dir(repository_path("clients/node"));
    assert_succeeds(&mut command, "# fail 0");
}

#[test]
fn go_unit_tests_pass() {
    assert_succeeds(go_command().args(["vet", "./..."]), "");
    assert_succeeds(go_command().args(["test", "./..."]), "ok  \ttidegate");
}

#[test]
fn go_code_is_formatted() {
    let output = Command::new("gofmt").arg("-l").arg(repository_path("clients/go")).output();
    let output = output.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}
