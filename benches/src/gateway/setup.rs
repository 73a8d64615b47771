//! Programs with their configuration, each on a free port of loopback and with one worker.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_testkit::port::Port;
use tidegate_testkit::process::{Process, eventually};
use tidegate_testkit::python;

use super::http::Connection;

/// Debian does not have it on everybody's path.
const NGINX: &str = "/usr/sbin/nginx";
const HAPROXY: &str = "/usr/sbin/haproxy";

/// A program that runs and answers.
#[derive(Debug)]
pub struct Running {
    process: Process,
    port: Port,
    _folder: TempDir,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts a program on a free port; `command` is told the port and the file with its setup.
    fn start(
        setup: &str,
        upstream: Option<SocketAddr>,
        command: impl FnOnce(SocketAddr, &Path) -> Command,
    ) -> Self {
        let (port, folder) = (Port::take(), TempDir::new().expect("a folder"));
        // Envoy reads a file by how its name ends; others do not mind.
        let file = folder.path().join("setup.yaml");
        let setup = filled(setup, port.address(), upstream, folder.path());
        std::fs::write(&file, setup).expect("a file");
        let mut command = command(port.address(), &file);
        command.env("TOKIO_WORKER_THREADS", "1");
        let process = Process::start(&command, &folder.path().join("log"));
        eventually(&format!("{command:?} answers"), || {
            assert!(process.is_running(), "{command:?}: {}", process.log());
            Connection::open(port.address()).is_ok_and(|mut opened| opened.ask().is_ok())
        });
        Self { process, port, _folder: folder }
    }
}

/// A setup with its addresses filled in.
fn filled(setup: &str, listen: SocketAddr, upstream: Option<SocketAddr>, folder: &Path) -> String {
    let upstream = upstream.unwrap_or(listen);
    setup
        .replace("LISTEN_HOST", &listen.ip().to_string())
        .replace("LISTEN_PORT", &listen.port().to_string())
        .replace("LISTEN", &listen.to_string())
        .replace("UPSTREAM_HOST", &upstream.ip().to_string())
        .replace("UPSTREAM_PORT", &upstream.port().to_string())
        .replace("UPSTREAM", &upstream.to_string())
        .replace("FOLDER", &folder.to_string_lossy())
}

/// nginx that answers by itself.
#[must_use]
pub fn upstream() -> Running {
    Running::start(include_str!("setups/upstream.conf"), None, |_, file| nginx_with(file))
}

/// nginx that limits and passes on.
#[must_use]
pub fn nginx(upstream: SocketAddr) -> Running {
    let setup = include_str!("setups/nginx.conf");
    Running::start(setup, Some(upstream), |_, file| nginx_with(file))
}

fn nginx_with(file: &Path) -> Command {
    let mut command = Command::new(NGINX);
    command.args(["-e", "stderr", "-c"]).arg(file);
    command
}

/// HAProxy that limits and passes on.
#[must_use]
pub fn haproxy(upstream: SocketAddr) -> Running {
    Running::start(include_str!("setups/haproxy.cfg"), Some(upstream), |_, file| {
        let mut command = Command::new(HAPROXY);
        command.arg("-f").arg(file);
        command
    })
}

/// Envoy that limits and passes on.
///
/// # Errors
/// Why it is not here.
pub fn envoy(upstream: SocketAddr) -> Result<Running, String> {
    let program = python::envoy()?;
    Ok(Running::start(include_str!("setups/envoy.yaml"), Some(upstream), |_, file| {
        let mut command = Command::new(program);
        command.args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]);
        command.arg("--config-path").arg(file);
        command
    }))
}

/// The gateway with a rules document.
#[must_use]
pub fn tidegate(upstream: SocketAddr, rules: &str) -> Running {
    Running::start(rules, Some(upstream), |listen, file| {
        let mut command = Command::new(beside_us("tidegate"));
        command
            .args(["serve", "--http", "off", "--grpc", "off", "--log-level", "warn", "--config"])
            .arg(file);
        command.args(["--gateway-threads", "1", "--gateway", &listen.to_string()]);
        command.args(["--upstream", &format!("http://{upstream}")]);
        command
    })
}

/// The floor.
#[must_use]
pub fn bare_proxy(upstream: SocketAddr) -> Running {
    Running::start("", Some(upstream), |listen, _| {
        let mut command = Command::new(beside_us("bare_proxy"));
        command.args([listen.to_string(), upstream.to_string()]);
        command
    })
}

/// A program of ours from the same build.
fn beside_us(name: &str) -> PathBuf {
    std::env::current_exe().expect("our own path").with_file_name(name)
}
