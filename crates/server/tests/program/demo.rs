//! `tidegate demo`: alive at once, on this machine only, gone when it is over.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::server::collect;
use crate::support::{Client, tidegate, wait_for};

/// A running demo, killed with the test.
pub struct Demo {
    child: Child,
    out: Arc<Mutex<String>>,
}

impl Demo {
    /// Starts one whose dashboard is on a free port.
    pub fn start(args: &[&str]) -> Self {
        let mut command = tidegate();
        command.args(["demo", "--admin", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = collect(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Where its dashboard is.
    pub fn dashboard(&self) -> String {
        wait_for("the dashboard's address", || {
            let out = self.out.lock().unwrap();
            let from = out.split_once("dashboard   http://")?.1;
            from.split_once("/\n").map(|(at, _)| at.to_owned())
        })
    }

    fn folder(&self) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("tidegate-demo-{}", self.child.id()))
    }

    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        wait_for("the demo to end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

/// What `/metrics` says of a sample.
fn counted(admin: &str, sample: &str) -> u64 {
    let page = Client::connect(admin).get("/metrics").body;
    let line = page
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.trim().parse().ok());
    line.unwrap_or(0)
}

#[test]
fn every_rule_is_busy_and_some_refuse() {
    let mut demo = Demo::start(&[]);
    let admin = demo.dashboard();
    assert!(admin.starts_with("127.0.0.1:"), "{admin}");
    for (rule, endpoint, mode, verdict) in [
        ("free-writes", "POST /api/*", "enforce", "deny"),
        ("free-reads", "GET /api/items/*", "enforce", "allow"),
        ("search", "GET /api/search", "enforce", "deny"),
        ("exports", "GET /api/export", "enforce", "allow"),
        ("login", "POST /login", "enforce", "deny"),
        ("paid", "*", "enforce", "allow"),
        ("per-address", "*", "shadow", "shadow_deny"),
        ("polite-crawlers", "GET /pages/*", "warn", "warn"),
    ] {
        let labels = format!(
            "rule=\"{rule}\",endpoint=\"{endpoint}\",mode=\"{mode}\",verdict=\"{verdict}\""
        );
        let sample = format!("tidegate_rule_verdicts_total{{{labels}}}");
        wait_for(&sample, || (counted(&admin, &sample) > 0).then_some(()));
    }
    assert!(demo.folder().exists());
    let kill = format!("kill -INT {}", demo.child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(demo.ended(), Some(0));
    assert!(!demo.folder().exists(), "what it wrote is removed");
}

#[test]
fn it_ends_by_itself_and_two_have_ports_of_their_own() {
    let (mut one, mut two) = (Demo::start(&["--for", "1s"]), Demo::start(&["--for", "1s"]));
    assert_ne!(one.dashboard(), two.dashboard());
    assert_eq!((one.ended(), two.ended()), (Some(0), Some(0)));
    assert!(!one.folder().exists() && !two.folder().exists());
}
