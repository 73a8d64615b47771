//! Snapshots: counters survive a restart, and unusable files are reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{ServerProcess, TestFolder, wait_for};

/// Sends five requests under a limit of three per day; returns how many were admitted.
fn count_admitted(server: &ServerProcess) -> usize {
    let mut client = server.client();
    let mut check = || client.check(&json!({ "user_id": "42" })).status == 200;
    (0..5).filter(|_| check()).count()
}

fn start_with_snapshot(snapshot: &Path, more: &[&str]) -> ServerProcess {
    let limit = ["--limit", "3/d by user_id using sliding_window_log", "--facts", "user_id"];
    let file = ["--snapshot", snapshot.to_str().unwrap()];
    ServerProcess::start(&[&limit[..], &file, more].concat())
}

#[test]
fn counters_survive_a_restart() {
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let server = start_with_snapshot(&snapshot, &[]);
    assert_eq!(count_admitted(&server), 3);
    server.stop();
    let mode = std::fs::metadata(&snapshot).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "accessible only to its owner");
    let server = start_with_snapshot(&snapshot, &[]);
    server.wait_for_log("counters restored");
    assert_eq!(count_admitted(&server), 0);
}

#[test]
fn periodic_snapshot_survives_a_crash() {
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let server = start_with_snapshot(&snapshot, &["--snapshot-interval", "20ms"]);
    assert_eq!(count_admitted(&server), 3);
    let written = || std::fs::metadata(&snapshot).and_then(|file| file.modified()).ok();
    // The first new snapshot may have started during the requests, the second did not.
    for _ in 0..2 {
        let before = written();
        wait_for("a new snapshot", || (written() != before).then_some(()));
    }
    drop(server);
    let restored = start_with_snapshot(&snapshot, &[]);
    assert_eq!(count_admitted(&restored), 0, "after a kill");
}

#[test]
fn damaged_snapshot_starts_with_fresh_counters() {
    let folder = TestFolder::new();
    let good = folder.path("good.snap");
    let server = start_with_snapshot(&good, &[]);
    count_admitted(&server);
    server.stop();
    let bytes = std::fs::read(&good).unwrap();
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (contents, words) in [
        (&damaged[..], "it is cut short or damaged"),
        (&bytes[..bytes.len() / 2], "it is cut short or damaged"),
        (b"", "it is not a snapshot"),
        (b"rules: []", "it is not a snapshot"),
    ] {
        let server = start_with_snapshot(&folder.write("bad.snap", contents), &[]);
        server.wait_for_log("the snapshot cannot be used; starting with empty counters");
        assert!(server.log().contains(words), "{}", server.log());
        assert_eq!(count_admitted(&server), 3, "{words}");
    }
    let server = start_with_snapshot(&folder.path("."), &[]);
    server.wait_for_log("it is not a regular file");
    let server = start_with_snapshot(&folder.path("new.snap"), &[]);
    server.wait_for_log("no snapshot yet");
    assert!(!server.log().contains("WARN"), "a missing file is normal: {}", server.log());
}

/// Regression test: a partly written file stayed behind, and the process exited with 0.
#[test]
fn failed_snapshot_sets_exit_code() {
    let folder = TestFolder::new();
    let (path, state) = (folder.path("counters.snap"), TestFolder::new());
    let secret = state.write("secret", "0123456789abcdef0123456789abcdef\n");
    // With `ulimit -f 0`, no file can grow, as on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--grpc", "off"]);
    command.args(["--admin", "off", "--limit", "3/d by user_id"]).arg("--snapshot").arg(&path);
    command.arg("--key-secret-file").arg(&secret);
    let mut server = ServerProcess::spawn(command);
    assert_eq!(server.client().check(&json!({ "user_id": "42" })).status, 200);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(3), "{}", server.log());
    server.wait_for_log("cannot write the snapshot");
    let files = std::fs::read_dir(folder.path(".")).unwrap();
    assert_eq!(files.count(), 0, "no partial file remains");
}

#[test]
fn snapshot_with_other_secret_is_ignored() {
    let folder = TestFolder::new();
    let snapshot = folder.path("counters.snap");
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef\n");
    let server = start_with_snapshot(&snapshot, &["--key-secret-file", secret.to_str().unwrap()]);
    assert_eq!(count_admitted(&server), 3);
    server.stop();
    let server = start_with_snapshot(&snapshot, &[]);
    server.wait_for_log("it was written under another key secret");
    assert_eq!(count_admitted(&server), 3);
}
