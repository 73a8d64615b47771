//! External clients and proxies: curl, h2load, haproxy, and a gRPC client in Python.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::{ChildProcess, server_command};
use tidegate_testkit::python::python;

use super::{TestFolder, utf8_text, wait_for};

/// A response as curl printed it.
#[derive(Debug)]
pub struct CurlResponse {
    pub exit_code: i32,
    pub status: u16,
    /// `1.1` or `2`.
    pub version: String,
    pub head: String,
    pub body: String,
}

/// Runs curl.
pub fn run_curl(args: &[&str]) -> CurlResponse {
    let mut command = Command::new("curl");
    // Ignore the user's curl configuration and proxies.
    command.args(["-q", "-sS", "-i", "--noproxy", "*", "--max-time", "15"]);
    command.args(["-w", "\n%{http_version} %{http_code}"]).args(args);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, summary) = text.rsplit_once('\n').unwrap_or_default();
    let (version, status) = summary.split_once(' ').unwrap_or_default();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    CurlResponse {
        exit_code: output.status.code().unwrap_or(-1),
        status: status.parse().unwrap_or(0),
        version: version.to_owned(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

impl CurlResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends calls of Envoy's rate limit service to a gRPC listener, one after the other. The client
/// knows the service only from server reflection.
#[track_caller]
pub fn call_grpc(address: &str, calls: &[Value]) -> Vec<Value> {
    call_grpc_with_metadata(address, calls, &json!({}))
}

/// Like `call_grpc`, with metadata.
#[track_caller]
pub fn call_grpc_with_metadata(address: &str, calls: &[Value], metadata: &Value) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/envoy/call.py");
    let args = [address, &json!(calls).to_string(), &metadata.to_string()];
    let output = python().arg(script).args(args).output().unwrap();
    let text = utf8_text(&[output.stdout, output.stderr].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Request counts as h2load reports them.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadReport {
    pub done: u64,
    pub errors: u64,
    pub passed: u64,
    pub refused: u64,
    pub failed: u64,
}

/// Runs h2load.
#[track_caller]
pub fn run_h2load(args: &[&str]) -> LoadReport {
    let output = Command::new("h2load").args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |line: &str, what: &str| -> u64 {
        let line = text.lines().find(|found| found.starts_with(line));
        let part = line.and_then(|line| {
            line.split([':', ','])
                .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
        });
        part.unwrap_or_else(|| panic!("no `{what}` in {text}"))
    };
    LoadReport {
        done: count("requests:", "done"),
        errors: count("requests:", "errored") + count("requests:", "timeout"),
        passed: count("status codes:", "2xx"),
        refused: count("status codes:", "4xx"),
        failed: count("status codes:", "5xx") + count("status codes:", "3xx"),
    }
}

/// A haproxy that forwards connections with the PROXY protocol.
pub struct HaproxyBalancer {
    _process: ChildProcess,
    port: ReservedPort,
    _folder: TestFolder,
}

impl HaproxyBalancer {
    /// Starts one in front of `server`; `send` is `send-proxy` or `send-proxy-v2`.
    pub fn start(server: &str, send: &str) -> Self {
        let (folder, port) = (TestFolder::new(), ReservedPort::reserve());
        let at = port.address();
        let config = format!(
            "global\n  maxconn 500\ndefaults\n  mode tcp\n  timeout connect 5s\n  \
             timeout client 30s\n  timeout server 30s\nfrontend in\n  bind {at}\n  \
             default_backend out\nbackend out\n  server gateway {server} {send}\n"
        );
        let file = folder.write("haproxy.cfg", config);
        let mut command = server_command("haproxy");
        command.arg("-db").arg("-f").arg(file);
        let process = ChildProcess::start(&command, &folder.path("haproxy.log"));
        wait_for("haproxy", || {
            assert!(process.is_running(), "{}", process.log());
            TcpStream::connect(at).ok()
        });
        Self { _process: process, port, _folder: folder }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.port.address())
    }
}
