//! `config check` reports all problems at once, as text and as JSON.

use serde_json::Value;

use crate::support::{
    TestCertificateAuthority, TestFolder, assert_golden, run_tidegate, utf8_text,
};

#[test]
fn invalid_document_lists_every_problem() {
    let output = run_tidegate(&["config", "check", "broken.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(utf8_text(&output.stdout), "");
    assert_golden("broken.txt", &utf8_text(&output.stderr));
}

#[test]
fn json_output_lists_problems_on_stdout() {
    let output = run_tidegate(&["config", "check", "broken.yaml", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json = utf8_text(&output.stdout);
    assert_golden("broken.json", &json);
    let list: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert!(list.iter().all(|problem| problem["line"].as_u64() > Some(0)), "{json}");
    assert!(list.iter().any(|problem| problem["field"] == "server.htpp"), "{json}");
}

#[test]
fn valid_document_prints_a_summary() {
    let output = run_tidegate(&["config", "check", "valid.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", utf8_text(&output.stderr));
    assert_golden("valid.txt", &utf8_text(&output.stdout));
    let output = run_tidegate(&["config", "check", "valid.yaml", "--json"]);
    assert_eq!((output.status.code(), utf8_text(&output.stdout).as_str()), (Some(0), "[]\n"));
}

#[test]
fn shipped_examples_are_valid() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut files =
        vec![concat!(env!("CARGO_MANIFEST_DIR"), "/../server/assets/builtin.yaml").to_owned()];
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path.to_str().unwrap().to_owned());
        }
    }
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let output = run_tidegate(&["config", "check", &file]);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", utf8_text(&output.stderr));
    }
}

#[test]
fn unreadable_file_exits_with_code_3() {
    let output = run_tidegate(&["config", "check", "no-such-file.yaml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(utf8_text(&output.stderr).contains("cannot read no-such-file.yaml"));
}

#[test]
fn invalid_utf8_is_reported_with_position() {
    let folder = TestFolder::new();
    let file = folder.write("latin1.yaml", b"rules:\n  - { id: caf\xE9, limit: 1/s }\n");
    let output = run_tidegate(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        utf8_text(&output.stderr).contains(":2:14: this is not UTF-8"),
        "{}",
        utf8_text(&output.stderr)
    );
}

/// A public key for tests only.
const PUBLIC_KEY: &str = include_str!("../../../identity/src/jwt/testdata/ed25519.pub");

#[test]
fn jwt_key_file_is_relative_and_checked() {
    let folder = TestFolder::new();
    let document = "identity:\n  user_id:\n    jwt: { key_file: keys/jwt.pub }\n\
                    rules: [{ id: a, key_by: user_id, limit: 1/s }]\n";
    let file = folder.write("rules.yaml", document);
    let check = || run_tidegate(&["config", "check", file.to_str().unwrap()]);
    let output = check();
    assert_eq!(output.status.code(), Some(3), "{}", utf8_text(&output.stderr));
    let errors = utf8_text(&output.stderr);
    assert!(errors.contains("keys/jwt.pub, the `key_file` of"), "{errors}");

    std::fs::create_dir(folder.path("keys")).unwrap();
    for bad in ["not a key", "-----BEGIN PUBLIC KEY-----\n"] {
        folder.write("keys/jwt.pub", bad);
        let output = check();
        assert_eq!(output.status.code(), Some(1), "{bad}");
        let errors = utf8_text(&output.stderr);
        assert!(errors.contains("rules.yaml:3:22: identity.user_id.jwt.key_file: "), "{errors}");
    }
    folder.write("keys/jwt.pub", PUBLIC_KEY);
    assert_eq!(check().status.code(), Some(0));
}

#[test]
fn summary_shows_gateway_routes_and_checks_files() {
    let folder = TestFolder::new();
    let document = "server:\n  gateway: 127.0.0.1:9080\n  upstreams:\n    \
                    api: { servers: [\"https://10.0.0.1:3000\", \"https://10.0.0.2\"], ca_file: ca.pem }\n    \
                    web: { servers: \"http://10.0.0.3:80\" }\n  routes:\n    \
                    - { host: api.example.com, path: /v1, upstream: api }\n    \
                    - { upstream: web }\n\
                    rules: [{ id: a, key_by: ip, limit: 1/s }]\n";
    let file = folder.write("rules.yaml", document);
    let check = || run_tidegate(&["config", "check", file.to_str().unwrap()]);
    let output = check();
    assert_eq!(output.status.code(), Some(3), "{}", utf8_text(&output.stderr));
    assert!(
        utf8_text(&output.stderr).contains("ca.pem for `ca_file`"),
        "{}",
        utf8_text(&output.stderr)
    );
    folder.write("ca.pem", "nonsense");
    let output = check();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        utf8_text(&output.stderr).contains("cannot use the CA certificates of"),
        "{}",
        utf8_text(&output.stderr)
    );
    let _authority = TestCertificateAuthority::create(&folder.path("."), "ca");
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{}", utf8_text(&output.stderr));
    let summary = utf8_text(&output.stdout);
    for line in [
        "gateway 127.0.0.1:9080",
        "api.example.com/v1 to https://10.0.0.1:3000, https://10.0.0.2:443",
        "/ to http://10.0.0.3:80",
    ] {
        assert!(summary.lines().any(|l| l.ends_with(&format!("  {line}"))), "{line}: {summary}");
    }
}

#[test]
fn unrouted_upstream_is_reported_with_position() {
    let folder = TestFolder::new();
    let document = "server:\n  upstreams:\n    a: { servers: \"http://10.0.0.1\" }\n    \
                    b: { servers: \"http://10.0.0.2\" }\n  routes: [{ upstream: a }]\nrules: []\n";
    let file = folder.write("rules.yaml", document);
    let output = run_tidegate(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = utf8_text(&output.stderr);
    assert!(
        errors.contains("rules.yaml:4:8: server.upstreams.b: no route uses this upstream"),
        "{errors}"
    );
    assert!(errors.contains("write: routes: [{ path: /, upstream: b }]"), "{errors}");
}

#[test]
fn document_over_one_mebibyte_is_rejected() {
    const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
    let folder = TestFolder::new();
    let rules = "rules: [{ id: a, key_by: ip, limit: 1/s }]\n#";
    // Two-byte letters, so that reading may stop in the middle of one.
    let filled = |bytes: usize| {
        let fill = bytes - rules.len();
        format!("{rules}{}{}", "x".repeat(fill % 2), "é".repeat(fill / 2))
    };
    let check = |bytes: usize| {
        let file = folder.write("rules.yaml", filled(bytes));
        run_tidegate(&["config", "check", file.to_str().unwrap()])
    };
    assert_eq!(check(MAX_DOCUMENT_BYTES).status.code(), Some(0));
    for longer in [MAX_DOCUMENT_BYTES + 1, MAX_DOCUMENT_BYTES + 2, 3 * MAX_DOCUMENT_BYTES] {
        let output = check(longer);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{longer}: {errors}");
        assert!(errors.contains("the document is larger than 1048576 bytes"), "{longer}: {errors}");
    }
}
