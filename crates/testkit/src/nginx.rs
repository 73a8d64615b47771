//! nginx as the server behind a gateway: started on a port of its own, and asked what reached it.
//!
//! It runs as one process (`master_process off`), so that killing it leaves no worker behind.

#![expect(clippy::expect_used, reason = "a test whose server does not start cannot go on")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, eventually, poll_until, server_command};

/// What a request that [`NginxServer::requests`] asks itself is for; it is not told as a request.
const MARKER_PATH: &str = "/tidegate-test-mark";

/// A nginx of the test's own, killed on drop.
#[derive(Debug)]
pub struct NginxServer {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    plain: bool,
}

impl NginxServer {
    /// Starts one with these lines in its `server` block, such as `return 200 "well\n";`.
    ///
    /// # Panics
    /// When it does not listen, with its log.
    #[must_use]
    pub fn start(server: &str) -> Self {
        Self::start_with("", |_| server.to_owned())
    }

    /// Starts one whose `listen` has more words (`ssl http2`), with the lines that are made for its
    /// folder, which may be filled first.
    ///
    /// # Panics
    /// When it does not listen, with its log.
    #[must_use]
    pub fn start_with(listen: &str, server: impl FnOnce(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, port) = (folder.path(), ReservedPort::reserve());
        let server = server(path);
        let (at, here) = (port.address(), path.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("  {name}_temp_path {here}/{name};\n"))
            .concat();
        let config = format!(
            "daemon off;\nmaster_process off;\npid {here}/pid;\nworker_rlimit_nofile 8192;\n\
             error_log {here}/error.log warn;\nevents {{ worker_connections 4096; }}\n\
             http {{\n{temporary}  \
             log_format told '$request_method $request_uri $server_protocol $status \
             host=$http_host for=$http_x_forwarded_for ip=$http_x_real_ip';\n  \
             access_log {here}/access.log told;\n  \
             server {{\n    listen {at} {listen};\n{server}\n  }}\n}}\n"
        );
        fs::write(path.join("nginx.conf"), config).expect("a file");
        let mut command = server_command("nginx");
        command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf"));
        command.arg("-e").arg(path.join("error.log"));
        let process = ChildProcess::start(&command, &path.join("output.log"));
        let nginx = Self { process, port, folder, plain: !listen.contains("ssl") };
        nginx.await_ready();
        nginx
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its address as a gateway is configured with.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.plain { "http" } else { "https" };
        format!("{scheme}://{}", self.address())
    }

    /// The process, to be paused, resumed or killed.
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it again after it was killed, on the same port.
    ///
    /// # Panics
    /// When it does not listen, with its log.
    pub fn restart(&self) {
        self.process.restart();
        self.await_ready();
    }

    /// The requests that it has answered, a line each:
    /// `GET /x HTTP/1.1 200 host=a for=192.0.2.1 ip=192.0.2.1`.
    ///
    /// # Panics
    /// When it does not answer any more.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        // One process answers and logs one after the other: with this one logged, all before it are.
        let marks = |log: &str| log.matches(MARKER_PATH).count();
        let before = marks(&self.access_log());
        if self.plain {
            self.send_request(MARKER_PATH);
            eventually("nginx logs", || marks(&self.access_log()) > before);
        }
        let log = self.access_log();
        log.lines().filter(|line| !line.contains(MARKER_PATH)).map(str::to_owned).collect()
    }

    fn send_request(&self, path: &str) {
        let mut stream = TcpStream::connect(self.address()).expect("nginx listens");
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("nginx reads");
        let _ = stream.read_to_end(&mut Vec::new());
    }

    fn access_log(&self) -> String {
        let bytes = fs::read(self.folder().join("access.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn await_ready(&self) {
        let connect = || TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).ok();
        let alive = || self.process.is_running();
        let ready =
            poll_until(WAIT_TIMEOUT, || (!alive()).then_some(false).or(connect().map(|_| true)));
        let errors = fs::read_to_string(self.folder().join("error.log")).unwrap_or_default();
        assert!(ready == Some(true), "nginx: {}{errors}", self.process.log());
    }
}
