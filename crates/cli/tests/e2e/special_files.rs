//! Settings and documents that name devices, pipes, folders, huge files, or links to these. The
//! server refuses to read them, never blocks on them, and still exits at a signal.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::control_plane::{admin_client, start_server};
use crate::support::{
    ServerProcess, TestFolder, run_tidegate, tidegate_command, utf8_text, wait_for,
};

const RULES: &str = "rules: [{ id: a, key_by: ip, limit: 10/s }]\n";

/// A public key for tests only.
const PUBLIC_KEY: &str = include_str!("../../../identity/src/jwt/testdata/ed25519.pub");

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Creates files that are not regular files of reasonable size, and returns their paths.
fn create_special_files(folder: &TestFolder) -> Vec<PathBuf> {
    make_fifo(&folder.path("fifo"));
    fs::create_dir(folder.path("folder")).unwrap();
    File::create(folder.path("huge")).unwrap().set_len(1 << 33).unwrap();
    // The file remains after its listener is closed.
    drop(UnixListener::bind(folder.path("socket")).unwrap());
    let links = [
        ("to-fifo", "fifo"),
        ("to-folder", "folder"),
        ("to-device", "/dev/ptmx"),
        ("to-nothing", "nothing"),
        ("to-itself", "to-itself"),
    ];
    for (name, target) in links {
        symlink(target, folder.path(name)).unwrap();
    }
    let names = ["fifo", "folder", "huge", "socket", "missing"];
    let names = names.into_iter().chain(links.map(|(name, _)| name));
    let devices = ["/dev/ptmx", "/dev/zero", "/dev/tty", "/proc/kmsg"];
    names.map(|name| folder.path(name)).chain(devices.map(PathBuf::from)).collect()
}

fn document_with_key_file(path: &Path) -> String {
    format!("identity: {{ user_id: {{ jwt: {{ key_file: {path:?} }} }} }}\n{RULES}")
}

/// The errors in a document, without the path that it contains.
fn document_errors(server: &ServerProcess, line: &str, document: &str) -> Value {
    let mut body = admin_client(server).request(line, &[("if-match", "*")], document).body;
    let errors = body["errors"].as_array_mut().unwrap_or_else(|| panic!("{line} {document}"));
    errors[0].as_object_mut().unwrap().remove("found");
    json!(errors)
}

/// Regression test: such a request stopped every listener, and the response showed whether a file
/// exists.
#[test]
fn requests_cannot_read_unconfigured_files() {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", RULES);
    // Requests may change rules only in a database.
    let server = start_server(&rules, &["--rules-db", &folder.database_url()]);
    let mut files = create_special_files(&folder);
    files.push(folder.write("jwt.pub", PUBLIC_KEY));
    files.push("/etc/hostname".into());
    let mut responses = Vec::new();
    for file in &files {
        for line in ["POST /v1/validate", "PUT /v1/document"] {
            responses.push(document_errors(&server, line, &document_with_key_file(file)));
        }
        assert_eq!(server.client().get("/livez").status, 200, "after {file:?}");
    }
    let message = responses[0][0]["message"].as_str().unwrap();
    assert!(message.contains("this node's configuration does not name this file"), "{message}");
    assert!(responses.iter().all(|errors| *errors == responses[0]), "{responses:#?}");
    server.stop();
}

