//! Runs a browser script: passes its arguments, follows its progress, and returns its report.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use crate::support::utf8_text;

/// Runs a script to its end and returns its report; fails if the script does.
#[track_caller]
pub(super) fn run_script(name: &str, args: &Value) -> Value {
    BrowserScript::start(name, args).finish()
}

/// A running script. It prints a word on stderr when the test has to act.
pub(super) struct BrowserScript {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStderr>>,
}

impl BrowserScript {
    pub(super) fn start(name: &str, args: &Value) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = root.join("../../target/node/node_modules");
        assert!(
            modules.join("playwright-core").exists(),
            "playwright-core is missing: run `cargo xtask setup`"
        );
        let mut args = args.clone();
        args["chromium"] = json!(chromium_path());
        // Kill it if the browser hangs.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "600", "node"]);
        command.arg(root.join("tests/dashboard").join(name)).arg(args.to_string());
        command.env("NODE_PATH", modules).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { input: child.stdin.take(), child, lines }
    }

    /// Waits until the script prints `word` on a line of its stderr.
    #[track_caller]
    pub(super) fn wait_for_line(&mut self, word: &str) {
        let mut before = Vec::new();
        loop {
            match self.lines.next() {
                Some(Ok(line)) if line == word => return,
                Some(Ok(line)) => before.push(line),
                _ => panic!("the script ended before `{word}`: {}", before.join("\n")),
            }
        }
    }

    /// Signals the script that the test has acted.
    pub(super) fn resume(&mut self) {
        self.input.as_mut().unwrap().write_all(b"done\n").unwrap();
    }

    /// Closes the script's stdin, for which some scripts wait. Then waits for its end and returns
    /// its report; fails if the script does.
    #[track_caller]
    pub(super) fn finish(mut self) -> Value {
        drop(self.input.take());
        let error: Vec<String> = self.lines.map_while(Result::ok).collect();
        let output = self.child.wait_with_output().unwrap();
        let (report, error) = (utf8_text(&output.stdout), error.join("\n"));
        assert!(output.status.success(), "{report}\n{error}");
        serde_json::from_str(report.trim())
            .unwrap_or_else(|invalid| panic!("{invalid}: {report}\n{error}"))
    }
}

/// The `chromium` on the path, under the name that Debian uses.
fn chromium_path() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    found.find(|file| file.exists()).expect("chromium is missing: run `cargo xtask setup`")
}
