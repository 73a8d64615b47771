//! The door as one of the program's: where it listens, and what it says of that.

use std::net::TcpListener;

use crate::support::{Folder, Server, run, text, tidegate};

#[test]
fn asked_for_and_taken_is_exit_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--http", "127.0.0.1:0", "--grpc", &address]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains(&format!("cannot listen on {address}: the port is taken")), "{told}");
    assert!(told.contains("--grpc 127.0.0.1:0"), "{told}");
}

#[test]
fn its_settings_may_stand_in_the_document_and_mistakes_are_told_with_their_line() {
    let folder = Folder::new();
    let file = folder.write(
        "rules.yaml",
        "server: { grpc: '127.0.0.1:0', grpc_charge: independent, grpc_headers: all, grpc_max_age: 1h }\n\
         rules: [{ id: r, key_by: ip, limit: 5/h }]",
    );
    let mut command = tidegate();
    command.args(["serve", "--http", "127.0.0.1:0", "--config"]).arg(&file);
    command.env_remove("TIDEGATE_GRPC");
    let server = Server::spawn(command);
    assert!(server.grpc().starts_with("127.0.0.1:"));
    let wrong =
        folder.write("wrong.yaml", "server:\n  grpc: nowhere\n  grpc_charge: maybe\nrules: []");
    let output = run(&["config", "check", wrong.to_str().unwrap()]);
    let told = text(&[output.stdout, output.stderr].concat());
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(":2:") && told.contains(":3:") && told.contains("independent"), "{told}");
}
