//! Envoy in front of an API: started on ports of its own with a bootstrap that names others.

#![expect(clippy::expect_used, reason = "a test whose server does not start cannot go on")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, eventually};
use crate::python;

/// An Envoy of the test's own, killed on drop.
#[derive(Debug)]
pub struct EnvoyServer {
    process: ChildProcess,
    port: ReservedPort,
    admin: ReservedPort,
    _folder: TempDir,
}

impl EnvoyServer {
    /// Starts one with the bootstrap that is made for its listener's and its admin's port.
    ///
    /// # Panics
    /// When it is not installed or does not listen, with its log.
    #[must_use]
    pub fn start(bootstrap: impl FnOnce(u16, u16) -> String) -> Self {
        let program = python::envoy().unwrap_or_else(|why| panic!("{why}"));
        let (port, admin) = (ReservedPort::reserve(), ReservedPort::reserve());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("envoy.yaml");
        fs::write(&file, bootstrap(port.number(), admin.number())).expect("a file");
        let mut command = Command::new(program);
        command.args(["--concurrency", "2", "--log-level", "warn", "--disable-hot-restart"]);
        command.arg("--config-path").arg(&file);
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        let envoy = Self { process, port, admin, _folder: folder };
        eventually("Envoy is ready", || {
            assert!(envoy.process.is_running(), "Envoy: {}", envoy.process.log());
            envoy.get_admin("/ready").is_some_and(|answer| answer.contains("LIVE"))
        });
        envoy
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The address of a path behind it.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// One of its counters, by what its name ends with; 0 while it is not there.
    ///
    /// # Panics
    /// When it does not answer any more.
    #[must_use]
    pub fn counter_value(&self, name: &str) -> u64 {
        let stats = self.get_admin("/stats?usedonly").expect("Envoy tells its counters");
        let value = |line: &str| line.split_once(": ")?.1.trim().parse().ok();
        let named = |line: &&str| line.split(": ").next().is_some_and(|told| told.ends_with(name));
        stats.lines().find(named).and_then(value).unwrap_or(0)
    }

    fn get_admin(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin.address()).ok()?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}
