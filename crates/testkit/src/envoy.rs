//! Envoy in front of an API: starts it on reserved ports with a given bootstrap configuration.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use crate::port::ReservedPort;
use crate::process::{ChildProcess, WAIT_TIMEOUT, eventually};
use crate::python;

/// An Envoy server for one test, killed on drop.
#[derive(Debug)]
pub struct EnvoyServer {
    process: ChildProcess,
    port: ReservedPort,
    admin: ReservedPort,
    _folder: TempDir,
}

impl EnvoyServer {
    /// Starts Envoy with the configuration that `bootstrap` returns for its listener port and admin
    /// port.
    ///
    /// # Panics
    /// If it is not installed or does not listen; the message contains its log.
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

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The URL of a path behind it.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// The value of the first counter whose name ends with `name`; 0 if there is none.
    ///
    /// # Panics
    /// If Envoy no longer responds.
    #[must_use]
    pub fn counter_value(&self, name: &str) -> u64 {
        let stats = self.get_admin("/stats?usedonly").expect("Envoy must return its counters");
        let value = |line: &str| line.split_once(": ")?.1.trim().parse().ok();
        let named =
            |line: &&str| line.split(": ").next().is_some_and(|counter| counter.ends_with(name));
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
