//! Counters over a restart, and what becomes of files that are no good.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Folder, Server, wait_for};

/// How many of five requests pass under a limit of three a day.
fn passed(server: &Server) -> usize {
    let mut client = server.client();
    let mut check = || client.check(&json!({ "user_id": "42" })).status == 200;
    (0..5).filter(|_| check()).count()
}

fn start(snapshot: &Path, more: &[&str]) -> Server {
    let limit = ["--limit", "3/d by user_id using sliding_window_log", "--facts", "user_id"];
    let file = ["--snapshot", snapshot.to_str().unwrap()];
    Server::start(&[&limit[..], &file, more].concat())
}

#[test]
fn a_restart_refills_nobody() {
    let folder = Folder::new();
    let snapshot = folder.path("counters.snap");
    let server = start(&snapshot, &[]);
    assert_eq!(passed(&server), 3);
    server.stop();
    let mode = std::fs::metadata(&snapshot).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only for its owner");
    let server = start(&snapshot, &[]);
    server.wait_log("counters restored");
    assert_eq!(passed(&server), 0);
}

#[test]
fn it_is_written_now_and_then_so_that_a_crash_loses_little() {
    let folder = Folder::new();
    let snapshot = folder.path("counters.snap");
    let server = start(&snapshot, &["--snapshot-interval", "20ms"]);
    assert_eq!(passed(&server), 3);
    let written = || std::fs::metadata(&snapshot).and_then(|file| file.modified()).ok();
    // The first of two may have been begun while the requests came, the second was not.
    for _ in 0..2 {
        let before = written();
        wait_for("a new snapshot", || (written() != before).then_some(()));
    }
    drop(server);
    assert_eq!(passed(&start(&snapshot, &[])), 0, "killed, not stopped");
}

#[test]
fn a_file_that_is_no_good_is_warned_about_and_it_starts_empty() {
    let folder = Folder::new();
    let good = folder.path("good.snap");
    let server = start(&good, &[]);
    passed(&server);
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
        let server = start(&folder.write("bad.snap", contents), &[]);
        server.wait_log("the snapshot cannot be used, starting with fresh counters");
        assert!(server.log().contains(words), "{}", server.log());
        assert_eq!(passed(&server), 3, "{words}");
    }
    let server = start(&folder.path("."), &[]);
    server.wait_log("it is not a regular file");
    let server = start(&folder.path("new.snap"), &[]);
    server.wait_log("no snapshot yet");
    assert!(!server.log().contains("WARN"), "a missing file is normal: {}", server.log());
}

/// Found from outside: the file that was being written stayed, and the process ended with 0.
#[test]
fn failed_snapshot_leaves_no_file_and_is_told_by_the_exit_code() {
    let folder = Folder::new();
    let (path, state) = (folder.path("counters.snap"), Folder::new());
    let secret = state.write("secret", "0123456789abcdef0123456789abcdef\n");
    // No file can grow, which is what a full disk looks like.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--grpc", "off"]);
    command.args(["--admin", "off", "--limit", "3/d by user_id"]).arg("--snapshot").arg(&path);
    command.arg("--key-secret-file").arg(&secret);
    let mut server = Server::spawn(command);
    assert_eq!(server.client().check(&json!({ "user_id": "42" })).status, 200);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(3), "{}", server.log());
    server.wait_log("the counters are not kept: cannot write");
    let left = std::fs::read_dir(folder.path(".")).unwrap();
    assert_eq!(left.count(), 0, "nothing is left in the folder");
}

#[test]
fn a_file_made_under_another_secret_is_not_used() {
    let folder = Folder::new();
    let snapshot = folder.path("counters.snap");
    let secret = folder.write("secret", "0123456789abcdef0123456789abcdef\n");
    let server = start(&snapshot, &["--key-secret-file", secret.to_str().unwrap()]);
    assert_eq!(passed(&server), 3);
    server.stop();
    let server = start(&snapshot, &[]);
    server.wait_log("it was written under another key secret");
    assert_eq!(passed(&server), 3);
}
