//! Runs the benchmarks and writes their tables to `benches/README.md`.

use std::process::Stdio;

use crate::run::{TaskError, cargo_command, command_succeeds, workspace_root};
use crate::setup;

/// Runs the gateway benchmark. It starts installed proxies and our own binaries side by side.
pub(crate) fn bench_gateway() -> Result<(), TaskError> {
    setup::install_tools()?;
    run_bench_with_servers("gateway")
}

/// Runs the fleet benchmark, which also starts servers of our own build.
pub(crate) fn bench_fleet() -> Result<(), TaskError> {
    setup::install_tools()?;
    run_bench_with_servers("fleet")
}

/// Runs the middleware benchmark, which also starts services of our own build.
pub(crate) fn bench_middleware() -> Result<(), TaskError> {
    setup::install_tools()?;
    run_bench_with_servers("middleware")
}

/// Version of throttlecrab, the limiter that the decision APIs are compared with.
const THROTTLECRAB: &str = "0.4.40";

/// Runs the decision API benchmark, and installs throttlecrab below `target/` for it.
pub(crate) fn bench_apis() -> Result<(), TaskError> {
    setup::install_tools()?;
    let folder = workspace_root().join("target/throttlecrab");
    let program = folder.join("bin/throttlecrab-server");
    if !command_succeeds(&program.to_string_lossy(), &["--version"]) {
        let mut install = cargo_command(&["install", "throttlecrab-server", "--locked"]);
        install.args(["--version", THROTTLECRAB, "--root"]).arg(&folder);
        crate::run::run_command(install.arg("--target-dir").arg(folder.join("build")))?;
    }
    run_bench_with_servers("apis")
}

/// Builds the server that a benchmark starts, and runs the benchmark.
fn run_bench_with_servers(name: &str) -> Result<(), TaskError> {
    let packages = ["-p", "tidegate-cli", "-p", "tidegate-bench"];
    crate::run::run_command(cargo_command(&["build", "--release", "--bins"]).args(packages))?;
    run_bench(name)
}

/// Runs a benchmark and writes its tables to `benches/README.md`.
pub(crate) fn run_bench(name: &str) -> Result<(), TaskError> {
    let mut command = cargo_command(&["run", "--release", "-p", "tidegate-bench", "--bin", name]);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| TaskError::Missing(format!("cargo: {error}")))?;
    if !output.status.success() {
        return Err(TaskError::Failed(format!("the benchmark exited with {}", output.status)));
    }
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{report}");
    replace_section(name, &report)
}

/// Replaces the text between `<!-- NAME -->` and `<!-- /NAME -->`.
fn replace_section(name: &str, text: &str) -> Result<(), TaskError> {
    let path = workspace_root().join("benches/README.md");
    let failed = |what: String| TaskError::Failed(format!("{}: {what}", path.display()));
    let page = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let (open, close) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let missing = || failed(format!("no section between {open} and {close}"));
    let (before, rest) = page.split_once(&open).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&close).ok_or_else(missing)?;
    let page = format!("{before}{open}\n{}\n{close}{after}", text.trim());
    std::fs::write(&path, page).map_err(|error| failed(error.to_string()))
}
