//! What the tests need on a machine, and how it gets there: by apt as root or through sudo, and client
//! libraries by pip and npm.

mod node;
mod python;

use std::process::Command;

use crate::run::{Stopped, run, works};

/// A program, how to see that it is there, and the Debian package that brings it.
struct Tool {
    program: &'static str,
    probe: &'static [&'static str],
    package: &'static str,
}

const TOOLS: [Tool; 22] = [
    // Some dependencies compile C.
    Tool { program: "cc", probe: &["--version"], package: "build-essential" },
    // The README's own commands are tried with it.
    Tool { program: "curl", probe: &["--version"], package: "curl" },
    // The store's tests start servers of their own on free ports. Debian's package also starts one
    // on 6379, which no test uses.
    Tool { program: "redis-server", probe: &["--version"], package: "redis-server" },
    Tool { program: "redis-cli", probe: &["--version"], package: "redis-tools" },
    // Rules of a fleet are kept in it. The tests start clusters of their own, of the newest version
    // that is there.
    Tool {
        program: "sh",
        probe: &["-c", "ls /usr/lib/postgresql/*/bin/initdb && psql --version"],
        package: "postgresql",
    },
    // What rules look like to people who open their file with it.
    Tool { program: "sqlite3", probe: &["--version"], package: "sqlite3" },
    // A server that a killed test leaves behind is killed by the kernel.
    Tool { program: "setpriv", probe: &["--version"], package: "util-linux" },
    // Commands that ask a person are given a terminal.
    Tool { program: "script", probe: &["--version"], package: "bsdutils" },
    // What is drawn in a terminal is looked at in one.
    Tool { program: "tmux", probe: &["-V"], package: "tmux" },
    // The gateway is proved in front of a real server, behind a real balancer, under real load.
    // Servers are not on everybody's path.
    Tool { program: "sh", probe: &["-c", "PATH=$PATH:/usr/sbin nginx -v"], package: "nginx-light" },
    Tool { program: "sh", probe: &["-c", "PATH=$PATH:/usr/sbin haproxy -v"], package: "haproxy" },
    Tool { program: "h2load", probe: &["--version"], package: "nghttp2-client" },
    // It has no option that only says that it is there.
    Tool { program: "sh", probe: &["-c", "command -v wrk"], package: "wrk" },
    Tool { program: "openssl", probe: &["version"], package: "openssl" },
    // Envoy, and callers of the gRPC and RESP doors, are packages of Python and Node.
    Tool { program: "python3", probe: &["-c", "import ensurepip, venv"], package: "python3-venv" },
    Tool { program: "node", probe: &["--version"], package: "nodejs" },
    Tool { program: "npm", probe: &["--version"], package: "npm" },
    // The dashboard is looked at as people do.
    Tool { program: "chromium", probe: &["--version"], package: "chromium" },
    // Proxies that ask before they pass a request on.
    Tool { program: "caddy", probe: &["version"], package: "caddy" },
    // What is told in metrics is read by it, and alerts are tried with it.
    Tool { program: "promtool", probe: &["--version"], package: "prometheus" },
    // The limiter that the doors are compared with is compiled with it.
    Tool { program: "protoc", probe: &["--version"], package: "protobuf-compiler" },
    // A library that moves a server's clock: there is no program to ask.
    Tool {
        program: "sh",
        probe: &["-c", "ls /usr/lib/*/faketime/libfaketime.so.1"],
        package: "libfaketime",
    },
];

/// Components of the Rust toolchain that the checks use.
const COMPONENTS: [(&str, &str); 2] = [("rustfmt", "cargo-fmt"), ("clippy", "cargo-clippy")];

/// Installs what is missing, or says exactly what is.
pub(crate) fn tools() -> Result<(), Stopped> {
    for (component, program) in COMPONENTS {
        if !works(program, &["--version"]) && run(&mut rustup(component)).is_err() {
            return Err(Stopped::Missing(format!("`rustup component add {component}`")));
        }
    }
    install()?;
    python::install()?;
    node::install()
}

fn install() -> Result<(), Stopped> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|tool| !works(tool.program, tool.probe))
        .map(|tool| tool.package)
        .collect();
    if missing.is_empty() {
        println!("setup: everything is there");
        return Ok(());
    }
    let install = format!("apt-get install -y {}", missing.join(" "));
    let Some(prefix) = privilege() else {
        return Err(Stopped::Missing(format!("please run, as root: {install}")));
    };
    run(&mut apt(prefix, &["update", "-q"]))?;
    let mut words = vec!["install", "-q", "-y", "--no-install-recommends"];
    words.extend(&missing);
    run(&mut apt(prefix, &words))?;
    let still = TOOLS.iter().find(|tool| !works(tool.program, tool.probe));
    match still {
        None => Ok(()),
        Some(tool) => {
            Err(Stopped::Missing(format!("{} is still not there after `{install}`", tool.package)))
        }
    }
}

fn rustup(component: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", component]);
    command
}

/// How to become root: not at all, through sudo, or no way.
fn privilege() -> Option<&'static [&'static str]> {
    if !works("apt-get", &["--version"]) {
        return None;
    }
    if works("sh", &["-c", "test $(id -u) -eq 0"]) {
        return Some(&[]);
    }
    works("sudo", &["-n", "true"]).then_some(&["sudo", "-n"])
}

fn apt(prefix: &[&str], words: &[&str]) -> Command {
    let mut all = prefix.iter().chain(&["apt-get"]).chain(words);
    let mut command = Command::new(all.next().unwrap_or(&"apt-get"));
    command.args(all).env("DEBIAN_FRONTEND", "noninteractive");
    command
}
