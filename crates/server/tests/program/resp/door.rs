//! Where the door is: by flag, variable and file, taken, off, and how it stops.

use std::io::Read as _;
use std::net::TcpListener;

use super::{RULES, redis_cli};
use crate::support::{Client, Folder, Server, Successors, run, text, tidegate};

#[test]
fn a_door_that_was_asked_for_and_is_taken_is_exit_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--http", "127.0.0.1:0", "--resp", &address]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains(&format!("cannot listen on {address}: the port is taken")), "{told}");
    assert!(told.contains("--resp 127.0.0.1:0"), "{told}");
}

#[test]
fn it_is_set_by_variable_and_by_file_and_can_be_off() {
    let folder = Folder::new();
    let file = folder.write("rules.yaml", "server: { resp: off }\nrules: []");
    let off = Server::start(&["--resp", "off", "--limit", "1/s"]);
    assert!(!off.out().contains("resp"), "{}", off.out());
    let mut command = tidegate();
    command.args(["serve", "--http", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    command.env("TIDEGATE_RESP", "127.0.0.1:0");
    let server = Server::spawn(command);
    assert_eq!(redis_cli(&server, &["PING"]), "PONG", "the variable before the file");
}

/// A pool that keeps its connection: what was asked is answered, and then it is closed.
#[test]
fn it_closes_with_the_program() {
    let mut server = Server::start(RULES);
    let mut client = Client::connect(&server.resp);
    client.send("PING\r\n");
    let mut reply = [0; 7];
    client.raw().read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    server.signal("TERM");
    server.wait_log("stopping");
    assert_eq!(client.last_words(b"PING\r\n"), "+PONG\r\n");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

/// The new process inherits this door as it does the others.
#[test]
fn a_restart_hands_the_door_over() {
    let server = Server::start(RULES);
    let mut line = Successors::of(&server);
    line.next();
    assert_eq!(redis_cli(&server, &["PING"]), "PONG");
    let info = redis_cli(&server, &["INFO", "server"]);
    assert!(info.contains(&format!("process_id:{}", line.pid)), "{info}");
}
