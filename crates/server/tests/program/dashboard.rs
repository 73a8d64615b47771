//! The dashboard in a real Chromium, driven by playwright-core; both come with `cargo xtask setup`. What is done in
//! the browser is in `tests/dashboard`, a script each; here are the servers that they are pointed at.

mod pictures;
mod soak;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tidegate_testkit::port::Port;

use crate::demo::Demo;
use crate::support::{Folder, Server, text};

const RULES: &str = "\
rules:
  - id: writes
    match: { endpoint: \"POST /api/*\" }
    key_by: api_key
    limit: { requests: 10, window: 1h, algorithm: token_bucket, burst: 20 }
  - id: one-each
    match: { method: GET }
    key_by: user_id
    limit: 1/h using fixed_window
  - { id: quiet, key_by: ip, limit: 5/h, mode: shadow }
";

const WRITE: &str = "a-token-for-writing";
const READ: &str = "a-token-for-reading";

/// A script that is on its way.
fn script(name: &str, args: &Value) -> Child {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = root.join("../../target/node/node_modules");
    assert!(
        modules.join("playwright-core").exists(),
        "playwright-core is missing: run `cargo xtask setup`"
    );
    let mut args = args.clone();
    args["chromium"] = json!(chromium());
    // It ends in time, whatever a browser is up to.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "600", "node"]).arg(root.join("tests/dashboard").join(name));
    command.arg(args.to_string()).env("NODE_PATH", modules);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Where Debian has it.
fn chromium() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    found.find(|file| file.exists()).expect("chromium is missing: run `cargo xtask setup`")
}

/// Runs a script to its end, which must be a good one; says what it told.
#[track_caller]
fn run(name: &str, args: &Value) -> Value {
    told(script(name, args))
}

#[track_caller]
fn told(script: Child) -> Value {
    let output = script.wait_with_output().unwrap();
    let (told, error) = (text(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{error}");
    serde_json::from_str(told.trim()).unwrap_or_else(|why| panic!("{why}: {told}\n{error}"))
}

/// A server with an admin door, and what scripts need to know of it.
fn serve(folder: &Folder, more: &[&str]) -> (Server, Value) {
    let file = folder.write("rules.yaml", RULES);
    let server = Server::with_config(&file, &[&["--admin", "127.0.0.1:0"], more].concat());
    let args = json!({"base": format!("http://{}", server.admin()), "door": server.address});
    (server, args)
}

#[test]
fn every_page_comes_without_a_complaint_and_says_what_to_do() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    let told = run("loads.js", &args);
    assert_eq!(told["titles"].as_array().unwrap().len(), 3 * 7, "{told}");
    server.stop();
}

#[test]
fn numbers_move_and_agree_with_the_metrics() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    assert!(run("numbers.js", &args)["refused"].as_u64() > Some(0));
    server.stop();
}

#[test]
fn a_rule_is_edited_checked_applied_and_rolled_back() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    let told = run("rules.js", &args);
    let versions = told["versions"].as_array().unwrap();
    assert_eq!(
        versions[..4],
        [
            json!([5, "dashboard", "enabled in the dashboard"]),
            json!([4, "dashboard", "disabled in the dashboard"]),
            json!([3, "dashboard", "went back to version 1"]),
            json!([2, "ann", "they asked for it – twice"]),
        ]
    );
    server.stop();
}

#[test]
fn nobody_overwrites_what_they_have_not_seen() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    run("stale.js", &args);
    server.stop();
}

#[test]
fn hostile_names_stay_text_and_break_nothing() {
    let folder = Folder::new();
    let token = folder.write("token", "open-sesame-open\n");
    let more = ["--violations-identity", "plain", "--admin-token-file", token.to_str().unwrap()];
    let (server, mut args) = serve(&folder, &more);
    args["token"] = json!("open-sesame-open");
    run("hostile.js", &args);
    server.stop();
}

#[test]
fn a_token_is_asked_for_and_kept_in_the_tab() {
    let folder = Folder::new();
    let (write, read) = (folder.write("write", WRITE), folder.write("read", READ));
    let files = [write.to_str().unwrap(), read.to_str().unwrap()];
    let more = ["--admin-token-file", files[0], "--admin-read-token-file", files[1]];
    let (server, mut args) = serve(&folder, &more);
    (args["write"], args["read"]) = (json!(WRITE), json!(READ));
    run("token.js", &args);
    server.stop();
}

#[test]
fn the_keyboard_is_enough() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    run("keyboard.js", &args);
    server.stop();
}

#[test]
fn nothing_serious_is_found_by_axe() {
    let demo = Demo::start(&[]);
    let told = run("axe.js", &json!({"base": format!("http://{}", demo.dashboard())}));
    assert!(told["rules"].as_u64() > Some(400), "it looked: {told}");
}

/// The server goes while the page is open, which does not keep it from going; another comes in its place.
#[test]
fn a_lost_connection_is_shown_and_comes_back() {
    let folder = Folder::new();
    let file = folder.write("rules.yaml", RULES);
    let port = Port::take();
    let at = port.address().to_string();
    let start = || Server::with_config(&file, &["--admin", &at]);
    let server = start();
    let mut script = script("lost.js", &json!({"base": format!("http://{at}")}));
    let mut lines = BufReader::new(script.stderr.take().unwrap()).lines();
    let mut until = |word: &str| {
        let mut before = String::new();
        loop {
            match lines.next() {
                Some(Ok(line)) if line == word => break,
                Some(Ok(line)) => before.push_str(&line),
                _ => panic!("it ended before `{word}`: {before}"),
            }
        }
    };
    until("open");
    server.stop();
    until("lost");
    let server = start();
    told(script);
    server.stop();
}
