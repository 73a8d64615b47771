//! The programs, each on free ports of loopback and otherwise as it comes: as many threads as it likes.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should say why and stop")]

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tidegate_testkit::port::Port;
use tidegate_testkit::process::{Process, eventually, server_command};

use super::Door;

/// A program that runs, with a port for each protocol.
#[derive(Debug)]
pub struct Running {
    process: Process,
    http: Port,
    grpc: Port,
    resp: Port,
    folder: TempDir,
}

impl Running {
    /// Where it is asked.
    #[must_use]
    pub const fn address(&self, door: Door) -> SocketAddr {
        match door {
            Door::Resp | Door::Pipeline => self.resp.address(),
            Door::Http => self.http.address(),
            Door::Grpc => self.grpc.address(),
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A folder that goes away with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a program that listens in the protocols of these doors.
    fn start(doors: &[Door], command: impl FnOnce([&Port; 3], &Path) -> Command) -> Self {
        let (http, grpc, resp) = (Port::take(), Port::take(), Port::take());
        let folder = TempDir::new().expect("a folder");
        let command = command([&http, &grpc, &resp], folder.path());
        let process = Process::start(&command, &folder.path().join("log"));
        let running = Self { process, http, grpc, resp, folder };
        for door in doors {
            eventually(&format!("{command:?} listens"), || {
                assert!(running.process.is_running(), "{command:?}: {}", running.process.log());
                TcpStream::connect(running.address(*door)).is_ok()
            });
        }
        running
    }
}

/// Tidegate, from the same build.
#[must_use]
pub fn tidegate() -> Running {
    Running::start(&Door::ALL, |[http, grpc, resp], folder| {
        let rules = folder.join("rules.yaml");
        std::fs::write(&rules, include_str!("setups/rules.yaml")).expect("a file");
        let mut command = Command::new(built("release/tidegate"));
        command.args(["serve", "--log-level", "warn", "--config"]).arg(rules);
        for (flag, port) in [("--http", http), ("--grpc", grpc), ("--resp", resp)] {
            command.arg(flag).arg(port.address().to_string());
        }
        command
    })
}

/// throttlecrab, which `cargo xtask bench doors` installs.
#[must_use]
pub fn throttlecrab() -> Running {
    Running::start(&Door::ALL, |[http, grpc, resp], _| {
        let mut command = Command::new(built("throttlecrab/bin/throttlecrab-server"));
        for (name, port) in [("http", http), ("grpc", grpc), ("redis", resp)] {
            command.args([format!("--{name}"), format!("--{name}-host"), "127.0.0.1".to_owned()]);
            command.args([format!("--{name}-port"), port.number().to_string()]);
        }
        command
    })
}

/// nginx that answers by itself.
#[must_use]
pub fn nginx() -> Running {
    Running::start(&[Door::Http, Door::Grpc], |[http, grpc, _], folder| {
        let setup = include_str!("setups/nginx.conf")
            .replace("FOLDER", &folder.to_string_lossy())
            .replace("HTTP", &http.address().to_string())
            .replace("GRPC", &grpc.address().to_string());
        let file = folder.join("nginx.conf");
        std::fs::write(&file, setup).expect("a file");
        let mut command = server_command("nginx");
        command.args(["-e", "stderr", "-c"]).arg(file);
        command
    })
}

/// A Redis server, as it comes but for its files.
#[must_use]
pub fn redis() -> Running {
    Running::start(&[Door::Resp], |[_, _, resp], folder| {
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--bind", "127.0.0.1", "--port", &resp.number().to_string()]);
        command.arg("--dir").arg(folder);
        command
    })
}

/// A file below `target/`, where we are too.
fn built(path: &str) -> PathBuf {
    let ourselves = std::env::current_exe().expect("our own path");
    let target = ourselves.ancestors().nth(2).expect("target/release/doors");
    let file = target.join(path);
    assert!(file.exists(), "{} is not there: run `cargo xtask bench doors`", file.display());
    file
}
