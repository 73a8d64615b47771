//! `tidegate demo`: shows traffic at once, listens only on loopback, and removes its files.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::server_process::collect_lines;
use crate::support::{HttpTestClient, tidegate_command, wait_for};

/// A running demo, killed when this is dropped.
pub struct DemoProcess {
    child: Child,
    out: Arc<Mutex<String>>,
}

impl DemoProcess {
    /// Starts one whose dashboard is on a free port.
    pub fn start(args: &[&str]) -> Self {
        let mut command = tidegate_command();
        command.args(["demo", "--admin", "127.0.0.1:0"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = collect_lines(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Address of the dashboard.
    pub fn dashboard_address(&self) -> String {
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
    fn wait_for_exit(&mut self) -> Option<i32> {
        wait_for("the demo to exit", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for DemoProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

/// The value of a sample in `/metrics`; 0 if it is absent.
fn read_metric(admin: &str, sample: &str) -> u64 {
    let page = HttpTestClient::connect(admin).get("/metrics").body;
    let line = page
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.trim().parse().ok());
    line.unwrap_or(0)
}

#[test]
fn every_demo_rule_sees_traffic() {
    let mut demo = DemoProcess::start(&[]);
    let admin = demo.dashboard_address();
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
        wait_for(&sample, || (read_metric(&admin, &sample) > 0).then_some(()));
    }
    assert!(demo.folder().exists());
    let kill = format!("kill -INT {}", demo.child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(demo.wait_for_exit(), Some(0));
    assert!(!demo.folder().exists(), "the demo removes its files");
}

#[test]
fn concurrent_demos_use_own_ports_and_exit() {
    let (mut one, mut two) =
        (DemoProcess::start(&["--for", "1s"]), DemoProcess::start(&["--for", "1s"]));
    assert_ne!(one.dashboard_address(), two.dashboard_address());
    assert_eq!((one.wait_for_exit(), two.wait_for_exit()), (Some(0), Some(0)));
    assert!(!one.folder().exists() && !two.folder().exists());
}
