//! The file: who may use it, in whose place it is put, and that it goes away.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Output;

use super::{at, check, start};
use crate::support::{Folder, run, text};

/// The permissions of a file.
pub(super) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Starts a server at a file where it cannot, and returns what it says.
#[track_caller]
fn refused(folder: &Folder) -> String {
    let http = at(folder, "http.sock");
    let Output { status, stderr, .. } =
        run(&["serve", "--http", &http, "--resp", "off", "--limit", "5/h"]);
    let told = text(&stderr);
    assert_eq!(status.code(), Some(3), "{told}");
    assert!(told.contains(&format!("cannot listen on {http}: ")), "{told}");
    told
}

#[test]
fn it_is_for_the_owner_and_the_group_and_goes_with_the_server() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let server = start(&folder, &["--limit", "5/h"]);
    assert_eq!(mode(&path), 0o660);
    server.stop();
    assert!(!path.exists(), "it was removed");
    let server = start(&folder, &["--limit", "5/h", "--socket-mode", "0606"]);
    assert_eq!(mode(&path), 0o606);
    server.stop();
}

#[test]
fn one_in_which_nobody_listens_any_more_is_replaced() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    // Killed, it removes nothing.
    drop(start(&folder, &["--limit", "5/h"]));
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let server = start(&folder, &["--limit", "5/h"]);
    assert_eq!(check(&path).status, 200);
    server.stop();
}

#[test]
fn one_in_which_somebody_listens_stays_theirs() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let server = start(&folder, &["--limit", "5/h"]);
    let told = refused(&folder);
    assert!(told.contains("another process listens there"), "{told}");
    assert!(told.contains("--http unix:"), "{told}");
    assert_eq!(check(&path).status, 200, "who was there first goes on");
    server.stop();
}

#[test]
fn what_is_no_socket_stays_as_it_is() {
    let folder = Folder::new();
    let path = folder.write("http.sock", "dear to somebody");
    let told = refused(&folder);
    assert!(told.contains("no socket"), "{told}");
    assert_eq!(fs::read(&path).unwrap(), b"dear to somebody");
    // Nor is a link followed, wherever it leads.
    fs::rename(&path, folder.path("file")).unwrap();
    symlink(folder.path("file"), &path).unwrap();
    refused(&folder);
    assert_eq!(fs::read(&path).unwrap(), b"dear to somebody");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = Folder::new();
    fs::remove_dir_all(folder.path("")).unwrap();
    let told = refused(&folder);
    assert!(told.contains("mkdir -p"), "{told}");
}

/// Somebody removed our file and put their own there.
#[test]
fn the_file_of_another_is_not_removed_at_the_stop() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let first = start(&folder, &["--limit", "5/h"]);
    fs::remove_file(&path).unwrap();
    let second = start(&folder, &["--limit", "5/h"]);
    first.stop();
    assert_eq!(check(&path).status, 200, "it is the second's");
    second.stop();
    assert!(!path.exists());
}
