//! The socket file: its permissions, which files it replaces, and its removal.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Output;

use super::{send_check, socket_address, start_server};
use crate::support::{TestFolder, run_tidegate, utf8_text};

/// The permission bits of a file.
pub(super) fn file_mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Starts a server that cannot listen on its socket file, and returns the error message.
#[track_caller]
fn start_error(folder: &TestFolder) -> String {
    let http = socket_address(folder, "http.sock");
    let Output { status, stderr, .. } =
        run_tidegate(&["serve", "--http", &http, "--resp", "off", "--limit", "5/h"]);
    let error = utf8_text(&stderr);
    assert_eq!(status.code(), Some(3), "{error}");
    assert!(error.contains(&format!("cannot listen on {http}: ")), "{error}");
    error
}

#[test]
fn socket_mode_defaults_and_file_is_removed() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let server = start_server(&folder, &["--limit", "5/h"]);
    assert_eq!(file_mode(&path), 0o660);
    server.stop();
    assert!(!path.exists(), "the file was not removed");
    let server = start_server(&folder, &["--limit", "5/h", "--socket-mode", "0606"]);
    assert_eq!(file_mode(&path), 0o606);
    server.stop();
}

#[test]
fn stale_socket_file_is_replaced() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    // A killed server does not remove its file.
    drop(start_server(&folder, &["--limit", "5/h"]));
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let server = start_server(&folder, &["--limit", "5/h"]);
    assert_eq!(send_check(&path).status, 200);
    server.stop();
}

#[test]
fn live_socket_file_is_not_taken() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let server = start_server(&folder, &["--limit", "5/h"]);
    let error = start_error(&folder);
    assert!(error.contains("another process listens there"), "{error}");
    assert!(error.contains("--http unix:"), "{error}");
    assert_eq!(send_check(&path).status, 200, "the first server still answers");
    server.stop();
}

#[test]
fn regular_file_is_not_replaced() {
    let folder = TestFolder::new();
    let path = folder.write("http.sock", "important data");
    let error = start_error(&folder);
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"important data");
    // A link is not followed, whatever its target.
    fs::rename(&path, folder.path("file")).unwrap();
    symlink(folder.path("file"), &path).unwrap();
    start_error(&folder);
    assert_eq!(fs::read(&path).unwrap(), b"important data");
}

#[test]
fn missing_socket_folder_is_reported() {
    let folder = TestFolder::new();
    fs::remove_dir_all(folder.path("")).unwrap();
    let error = start_error(&folder);
    assert!(error.contains("mkdir -p"), "{error}");
}

/// Another process replaced the socket file with its own.
#[test]
fn foreign_socket_file_survives_shutdown() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let first = start_server(&folder, &["--limit", "5/h"]);
    fs::remove_file(&path).unwrap();
    let second = start_server(&folder, &["--limit", "5/h"]);
    first.stop();
    assert_eq!(send_check(&path).status, 200, "the file of the second server is kept");
    second.stop();
    assert!(!path.exists());
}
