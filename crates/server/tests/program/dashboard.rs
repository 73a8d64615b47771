//! The dashboard in a real Chromium, driven by playwright-core; both come with `cargo xtask setup`. What is done in
//! the browser is in `tests/dashboard`, a script each; here are the servers that they are pointed at.

mod fleet;
mod pictures;
mod script;
mod soak;

use serde_json::{Value, json};
use tidegate_testkit::port::Port;

use crate::demo::Demo;
use crate::support::{Folder, Server, curl, wait_for};
use script::{Script, run};

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

/// A server with an admin door, and what scripts need to know of it.
fn serve(folder: &Folder, more: &[&str]) -> (Server, Value) {
    let file = folder.write("rules.yaml", RULES);
    let database = folder.database();
    let own = ["--admin", "127.0.0.1:0", "--rules-db", &database];
    let server = Server::with_config(&file, &[&own, more].concat());
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

/// What each algorithm admits to one key in a window, wherever it begins: the table of docs/concepts.md.
#[test]
fn the_bound_of_every_rule_is_in_its_row() {
    let rules = "rules:
  - { id: bucket, key_by: ip, limit: 10/m burst 25 }
  - { id: leaky, key_by: ip, limit: 10/m burst 15 using leaky_bucket }
  - { id: fixed, key_by: ip, limit: 6200/m using fixed_window, match: { method: GET } }
  - { id: log, key_by: ip, limit: 10/m using sliding_window_log, mode: shadow }
  - { id: counter, key_by: ip, limit: 9/m using sliding_window_counter }
  - { id: slots, key_by: ip, limit: { concurrent: 4, lease: 30s } }
  - { id: free, key_by: ip, limit: { requests: unlimited } }\n";
    let folder = Folder::new();
    let server =
        Server::with_config(&folder.write("rules.yaml", rules), &["--admin", "127.0.0.1:0"]);
    let bounds = json!([
        ["bucket", "35"],
        ["counter", "18"],
        ["fixed", "12,400"],
        ["free", "–"],
        ["leaky", "25"],
        ["log", "10"],
        ["slots", "4"],
    ]);
    run("bounds.js", &json!({"base": format!("http://{}", server.admin()), "bounds": bounds}));
    server.stop();
}

#[test]
fn a_rule_is_edited_checked_applied_and_rolled_back() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    let told = run("rules.js", &args);
    let versions = told["versions"].as_array().unwrap();
    assert_eq!(
        versions[..5],
        [
            json!([6, "ann", "undo: enabled in the dashboard"]),
            json!([5, "ann", "enabled in the dashboard"]),
            json!([4, "ann", "incident 7"]),
            json!([3, "ann", "rolled back to version 1"]),
            json!([2, "ann", "they asked for it – twice"]),
        ]
    );
    server.stop();
}

#[test]
fn rates_and_addresses_fit_a_phone() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    run("phone.js", &args);
    server.stop();
}

#[test]
fn client_is_followed_through_all_tables() {
    let folder = Folder::new();
    let (server, args) = serve(&folder, &[]);
    run("clients.js", &args);
    server.stop();
}

/// The steps that the server has recorded, as the first event of `/v1/live` sends them.
fn recorded_steps(server: &Server) -> Vec<Value> {
    let url = format!("http://{}/v1/live", server.admin());
    let text = curl(&["--no-buffer", "--max-time", "1", &url]).body;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or("{}");
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    event["steps"].as_array().cloned().unwrap_or_default()
}

#[test]
fn charts_start_with_the_last_minutes_of_the_server() {
    let folder = Folder::new();
    let (server, mut args) = serve(&folder, &[]);
    let mut client = server.client();
    let facts = json!({ "api_key": "one", "method": "POST", "path": "/api/orders" });
    (0..25).for_each(|_| _ = client.check(&facts));
    let decided = |steps: &[Value]| {
        let sum = |name: &str| steps.iter().filter_map(|step| step[name].as_u64()).sum::<u64>();
        sum("allowed") + sum("refused")
    };
    let steps = wait_for("three steps with all decisions", || {
        Some(recorded_steps(&server)).filter(|steps| steps.len() >= 3 && decided(steps) == 25)
    });
    args["steps"] = json!(steps.len());
    run("minutes.js", &args);
    server.stop();
}

#[test]
fn rules_of_a_file_are_shown_and_not_offered_for_change() {
    let folder = Folder::new();
    let file = folder.write("rules.yaml", RULES);
    let server = Server::with_config(&file, &["--admin", "127.0.0.1:0"]);
    run("read_only.js", &json!({"base": format!("http://{}", server.admin())}));
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
    let mut script = Script::start("lost.js", &json!({"base": format!("http://{at}")}));
    script.until("open");
    server.stop();
    script.until("lost");
    let server = start();
    script.end();
    server.stop();
}
