//! Starts the applications in `clients/*/apps` and sends them requests.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tidegate_fixtures::conformance::{ConformanceCase, ConformanceRequest, ObservedResponse};
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::ChildProcess;
use tidegate_testkit::python::python;

use crate::support::{HttpTestClient, TestFolder, wait_for};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebFramework {
    FastApi,
    Flask,
    Express,
    Fastify,
    NetHttp,
}

/// The listeners of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppListener {
    /// `on_fail: allow` with a deadline that passes only in an outage.
    Patient,
    /// `on_fail: allow` with a short deadline.
    Allowing,
    /// `on_fail: deny` with a short deadline.
    Denying,
}

/// An application behind a middleware.
pub struct LimitedApplication {
    process: ChildProcess,
    /// In the order of [`AppListener`].
    ports: [ReservedPort; 3],
    _folder: TestFolder,
}

/// A folder of the repository.
pub fn repository_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// A Python that finds the package.
pub fn python_command() -> Command {
    let mut command = python();
    command.env("PYTHONPATH", repository_path("clients/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A Go that uses only the standard library and keeps its files under `target/`.
pub fn go_command() -> Command {
    let mut command = Command::new("go");
    command.current_dir(repository_path("clients/go")).env("GOFLAGS", "-mod=mod");
    command.env("GOPROXY", "off").env("GOCACHE", std::path::absolute(go_folder()).unwrap());
    command
}

fn go_folder() -> PathBuf {
    repository_path("target/go")
}

/// The compiled application; built once, because tests run in parallel.
fn go_application() -> &'static Path {
    static APPLICATION: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = std::path::absolute(go_folder().join("app")).unwrap();
        let built = go_command().args(["build", "-o"]).arg(&path).arg("./internal/app").output();
        let built = built.expect("Go is missing: run `cargo xtask setup`");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        path
    });
    &APPLICATION
}

impl WebFramework {
    fn command(self) -> Command {
        let python_app = |name: &str| {
            let mut command = python_command();
            command.arg(repository_path("clients/python/apps").join(name));
            command
        };
        let node_app = |name: &str| {
            let mut command = Command::new("node");
            command.env("NODE_PATH", repository_path("target/node/node_modules"));
            command.arg(repository_path("clients/node/apps").join(name));
            command
        };
        match self {
            Self::FastApi => python_app("fastapi_app.py"),
            Self::Flask => python_app("flask_app.py"),
            Self::Express => node_app("express.js"),
            Self::Fastify => node_app("fastify.js"),
            Self::NetHttp => Command::new(go_application()),
        }
    }

    /// Whether the middleware sees repeated headers separately.
    pub fn separates_repeated_headers(self) -> bool {
        self != Self::Flask
    }
}

impl LimitedApplication {
    /// Starts an application whose middleware asks the Tidegate at `tidegate`.
    #[track_caller]
    pub fn start(framework: WebFramework, tidegate: SocketAddr) -> Self {
        let (folder, ports) = (TestFolder::new(), [(); 3].map(|()| ReservedPort::reserve()));
        let listener = |port: &ReservedPort, on_fail: &str, deadline_ms: u32| -> Value {
            json!({ "port": port.number(), "on_fail": on_fail, "deadline_ms": deadline_ms })
        };
        let listeners = [
            listener(&ports[0], "allow", 10_000),
            listener(&ports[1], "allow", 200),
            listener(&ports[2], "deny", 200),
        ];
        let settings = json!({ "tidegate": format!("http://{tidegate}"), "listeners": listeners });
        let mut command = framework.command();
        command.arg(settings.to_string());
        let process = ChildProcess::start(&command, &folder.path("app.log"));
        for port in &ports {
            wait_for("the application", || {
                assert!(process.is_running(), "{}", process.log());
                TcpStream::connect(port.address()).ok()
            });
        }
        Self { process, ports, _folder: folder }
    }

    /// The lines that the application has written.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Sends a GET request without headers.
    pub fn get(&self, listener: AppListener, peer: [u8; 4], path: &str) -> ObservedResponse {
        self.send(listener, IpAddr::from(peer), &format!("GET {path}"), &[])
    }

    /// Sends one request on a connection from `peer`; `line` is method and path.
    pub fn send(
        &self,
        listener: AppListener,
        peer: IpAddr,
        line: &str,
        headers: &[(String, String)],
    ) -> ObservedResponse {
        let address = self.ports[listener as usize].address().to_string();
        let has_host = headers.iter().any(|(name, _)| name == "host");
        let host = if has_host { "" } else { "host: app.example\r\n" };
        let headers: String = headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        let request = format!("{line} HTTP/1.1\r\nconnection: close\r\n{host}{headers}\r\n");
        let client = HttpTestClient::connect_from(peer, &address);
        parse_response(&client.send_and_read_to_end(request.as_bytes()))
    }

    /// Sends the requests of a case and compares the responses.
    #[track_caller]
    pub fn assert_case(&self, listener: AppListener, case: &ConformanceCase) {
        for (number, request) in case.requests.iter().enumerate() {
            let name = format!("{}, request {number}", case.name);
            for _ in 0..request.repeat {
                self.assert_request(listener, &name, request);
            }
        }
    }

    #[track_caller]
    fn assert_request(&self, listener: AppListener, name: &str, request: &ConformanceRequest) {
        let line = format!("{} {}", request.method, request.path);
        let response = self.send(listener, request.peer, &line, &request.headers_with_host());
        let handled = response.header("x-handled") == Some("yes");
        request.expect.assert_matches(name, &response, handled);
    }
}

#[track_caller]
fn parse_response(text: &str) -> ObservedResponse {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    ObservedResponse { status, headers, body: body.to_owned() }
}
