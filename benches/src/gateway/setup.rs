//! Starts the contenders with their configuration, each on a free loopback port with one worker.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::{ChildProcess, eventually};
use tidegate_testkit::python;

use super::http::BenchConnection;

/// An absolute path, because on Debian `/usr/sbin` is not in the `PATH` of every user.
const NGINX: &str = "/usr/sbin/nginx";
const HAPROXY: &str = "/usr/sbin/haproxy";

/// A running program that answers requests.
#[derive(Debug)]
pub struct GatewayProcess {
    process: ChildProcess,
    port: ReservedPort,
    _folder: TempDir,
}

impl GatewayProcess {
    /// The address on which the program listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts a program on a free port and waits until it answers. `command` receives the address
    /// and the path of the configuration file.
    fn start(
        setup: &str,
        upstream: Option<SocketAddr>,
        command: impl FnOnce(SocketAddr, &Path) -> Command,
    ) -> Self {
        let (port, folder) =
            (ReservedPort::reserve(), TempDir::new().expect("create a temporary folder"));
        // Envoy chooses the format by the file extension; the other programs ignore it.
        let file = folder.path().join("setup.yaml");
        let setup = fill_template(setup, port.address(), upstream, folder.path());
        std::fs::write(&file, setup).expect("write the configuration");
        let mut command = command(port.address(), &file);
        command.env("TOKIO_WORKER_THREADS", "1");
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        eventually(&format!("{command:?} answers requests"), || {
            assert!(process.is_running(), "{command:?}: {}", process.log());
            BenchConnection::open(port.address())
                .is_ok_and(|mut opened| opened.send_request().is_ok())
        });
        Self { process, port, _folder: folder }
    }
}

/// Fills the addresses and the folder into a configuration template.
fn fill_template(
    setup: &str,
    listen: SocketAddr,
    upstream: Option<SocketAddr>,
    folder: &Path,
) -> String {
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

/// Starts the upstream: nginx with a fixed response.
#[must_use]
pub fn upstream() -> GatewayProcess {
    GatewayProcess::start(include_str!("setups/upstream.conf"), None, |_, file| nginx_command(file))
}

/// Starts nginx as a rate-limiting proxy.
#[must_use]
pub fn nginx(upstream: SocketAddr) -> GatewayProcess {
    let setup = include_str!("setups/nginx.conf");
    GatewayProcess::start(setup, Some(upstream), |_, file| nginx_command(file))
}

fn nginx_command(file: &Path) -> Command {
    let mut command = Command::new(NGINX);
    command.args(["-e", "stderr", "-c"]).arg(file);
    command
}

/// Starts HAProxy as a rate-limiting proxy.
#[must_use]
pub fn haproxy(upstream: SocketAddr) -> GatewayProcess {
    GatewayProcess::start(include_str!("setups/haproxy.cfg"), Some(upstream), |_, file| {
        let mut command = Command::new(HAPROXY);
        command.arg("-f").arg(file);
        command
    })
}

/// Starts Envoy as a rate-limiting proxy.
///
/// # Errors
/// Returns the reason if Envoy is not installed.
pub fn envoy(upstream: SocketAddr) -> Result<GatewayProcess, String> {
    let program = python::envoy()?;
    Ok(GatewayProcess::start(include_str!("setups/envoy.yaml"), Some(upstream), |_, file| {
        let mut command = Command::new(program);
        command.args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]);
        command.arg("--config-path").arg(file);
        command
    }))
}

/// Starts the Tidegate gateway with a rules document.
#[must_use]
pub fn tidegate(upstream: SocketAddr, rules: &str) -> GatewayProcess {
    GatewayProcess::start(rules, Some(upstream), |listen, file| {
        let mut command = Command::new(sibling_binary("tidegate"));
        command
            .args(["serve", "--http", "off", "--grpc", "off", "--log-level", "warn", "--config"])
            .arg(file);
        command.args(["--gateway-threads", "1", "--gateway", &listen.to_string()]);
        command.args(["--upstream", &format!("http://{upstream}")]);
        command
    })
}

/// Starts the bare proxy, the baseline.
#[must_use]
pub fn bare_proxy(upstream: SocketAddr) -> GatewayProcess {
    GatewayProcess::start("", Some(upstream), |listen, _| {
        let mut command = Command::new(sibling_binary("bare_proxy"));
        command.args([listen.to_string(), upstream.to_string()]);
        command
    })
}

/// Starts an axum service of this kind (see `bin/axum_service.rs`).
#[must_use]
pub fn axum_service(kind: &str) -> GatewayProcess {
    GatewayProcess::start("", None, |listen, _| {
        let mut command = Command::new(sibling_binary("axum_service"));
        command.args([&listen.to_string(), kind]);
        command
    })
}

/// Path of another binary from the same build.
fn sibling_binary(name: &str) -> PathBuf {
    std::env::current_exe().expect("path of this executable").with_file_name(name)
}
