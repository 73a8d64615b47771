//! The file: who may use it, in whose place it is put, and that it goes away.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Output;

use super::{send_check, socket_address, start_server};
use crate::support::{TestFolder, run_tidegate, utf8_text};

/// The permissions of a file.
pub(super) fn file_mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Starts a server at a file where it cannot, and returns what it says.
#[track_caller]
fn start_error(folder: &TestFolder) -> String {
    let http = socket_address(folder, "http.sock");
    let Output { status, stderr, .. } =
        run_tidegate(&["serve", "--http", &http, "--resp", "off", "--limit", "5/h"]);
    let told = utf8_text(&stderr);
    assert_eq!(status.code(), Some(3), "{told}");
    assert!(told.contains(&format!("cannot listen on {http}: ")), "{told}");
    told
}

#[test]
fn socket_mode_defaults_and_file_is_removed() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let server = start_server(&folder, &["--limit", "5/h"]);
    assert_eq!(file_mode(&path), 0o660);
    server.stop();
    assert!(!path.exists(), "it was removed");
    let server = start_server(&folder, &["--limit", "5/h", "--socket-mode", "0606"]);
    assert_eq!(file_mode(&path), 0o606);
    server.stop();
}

#[test]
fn stale_socket_file_is_replaced() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    // Killed, it removes nothing.
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
    let told = start_error(&folder);
    assert!(told.contains("another process listens there"), "{told}");
    assert!(told.contains("--http unix:"), "{told}");
    assert_eq!(send_check(&path).status, 200, "who was there first goes on");
    server.stop();
}

#[test]
fn regular_file_is_not_replaced() {
    let folder = TestFolder::new();
    let path = folder.write("http.sock", "dear to somebody");
    let told = start_error(&folder);
    assert!(told.contains("no socket"), "{told}");
    assert_eq!(fs::read(&path).unwrap(), b"dear to somebody");
    // Nor is a link followed, wherever it leads.
    fs::rename(&path, folder.path("file")).unwrap();
    symlink(folder.path("file"), &path).unwrap();
    start_error(&folder);
    assert_eq!(fs::read(&path).unwrap(), b"dear to somebody");
}

#[test]
fn missing_socket_folder_is_reported() {
    let folder = TestFolder::new();
    fs::remove_dir_all(folder.path("")).unwrap();
    let told = start_error(&folder);
    assert!(told.contains("mkdir -p"), "{told}");
}

/// Somebody removed our file and put their own there.
#[test]
fn foreign_socket_file_survives_shutdown() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let first = start_server(&folder, &["--limit", "5/h"]);
    fs::remove_file(&path).unwrap();
    let second = start_server(&folder, &["--limit", "5/h"]);
    first.stop();
    assert_eq!(send_check(&path).status, 200, "it is the second's");
    second.stop();
    assert!(!path.exists());
}
