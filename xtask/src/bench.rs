//! Benchmarks that compare, and where their tables go.

use std::process::Stdio;

use crate::run::{Stopped, cargo, root, works};
use crate::setup;

/// Runs the gateway's benchmark, which starts programs: others that are installed, and ours beside it.
pub(crate) fn gateway() -> Result<(), Stopped> {
    setup::tools()?;
    let packages = ["-p", "tidegate-server", "-p", "tidegate-bench"];
    crate::run::run(cargo(&["build", "--release", "--bins"]).args(packages))?;
    run("gateway")
}

/// The limiter that the doors are compared with.
const THROTTLECRAB: &str = "0.4.40";

/// Runs the doors' benchmark, beside a limiter that is installed for it below `target/`.
pub(crate) fn doors() -> Result<(), Stopped> {
    setup::tools()?;
    let folder = root().join("target/throttlecrab");
    let program = folder.join("bin/throttlecrab-server");
    if !works(&program.to_string_lossy(), &["--version"]) {
        let mut install = cargo(&["install", "throttlecrab-server", "--locked"]);
        install.args(["--version", THROTTLECRAB, "--root"]).arg(&folder);
        crate::run::run(install.arg("--target-dir").arg(folder.join("build")))?;
    }
    let packages = ["-p", "tidegate-server", "-p", "tidegate-bench"];
    crate::run::run(cargo(&["build", "--release", "--bins"]).args(packages))?;
    run("doors")
}

/// Runs a benchmark and puts its tables into `benches/README.md`.
pub(crate) fn run(name: &str) -> Result<(), Stopped> {
    let mut command = cargo(&["run", "--release", "-p", "tidegate-bench", "--bin", name]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Stopped::Missing(format!("cargo: {error}")))?;
    if !output.status.success() {
        return Err(Stopped::Failed(format!("the benchmark ended with {}", output.status)));
    }
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{report}");
    replace_section(name, &report)
}

/// Replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->`.
fn replace_section(name: &str, text: &str) -> Result<(), Stopped> {
    let path = root().join("benches/README.md");
    let failed = |what: String| Stopped::Failed(format!("{}: {what}", path.display()));
    let page = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let (open, close) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let missing = || failed(format!("no section between {open} and {close}"));
    let (before, rest) = page.split_once(&open).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&close).ok_or_else(missing)?;
    let page = format!("{before}{open}\n{}\n{close}{after}", text.trim());
    std::fs::write(&path, page).map_err(|error| failed(error.to_string()))
}
