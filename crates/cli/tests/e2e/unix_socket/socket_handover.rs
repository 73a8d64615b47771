//! Inherited sockets: from a predecessor (SIGUSR2), and from systemd, which keeps its socket files.

use std::os::unix::net::UnixListener;
use std::process::Command;

use command_fds::{CommandFdExt as _, FdMapping};

use super::{send_check, server_command, start_server};
use crate::support::successors::{is_alive, send_signal};
use crate::support::{ServerProcess, SuccessorChain, TestFolder, wait_for};

/// Stops a process that is not a child of this test.
#[track_caller]
fn stop_process(pid: u32) {
    send_signal(pid, "TERM");
    wait_for("the successor to stop", || (!is_alive(pid)).then_some(()));
}

#[test]
fn successor_reuses_and_removes_socket_file() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let server = start_server(&folder, &["--limit", "5/h by ip"]);
    let mut chain = SuccessorChain::new(&server);
    for _ in 0..2 {
        chain.replace_process();
        assert_eq!(send_check(&path).status, 200, "{}", server.log());
    }
    stop_process(chain.pid);
    assert!(!path.exists(), "{}", server.log());
}

#[test]
fn failed_successor_keeps_socket_file() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let document =
        |grpc: &str| format!("server: {{ grpc: '{grpc}' }}\nrules: [{{ id: a, limit: 5/h }}]");
    let rules = folder.write("rules.yaml", document("off"));
    let mut command = server_command(&folder, &["--config", rules.to_str().unwrap()]);
    command.env_remove("TIDEGATE_GRPC");
    let server = ServerProcess::spawn(command);
    // A listener that the successor cannot open.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    folder.replace_atomically("rules.yaml", document(&taken.local_addr().unwrap().to_string()));
    server.wait_for_log("take effect after a restart");
    server.signal("USR2");
    server.wait_for_log("the port is taken");
    assert_eq!(send_check(&path).status, 200);
    server.stop();
    assert!(!path.exists());
}

/// A command as systemd starts it, with an inherited socket.
fn activated_command(folder: &TestFolder) -> (Command, UnixListener) {
    let socket = UnixListener::bind(folder.path("http.sock")).unwrap();
    let mut command = server_command(folder, &["--limit", "5/h by ip"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "http");
    let mapping = FdMapping { parent_fd: socket.try_clone().unwrap().into(), child_fd: 3 };
    command.fd_mappings(vec![mapping]).unwrap();
    (command, socket)
}

#[test]
fn systemd_socket_file_is_kept() {
    let folder = TestFolder::new();
    let path = folder.path("http.sock");
    let (command, _socket) = activated_command(&folder);
    let server = ServerProcess::spawn(command);
    assert_eq!(server.address, format!("unix:{}", path.display()));
    assert_eq!(send_check(&path).status, 200);
    // A successor does not remove systemd's file either.
    let mut chain = SuccessorChain::new(&server);
    chain.replace_process();
    assert_eq!(send_check(&path).status, 200);
    stop_process(chain.pid);
    assert!(path.exists(), "systemd's socket accepts connections for the next start");
}
