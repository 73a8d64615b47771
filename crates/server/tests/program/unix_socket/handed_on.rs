//! Sockets that are handed on: by a predecessor (SIGUSR2), and by systemd, whose files stay systemd's.

use std::os::unix::net::UnixListener;
use std::process::Command;

use command_fds::{CommandFdExt as _, FdMapping};

use super::{check, command, start};
use crate::support::successors::{is_alive, signal};
use crate::support::{Folder, Server, Successors, wait_for};

/// Stops a process that is no child of ours.
#[track_caller]
fn stop(pid: u32) {
    signal(pid, "TERM");
    wait_for("the successor to stop", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_successor_serves_in_the_same_file_and_the_last_one_removes_it() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let server = start(&folder, &["--limit", "5/h by ip"]);
    let mut line = Successors::of(&server);
    for _ in 0..2 {
        line.next();
        assert_eq!(check(&path).status, 200, "{}", server.log());
    }
    stop(line.pid);
    assert!(!path.exists(), "{}", server.log());
}

#[test]
fn a_successor_that_cannot_start_leaves_the_file_alone() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let document =
        |grpc: &str| format!("server: {{ grpc: '{grpc}' }}\nrules: [{{ id: a, limit: 5/h }}]");
    let rules = folder.write("rules.yaml", document("off"));
    let mut command = command(&folder, &["--config", rules.to_str().unwrap()]);
    command.env_remove("TIDEGATE_GRPC");
    let server = Server::spawn(command);
    // Another door that the successor wants and cannot have.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    folder.replace("rules.yaml", document(&taken.local_addr().unwrap().to_string()));
    server.wait_log("takes effect at the next start");
    server.signal("USR2");
    server.wait_log("the port is taken");
    assert_eq!(check(&path).status, 200);
    server.stop();
    assert!(!path.exists());
}

/// As systemd starts it: with a socket that is open already.
fn activated(folder: &Folder) -> (Command, UnixListener) {
    let socket = UnixListener::bind(folder.path("http.sock")).unwrap();
    let mut command = command(folder, &["--limit", "5/h by ip"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "http");
    let mapping = FdMapping { parent_fd: socket.try_clone().unwrap().into(), child_fd: 3 };
    command.fd_mappings(vec![mapping]).unwrap();
    (command, socket)
}

#[test]
fn the_file_of_a_socket_that_systemd_opened_stays() {
    let folder = Folder::new();
    let path = folder.path("http.sock");
    let (command, _socket) = activated(&folder);
    let server = Server::spawn(command);
    assert_eq!(server.address, format!("unix:{}", path.display()));
    assert_eq!(check(&path).status, 200);
    // Handed on, it is still systemd's.
    let mut line = Successors::of(&server);
    line.next();
    assert_eq!(check(&path).status, 200);
    stop(line.pid);
    assert!(path.exists(), "connections wait there for the next start");
}
