//! The RESP listener: its settings, a port in use, `off`, shutdown and restart.

use std::io::Read as _;
use std::net::TcpListener;

use super::{RULES, run_redis_cli};
use crate::support::{
    HttpTestClient, ServerProcess, SuccessorChain, TestFolder, run_tidegate, tidegate_command,
    utf8_text,
};

#[test]
fn taken_resp_port_exits_with_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run_tidegate(&["serve", "--http", "127.0.0.1:0", "--resp", &address]);
    let errors = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains(&format!("cannot listen on {address}: the port is taken")), "{errors}");
    assert!(errors.contains("--resp 127.0.0.1:0"), "{errors}");
}

#[test]
fn resp_listener_is_configurable_and_optional() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", "server: { resp: off }\nrules: []");
    let off = ServerProcess::start(&["--resp", "off", "--limit", "1/s"]);
    assert!(!off.stdout().contains("resp"), "{}", off.stdout());
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    command.env("TIDEGATE_RESP", "127.0.0.1:0");
    let server = ServerProcess::spawn(command);
    assert_eq!(run_redis_cli(&server, &["PING"]), "PONG", "the variable overrides the file");
}

/// A client that keeps its connection open gets its pending replies before the server closes it.
#[test]
fn resp_connection_closes_after_shutdown() {
    let mut server = ServerProcess::start(RULES);
    let mut client = HttpTestClient::connect(&server.resp);
    client.send("PING\r\n");
    let mut reply = [0; 7];
    client.stream_mut().read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    server.signal("TERM");
    server.wait_for_log("stopping");
    assert_eq!(client.send_and_read_to_end(b"PING\r\n"), "+PONG\r\n");
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
}

/// The successor inherits this listener like the others.
#[test]
fn restart_hands_over_resp_listener() {
    let server = ServerProcess::start(RULES);
    let mut chain = SuccessorChain::new(&server);
    chain.replace_process();
    assert_eq!(run_redis_cli(&server, &["PING"]), "PONG");
    let info = run_redis_cli(&server, &["INFO", "server"]);
    assert!(info.contains(&format!("process_id:{}", chain.pid)), "{info}");
}
