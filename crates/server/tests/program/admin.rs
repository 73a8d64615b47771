//! The command line of the rule office, against a running server.

mod apply;
mod changes;
mod counters;
mod database;
mod identities;
mod mistakes;
mod read_only;
mod terminal;

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{Folder, Server, text, tidegate};

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
pub struct Office {
    pub server: Server,
    pub folder: Folder,
    pub url: String,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Office {
    pub fn open() -> Self {
        Self::with(RULES, &[])
    }

    pub fn with(rules: &str, args: &[&str]) -> Self {
        let folder = Folder::new();
        let database = folder.database();
        Self::on(folder, rules, &[&["--rules-db", &database], args].concat())
    }

    /// One whose rules are in a file alone.
    pub fn of_file() -> Self {
        Self::on(Folder::new(), RULES, &[])
    }

    fn on(folder: Folder, rules: &str, args: &[&str]) -> Self {
        let file = folder.write("rules.yaml", rules);
        let server = Server::with_config(&file, &[&["--admin", "127.0.0.1:0"], args].concat());
        let url = format!("http://{}", server.admin());
        Self { server, folder, url }
    }

    /// Runs a command that asks this office.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    /// The same with something on stdin.
    #[track_caller]
    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        let mut command = tidegate();
        command.args(args).env("TIDEGATE_ADMIN_URL", &self.url).env("USER", "ann");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Who does not read closes it before all is written.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Ended::of(&child.wait_with_output().unwrap())
    }

    /// Runs a command that must go well, and says what it printed.
    #[track_caller]
    pub fn well(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}: {}", ended.out);
        ended.out
    }

    /// The same, as JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.well(&[args, &["--json"]].concat())).unwrap()
    }

    /// Writes a document and names it.
    pub fn document(&self, name: &str, text: &str) -> String {
        self.folder.write(name, text).to_str().unwrap().to_owned()
    }
}

impl Ended {
    fn of(output: &Output) -> Self {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        Self { code: output.status.code(), out, err }
    }

    /// That it ended with a code and said these words on stderr.
    #[track_caller]
    pub fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is missing: {self:?}");
        }
    }
}
