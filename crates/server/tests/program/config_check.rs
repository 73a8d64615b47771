//! `config check`: all that is wrong, at once, for people and for programs.

use serde_json::Value;

use crate::support::{Folder, assert_golden, run, text};

#[test]
fn a_broken_document_is_exit_code_1_with_every_problem_on_stderr() {
    let output = run(&["config", "check", "broken.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert_golden("broken.txt", &text(&output.stderr));
}

#[test]
fn with_json_the_problems_are_a_list_on_stdout() {
    let output = run(&["config", "check", "broken.yaml", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert_golden("broken.json", &told);
    let list: Vec<Value> = serde_json::from_str(&told).unwrap();
    assert!(list.iter().all(|problem| problem["line"].as_u64() > Some(0)), "{told}");
    assert!(list.iter().any(|problem| problem["field"] == "server.htpp"), "{told}");
}

#[test]
fn a_valid_document_is_exit_code_0_with_a_summary() {
    let output = run(&["config", "check", "valid.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_golden("valid.txt", &text(&output.stdout));
    let output = run(&["config", "check", "valid.yaml", "--json"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "[]\n"));
}

#[test]
fn the_built_in_example_and_all_examples_are_valid() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut files = vec![concat!(env!("CARGO_MANIFEST_DIR"), "/assets/builtin.yaml").to_owned()];
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path.to_str().unwrap().to_owned());
        }
    }
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let output = run(&["config", "check", &file]);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", text(&output.stderr));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_exit_code_3() {
    let output = run(&["config", "check", "no-such-file.yaml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("cannot read no-such-file.yaml"));
}

#[test]
fn bytes_that_are_not_utf8_are_a_problem_with_a_place() {
    let folder = Folder::new();
    let file = folder.write("latin1.yaml", b"rules:\n  - { id: caf\xE9, limit: 1/s }\n");
    let output = run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(":2:14: this is not UTF-8"), "{}", text(&output.stderr));
}

/// A public key made for the tests; it guards nothing.
const PUBLIC_KEY: &str = include_str!("../../../edge/src/extract/jwt/testdata/ed25519.pub");

#[test]
fn the_key_for_tokens_is_looked_for_beside_the_document_and_checked() {
    let folder = Folder::new();
    let document = "identity:\n  user_id:\n    jwt: { key_file: keys/jwt.pub }\n\
                    rules: [{ id: a, key_by: user_id, limit: 1/s }]\n";
    let file = folder.write("rules.yaml", document);
    let check = || run(&["config", "check", file.to_str().unwrap()]);
    let output = check();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(told.contains("keys/jwt.pub, the `key_file` of"), "{told}");

    std::fs::create_dir(folder.path("keys")).unwrap();
    for bad in ["not a key", "-----BEGIN PUBLIC KEY-----\n"] {
        folder.write("keys/jwt.pub", bad);
        let output = check();
        assert_eq!(output.status.code(), Some(1), "{bad}");
        let told = text(&output.stderr);
        assert!(told.contains("rules.yaml:3:22: identity.user_id.jwt.key_file: "), "{told}");
    }
    folder.write("keys/jwt.pub", PUBLIC_KEY);
    assert_eq!(check().status.code(), Some(0));
}
