//! Admin commands of the command line (`rules`, `override`, `reset`, …) against a running server.

mod counters;
mod db_migrate;
mod overrides_and_subjects;
mod pseudo_terminal;
mod read_only_rules;
mod rules_apply;
mod rules_edit;
mod usage_errors;

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{ServerProcess, TestFolder, tidegate_command, utf8_text};

const RULES: &str = "\
rules:
  - id: writes
    match: { endpoint: \"POST /api/*\" }
    key_by: api_key
    limit: { requests: 10, window: 1h, burst: 20 }
  - id: per-user
    key_by: user_id
    limit: 2/30d using fixed_window
  - id: quiet
    match: { path: /quiet }
    key_by: ip
    limit: 5/h
    mode: shadow
";

/// A server with its own rules database, and the commands that call its admin API.
pub struct AdminCliFixture {
    pub server: ServerProcess,
    pub folder: TestFolder,
    pub url: String,
}

/// Exit code and output of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CliCommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl AdminCliFixture {
    pub fn start() -> Self {
        Self::start_with(RULES, &[])
    }

    pub fn start_with(rules: &str, args: &[&str]) -> Self {
        let folder = TestFolder::new();
        let database = folder.database_url();
        Self::start_in(folder, rules, &[&["--rules-db", &database], args].concat())
    }

    /// Starts a server whose rules come from a file, without a rules database.
    pub fn start_with_file_rules() -> Self {
        Self::start_in(TestFolder::new(), RULES, &[])
    }

    fn start_in(folder: TestFolder, rules: &str, args: &[&str]) -> Self {
        let file = folder.write("rules.yaml", rules);
        let server =
            ServerProcess::with_config(&file, &[&["--admin", "127.0.0.1:0"], args].concat());
        let url = format!("http://{}", server.admin_address());
        Self { server, folder, url }
    }

    /// Runs a command against this server's admin API.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> CliCommandOutput {
        self.run_with_stdin(args, "")
    }

    /// Like `run`, with input on stdin.
    #[track_caller]
    pub fn run_with_stdin(&self, args: &[&str], stdin: &str) -> CliCommandOutput {
        let mut command = tidegate_command();
        command.args(args).env("TIDEGATE_ADMIN_URL", &self.url).env("USER", "ann");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Fails if the command exits without reading stdin.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        CliCommandOutput::from_output(&child.wait_with_output().unwrap())
    }

    /// Runs a command that must succeed without errors, and returns its stdout.
    #[track_caller]
    pub fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(0), ""),
            "{args:?}: {}",
            output.stdout
        );
        output.stdout
    }

    /// Like `run_ok`, with `--json`; returns the parsed output.
    #[track_caller]
    pub fn run_json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run_ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Writes a document and returns its path.
    pub fn write_document(&self, name: &str, text: &str) -> String {
        self.folder.write(name, text).to_str().unwrap().to_owned()
    }
}

impl CliCommandOutput {
    fn from_output(output: &Output) -> Self {
        let (stdout, stderr) = (utf8_text(&output.stdout), utf8_text(&output.stderr));
        Self { code: output.status.code(), stdout, stderr }
    }

    /// Asserts the exit code, and that stderr contains these words.
    #[track_caller]
    pub fn assert_failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for expected in words {
            assert!(self.stderr.contains(expected), "`{expected}` is missing: {self:?}");
        }
    }
}
