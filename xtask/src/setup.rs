//! Installs what the tests need: programs by apt, as root or through sudo, and client libraries by
//! pip and npm.

mod node;
mod python;

use std::process::Command;

use crate::run::{TaskError, command_succeeds, run_command};

/// A program, a command that checks for it, and the Debian package that contains it.
struct RequiredTool {
    program: &'static str,
    probe: &'static [&'static str],
    package: &'static str,
}

const TOOLS: [RequiredTool; 23] = [
    // Some dependencies compile C.
    RequiredTool { program: "cc", probe: &["--version"], package: "build-essential" },
    // The tests run the curl commands of the README.
    RequiredTool { program: "curl", probe: &["--version"], package: "curl" },
    // The tests of the Redis store start their own servers on free ports. Debian's package also
    // starts one on port 6379, which no test uses.
    RequiredTool { program: "redis-server", probe: &["--version"], package: "redis-server" },
    RequiredTool { program: "redis-cli", probe: &["--version"], package: "redis-tools" },
    // A fleet keeps its rules in PostgreSQL. The tests start their own clusters of the newest
    // installed version.
    RequiredTool {
        program: "sh",
        probe: &["-c", "ls /usr/lib/postgresql/*/bin/initdb && psql --version"],
        package: "postgresql",
    },
    // The tests inspect the rules database with the sqlite3 shell, as an operator would.
    RequiredTool { program: "sqlite3", probe: &["--version"], package: "sqlite3" },
    // With setpriv the kernel kills the servers of a test that was itself killed.
    RequiredTool { program: "setpriv", probe: &["--version"], package: "util-linux" },
    // Interactive prompts are tested on a pseudo-terminal.
    RequiredTool { program: "script", probe: &["--version"], package: "bsdutils" },
    // Full-screen output is tested in a real terminal.
    RequiredTool { program: "tmux", probe: &["-V"], package: "tmux" },
    // The gateway is tested in front of nginx, behind HAProxy and under real load. On Debian,
    // /usr/sbin is not on the path of every user.
    RequiredTool {
        program: "sh",
        probe: &["-c", "PATH=$PATH:/usr/sbin nginx -v"],
        package: "nginx-light",
    },
    RequiredTool {
        program: "sh",
        probe: &["-c", "PATH=$PATH:/usr/sbin haproxy -v"],
        package: "haproxy",
    },
    RequiredTool { program: "h2load", probe: &["--version"], package: "nghttp2-client" },
    // wrk has no option that prints its version and succeeds.
    RequiredTool { program: "sh", probe: &["-c", "command -v wrk"], package: "wrk" },
    RequiredTool { program: "openssl", probe: &["version"], package: "openssl" },
    // Envoy and the clients of the gRPC and RESP APIs are Python and Node packages.
    RequiredTool {
        program: "python3",
        probe: &["-c", "import ensurepip, venv"],
        package: "python3-venv",
    },
    RequiredTool { program: "node", probe: &["--version"], package: "nodejs" },
    RequiredTool { program: "npm", probe: &["--version"], package: "npm" },
    // The middleware for Go uses only the standard library.
    RequiredTool { program: "go", probe: &["version"], package: "golang-go" },
    // The dashboard is tested in a real browser.
    RequiredTool { program: "chromium", probe: &["--version"], package: "chromium" },
    // A proxy with forward authentication.
    RequiredTool { program: "caddy", probe: &["version"], package: "caddy" },
    // promtool parses the metrics and tests the alerts.
    RequiredTool { program: "promtool", probe: &["--version"], package: "prometheus" },
    // Needed to compile throttlecrab, which the API benchmark compares with.
    RequiredTool { program: "protoc", probe: &["--version"], package: "protobuf-compiler" },
    // A library that shifts the clock of a server. It has no program to probe.
    RequiredTool {
        program: "sh",
        probe: &["-c", "ls /usr/lib/*/faketime/libfaketime.so.1"],
        package: "libfaketime",
    },
];

/// Components of the Rust toolchain that the checks use.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "cargo-fmt"), ("clippy", "cargo-clippy")];

/// Installs what is missing, or returns an error that says what to install.
pub(crate) fn install_tools() -> Result<(), TaskError> {
    for (component, program) in COMPONENTS {
        if !command_succeeds(program, &["--version"])
            && run_command(&mut rustup_command(component)).is_err()
        {
            return Err(TaskError::Missing(format!("`rustup component add {component}`")));
        }
    }
    install_packages()?;
    python::install()?;
    node::install()
}

fn install_packages() -> Result<(), TaskError> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|tool| !command_succeeds(tool.program, tool.probe))
        .map(|tool| tool.package)
        .collect();
    if missing.is_empty() {
        println!("setup: all packages are installed");
        return Ok(());
    }
    let install = format!("apt-get install -y {}", missing.join(" "));
    let Some(prefix) = root_prefix() else {
        return Err(TaskError::Missing(format!("packages; run as root: {install}")));
    };
    run_command(&mut apt_command(prefix, &["update", "-q"]))?;
    let mut words = vec!["install", "-q", "-y", "--no-install-recommends"];
    words.extend(&missing);
    run_command(&mut apt_command(prefix, &words))?;
    let still = TOOLS.iter().find(|tool| !command_succeeds(tool.program, tool.probe));
    match still {
        None => Ok(()),
        Some(tool) => {
            Err(TaskError::Missing(format!("{} is still missing after `{install}`", tool.package)))
        }
    }
}

fn rustup_command(component: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", component]);
    command
}

/// The command prefix to run as root: empty for root, sudo if allowed, `None` if impossible.
fn root_prefix() -> Option<&'static [&'static str]> {
    if !command_succeeds("apt-get", &["--version"]) {
        return None;
    }
    if command_succeeds("sh", &["-c", "test $(id -u) -eq 0"]) {
        return Some(&[]);
    }
    command_succeeds("sudo", &["-n", "true"]).then_some(&["sudo", "-n"])
}

fn apt_command(prefix: &[&str], words: &[&str]) -> Command {
    let mut all = prefix.iter().chain(&["apt-get"]).chain(words);
    let mut command = Command::new(all.next().unwrap_or(&"apt-get"));
    command.args(all).env("DEBIAN_FRONTEND", "noninteractive");
    command
}
