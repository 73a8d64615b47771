//! Settings of the gRPC listener, and errors when it cannot listen.

use std::net::TcpListener;

use crate::support::{ServerProcess, TestFolder, run_tidegate, tidegate_command, utf8_text};

#[test]
fn taken_grpc_port_exits_with_code_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run_tidegate(&["serve", "--http", "127.0.0.1:0", "--grpc", &address]);
    let output_text = utf8_text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{output_text}");
    assert!(
        output_text.contains(&format!("cannot listen on {address}: the port is taken")),
        "{output_text}"
    );
    assert!(output_text.contains("--grpc 127.0.0.1:0"), "{output_text}");
}

#[test]
fn grpc_settings_are_read_from_document() {
    let folder = TestFolder::new();
    let file = folder.write(
        "rules.yaml",
        "server: { grpc: '127.0.0.1:0', grpc_charge: independent, grpc_headers: all, grpc_max_age: 1h }\n\
         rules: [{ id: r, key_by: ip, limit: 5/h }]",
    );
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--config"]).arg(&file);
    command.env_remove("TIDEGATE_GRPC");
    let server = ServerProcess::spawn(command);
    assert!(server.grpc_address().starts_with("127.0.0.1:"));
    let wrong =
        folder.write("wrong.yaml", "server:\n  grpc: nowhere\n  grpc_charge: maybe\nrules: []");
    let output = run_tidegate(&["config", "check", wrong.to_str().unwrap()]);
    let output_text = utf8_text(&[output.stdout, output.stderr].concat());
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    assert!(
        output_text.contains(":2:")
            && output_text.contains(":3:")
            && output_text.contains("independent"),
        "{output_text}"
    );
}
