//! Starts the contenders on free loopback ports. All other settings, including the number of
//! threads, keep their defaults.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::{ChildProcess, eventually, server_command};

use super::{ApiTurn, BenchApi};
use crate::gateway::cpu;

/// A running contender, with a port for each protocol.
#[derive(Debug)]
pub struct ApiProcess {
    process: ChildProcess,
    http: ReservedPort,
    grpc: ReservedPort,
    resp: ReservedPort,
    folder: TempDir,
}

impl ApiProcess {
    /// The address of an API.
    #[must_use]
    pub const fn address(&self, api: BenchApi) -> SocketAddr {
        match api {
            BenchApi::Resp | BenchApi::Pipeline => self.resp.address(),
            BenchApi::Http => self.http.address(),
            BenchApi::Grpc => self.grpc.address(),
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A temporary folder, deleted when this value is dropped.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a turn that returns the number of responses and the turn without CPU time, and adds the
    /// CPU time of the process.
    #[must_use]
    pub fn measure_cpu(&self, turn: impl FnOnce() -> (usize, ApiTurn)) -> ApiTurn {
        let before = cpu::cpu_time_us(self.pid());
        let (responses, turn) = turn();
        let cpu_us = (cpu::cpu_time_us(self.pid()) - before) / responses as f64;
        ApiTurn { cpu_us, ..turn }
    }

    /// Starts a program and waits until it accepts connections for these APIs.
    fn start(
        apis: &[BenchApi],
        command: impl FnOnce([&ReservedPort; 3], &Path) -> Command,
    ) -> Self {
        let (http, grpc, resp) =
            (ReservedPort::reserve(), ReservedPort::reserve(), ReservedPort::reserve());
        let folder = TempDir::new().expect("create a temporary folder");
        let command = command([&http, &grpc, &resp], folder.path());
        let process = ChildProcess::start(&command, &folder.path().join("log"));
        let running = Self { process, http, grpc, resp, folder };
        for api in apis {
            eventually(&format!("{command:?} accepts connections"), || {
                assert!(running.process.is_running(), "{command:?}: {}", running.process.log());
                TcpStream::connect(running.address(*api)).is_ok()
            });
        }
        running
    }
}

/// Starts Tidegate from the same build.
#[must_use]
pub fn tidegate() -> ApiProcess {
    tidegate_with(include_str!("setups/rules.yaml"), &[])
}

/// Starts Tidegate from the same build, with these rules and further arguments.
#[must_use]
pub fn tidegate_with(rules: &str, args: &[&str]) -> ApiProcess {
    ApiProcess::start(&BenchApi::ALL, |[http, grpc, resp], folder| {
        let file = folder.join("rules.yaml");
        std::fs::write(&file, rules).expect("write the rules");
        let mut command = Command::new(target_path("release/tidegate"));
        command.args(["serve", "--log-level", "warn", "--admin", "127.0.0.1:0", "--config"]);
        command.arg(file).args(args);
        for (flag, port) in [("--http", http), ("--grpc", grpc), ("--resp", resp)] {
            command.arg(flag).arg(port.address().to_string());
        }
        command
    })
}

/// Starts throttlecrab, which `cargo xtask bench apis` installs.
#[must_use]
pub fn throttlecrab() -> ApiProcess {
    ApiProcess::start(&BenchApi::ALL, |[http, grpc, resp], _| {
        let mut command = Command::new(target_path("throttlecrab/bin/throttlecrab-server"));
        for (name, port) in [("http", http), ("grpc", grpc), ("redis", resp)] {
            command.args([format!("--{name}"), format!("--{name}-host"), "127.0.0.1".to_owned()]);
            command.args([format!("--{name}-port"), port.number().to_string()]);
        }
        command
    })
}

/// Starts nginx, which returns a fixed response without an upstream.
#[must_use]
pub fn nginx() -> ApiProcess {
    ApiProcess::start(&[BenchApi::Http, BenchApi::Grpc], |[http, grpc, _], folder| {
        let setup = include_str!("setups/nginx.conf")
            .replace("FOLDER", &folder.to_string_lossy())
            .replace("HTTP", &http.address().to_string())
            .replace("GRPC", &grpc.address().to_string());
        let file = folder.join("nginx.conf");
        std::fs::write(&file, setup).expect("write the nginx configuration");
        let mut command = server_command("nginx");
        command.args(["-e", "stderr", "-c"]).arg(file);
        command
    })
}

/// Starts a Redis server with default settings, but without saving snapshots.
#[must_use]
pub fn redis() -> ApiProcess {
    ApiProcess::start(&[BenchApi::Resp], |[_, _, resp], folder| {
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--bind", "127.0.0.1", "--port", &resp.number().to_string()]);
        command.arg("--dir").arg(folder);
        command
    })
}

/// A file below the `target/` folder that contains this executable.
fn target_path(path: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("path of this executable");
    let target = executable.ancestors().nth(2).expect("executable is target/release/apis");
    let file = target.join(path);
    assert!(file.exists(), "{} does not exist: run `cargo xtask bench apis`", file.display());
    file
}