#[test]
fn requests_may_use_configured_key_file() {
    let folder = TestFolder::new();
    let key = folder.write("jwt.pub", PUBLIC_KEY);
    let other = folder.write("other.pub", PUBLIC_KEY);
    let server = start_server(&folder.write("rules.yaml", document_with_key_file(&key)), &[]);
    let validate =
        |key: &Path| admin_client(&server).post("/v1/validate", &document_with_key_file(key)).body;
    assert_eq!(validate(&key)["valid"], true);
    assert_eq!(validate(Path::new("jwt.pub"))["valid"], true, "relative to the rules file");
    assert_eq!(validate(&other)["valid"], false);
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let folder = TestFolder::new();
    let files = create_special_files(&folder);
    let refused = |args: &[&str], file: &Path| {
        let output = run_tidegate(args);
        let code = output.status.code();
        assert!(matches!(code, Some(1 | 3)), "{args:?} with {file:?}: {output:?}");
        assert!(!utf8_text(&output.stderr).is_empty(), "{args:?} with {file:?}");
    };
    for file in &files {
        let document = folder.write("rules.yaml", document_with_key_file(file));
        refused(&["config", "check", document.to_str().unwrap()], file);
    }
    for file in ["fifo", "to-device", "huge"].map(|name| folder.path(name)) {
        let path = file.to_str().unwrap();
        refused(&["config", "check", path], &file);
        refused(&["serve", "--config", path], &file);
        refused(&["serve", "--admin-token-file", path], &file);
        refused(&["serve", "--key-secret-file", path], &file);
        refused(&["serve", "--rules-db", &format!("sqlite:{path}")], &file);
        let store = ["--store", "redis://127.0.0.1:1", "--store-password-file", path];
        refused(&[&["serve"], &store[..]].concat(), &file);
        let gateway = ["--upstream", "http://127.0.0.1:1", "--tls-cert", path, "--tls-key", path];
        refused(&[&["serve"], &gateway[..]].concat(), &file);
    }
}

#[test]
fn key_file_replaced_by_fifo_is_ignored() {
    let folder = TestFolder::new();
    let key = folder.write("jwt.pub", PUBLIC_KEY);
    let server = start_server(&folder.write("rules.yaml", document_with_key_file(&key)), &[]);
    make_fifo(&folder.path("pipe"));
    fs::rename(folder.path("pipe"), &key).unwrap();
    server.wait_for_log("it is not a regular file");
    let valid =
        admin_client(&server).post("/v1/validate", &document_with_key_file(&key)).body["valid"]
            .clone();
    assert_eq!(valid, false);
    assert_eq!(server.client().get("/readyz").body["status"], "degraded");
    server.stop();
}

/// A FIFO in place of a snapshot neither blocks the server nor is replaced.
#[test]
fn snapshot_does_not_replace_a_fifo() {
    let folder = TestFolder::new();
    let path = folder.path("counters.snap");
    make_fifo(&path);
    let mut server = ServerProcess::start(&["--snapshot", path.to_str().unwrap()]);
    server.wait_for_log("it is not a regular file");
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(3), "the snapshot failed");
    server.wait_for_log("cannot write the snapshot");
    assert!(!fs::metadata(&path).unwrap().is_file(), "the FIFO was replaced");
}

/// Regression test: while all threads were blocked, only SIGKILL ended the process. Here they block
/// because no process reads the log.
#[test]
fn second_signal_ends_a_blocked_process() {
    let folder = TestFolder::new();
    let log = folder.path("log");
    make_fifo(&log);
    // Opened for reading too: a FIFO without a reader would block the open.
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        let flags = flags.bits().cast_signed();
        options.read(true).write(true).custom_flags(flags).open(&log).unwrap()
    };
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off"]);
    let mut server = ServerProcess::spawn_logging_to(command, Stdio::from(open(OFlags::empty())));
    let mut full = open(OFlags::NONBLOCK);
    for size in [4096, 1] {
        while match full.write(&vec![b'\n'; size]) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        } {}
    }
    server.signal("TERM");
    let status = || server.client().get("/readyz").body["status"].clone();
    wait_for("the first signal", || (status() == "draining").then_some(()));
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(3));
}

/// Regression test: 295 MB of log in four seconds. The file watcher logged a line for each write in
/// the folder, including the writes of those lines.
#[test]
fn log_in_watched_folder_triggers_no_reload() {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", RULES);
    let log = File::create(folder.path("tidegate.log")).unwrap();
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "off", "--log-level", "trace"]);
    command.arg("--config").arg(rules);
    let server = ServerProcess::spawn_logging_to(command, Stdio::from(log));
    let log = || fs::read_to_string(folder.path("tidegate.log")).unwrap();
    server.signal("HUP");
    wait_for("the reload by signal", || log().contains("nothing changed").then_some(()));
    assert!(!log().contains("inotify event"), "{}", log());
}
