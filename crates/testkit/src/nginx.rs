//! nginx as the upstream server of a gateway: starts it on a reserved port and reports the requests
//! that reached it.
//!
//! It runs as a single process (`master_process off`), so that killing it leaves no worker behind.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, eventually, poll_until, server_command};

/// Path of the marker request that [`NginxServer::requests`] sends; it is not reported as a
/// request.
const MARKER_PATH: &str = "/tidegate-test-mark";

/// An nginx server for one test, killed on drop.
#[derive(Debug)]
pub struct NginxServer {
    process: ChildProcess,
    port: ReservedPort,
    folder: TempDir,
    plain: bool,
}

impl NginxServer {
    /// Starts a server with these lines in its `server` block, such as `return 200 "ok\n";`.
    ///
    /// # Panics
    /// If it does not listen; the message contains its log.
    #[must_use]
    pub fn start(server: &str) -> Self {
        Self::start_with("", |_| server.to_owned())
    }

    /// Starts a server with additional words in its `listen` directive (`ssl http2`). `server`
    /// creates the lines of the `server` block; it is given the server's folder and may write files
    /// to it.
    ///
    /// # Panics
    /// If it does not listen; the message contains its log.
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
             log_format tests '$request_method $request_uri $server_protocol $status \
             host=$http_host for=$http_x_forwarded_for ip=$http_x_real_ip';\n  \
             access_log {here}/access.log tests;\n  \
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

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its URL for the configuration of a gateway.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.plain { "http" } else { "https" };
        format!("{scheme}://{}", self.address())
    }

    /// The process, for pausing, resuming or killing it.
    #[must_use]
    pub const fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Restarts it after it was killed, on the same port.
    ///
    /// # Panics
    /// If it does not listen; the message contains its log.
    pub fn restart(&self) {
        self.process.restart();
        self.await_ready();
    }

    /// The requests that it has served, one per line: `GET /x HTTP/1.1 200 host=a for=192.0.2.1
    /// ip=192.0.2.1`.
    ///
    /// # Panics
    /// If it no longer responds.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        // A single process serves and logs requests in order: once the marker is logged, all
        // earlier requests are.
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
        let mut stream = TcpStream::connect(self.address()).expect("nginx must be listening");
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("nginx must read the request");
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
