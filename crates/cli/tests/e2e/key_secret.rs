//! The secret for hashing client identities when no `--key-secret-file` is given.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    HttpTestClient, ServerProcess, SuccessorChain, TestFolder, run_tidegate, utf8_text, wait_for,
};

fn start_server(folder: &TestFolder, args: &[&str]) -> ServerProcess {
    let source = "rules: [{ id: shut, key_by: ip, limit: { requests: deny } }]";
    let rules = folder.write("rules.yaml", source);
    ServerProcess::with_config(&rules, &[&["--admin", "127.0.0.1:0"], args].concat())
}

/// Sends a refused request, and returns the client's hash once there are `violations` records.
#[track_caller]
fn client_hash(server: &ServerProcess, violations: usize) -> Value {
    assert_eq!(server.client().check(&json!({ "ip": "203.0.113.7" })).status, 429);
    let mut admin = HttpTestClient::connect(&server.admin_address());
    wait_for("the recorded violation", || {
        let body = admin.get("/v1/violations").body;
        let rows = body["violations"].as_array().unwrap();
        (rows.len() == violations).then(|| rows[0]["ip"].clone())
    })
}

#[track_caller]
fn assert_is_private_secret(path: &Path) {
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let content = std::fs::read_to_string(path).unwrap();
    let digits = content.strip_suffix('\n').unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{content}");
}

#[test]
fn snapshot_node_keeps_secret_across_restarts() {
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let args = ["--snapshot", snapshot.to_str().unwrap()];
    let server = start_server(&folder, &args);
    let hash = client_hash(&server, 1);
    let key = folder.path("counters.snap.key");
    assert_is_private_secret(&key);
    server.stop();
    let server = start_server(&folder, &args);
    assert_eq!(client_hash(&server, 1), hash, "after a restart");
    let mut successors = SuccessorChain::new(&server);
    successors.replace_process();
    assert_eq!(client_hash(&server, 1), hash, "in a successor");
    drop(successors);
    // The generated file can be used for a fleet.
    let server = start_server(&folder, &["--key-secret-file", key.to_str().unwrap()]);
    assert_eq!(client_hash(&server, 1), hash, "with --key-secret-file");
}

#[test]
fn database_node_keeps_secret_beside_database() {
    let folder = TestFolder::new();
    let database = folder.database_url();
    let args = ["--rules-db", &database];
    let server = start_server(&folder, &args);
    let hash = client_hash(&server, 1);
    assert_is_private_secret(&folder.path("tidegate.db.key"));
    server.stop();
    let snapshot = folder.path("counters.snap");
    let server =
        start_server(&folder, &[&args[..], &["--snapshot", snapshot.to_str().unwrap()]].concat());
    assert_eq!(client_hash(&server, 2), hash);
    assert!(!folder.path("counters.snap.key").exists());
}

#[test]
fn stateless_node_has_a_process_secret() {
    let folder = TestFolder::new();
    let hashes = [(); 2].map(|()| client_hash(&start_server(&folder, &[]), 1));
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn unusable_secret_file_fails_startup() {
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let startup_error = |snapshot: &Path| {
        let file = ["--snapshot", snapshot.to_str().unwrap()];
        let output = run_tidegate(
            &[&["serve", "--http", "127.0.0.1:0", "--limit", "5/h"], &file[..]].concat(),
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        utf8_text(&output.stderr).to_owned()
    };
    let key = folder.write("counters.snap.key", "5eed");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let error = startup_error(&snapshot);
    let words = ["counters.snap.key", "it holds 4 bytes", "restore it from a backup"];
    assert!(words.iter().all(|words| error.contains(words)), "{error}");
    assert!(!error.contains("5eed"), "secrets are not shown: {error}");
    std::fs::write(&key, "0".repeat(64)).unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let error = startup_error(&snapshot);
    assert!(error.contains("all users on this machine") && error.contains("chmod 600"), "{error}");
    std::fs::remove_file(&key).unwrap();
    std::fs::create_dir(&key).unwrap();
    let error = startup_error(&snapshot);
    assert!(error.contains("cannot read") && error.contains("regular file"), "{error}");
    let error = startup_error(&folder.path("no/such/folder.snap"));
    assert!(error.contains("cannot create"), "{error}");
    assert!(error.contains("--key-secret-file FILE"), "{error}");
}
