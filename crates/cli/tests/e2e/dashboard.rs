//! The dashboard in a real Chromium, driven by playwright-core; `cargo xtask setup` installs both.
//! The browser scripts are in `tests/dashboard`; this module starts the servers for them.

mod browser_script;
mod fleet;
mod screenshots;
mod soak;

use serde_json::{Value, json};
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::redis::RedisServer;

use crate::demo::DemoProcess;
use crate::regions::{TwoRegions, await_borrowed, await_lent, await_state};
use crate::support::{RecordingUpstream, ServerProcess, TestFolder, run_curl, wait_for};
use browser_script::{BrowserScript, run_script};

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

const WRITE_TOKEN: &str = "a-token-for-writing";
const READ_TOKEN: &str = "a-token-for-reading";

/// A server with an admin listener, and the arguments that scripts need.
fn start_server(folder: &TestFolder, more: &[&str]) -> (ServerProcess, Value) {
    let file = folder.write("rules.yaml", RULES);
    let database = folder.database_url();
    let base = ["--admin", "127.0.0.1:0", "--rules-db", &database];
    let server = ServerProcess::with_config(&file, &[&base, more].concat());
    let args =
        json!({"base": format!("http://{}", server.admin_address()), "http": server.address});
    (server, args)
}

#[test]
fn every_page_loads_without_errors() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    let report = run_script("loads.js", &args);
    assert_eq!(report["titles"].as_array().unwrap().len(), 3 * 7, "{report}");
    server.stop();
}

#[test]
fn live_numbers_agree_with_metrics() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    assert!(run_script("numbers.js", &args)["refused"].as_u64() > Some(0));
    server.stop();
}

/// The maximum that each algorithm admits for one key in any window, as in docs/concepts.md.
#[test]
fn rule_rows_show_window_bounds() {
    let rules = "rules:
  - { id: bucket, key_by: ip, limit: 10/m burst 25 }
  - { id: leaky, key_by: ip, limit: 10/m burst 15 using leaky_bucket }
  - { id: fixed, key_by: ip, limit: 6200/m using fixed_window, match: { method: GET } }
  - { id: log, key_by: ip, limit: 10/m using sliding_window_log, mode: shadow }
  - { id: counter, key_by: ip, limit: 9/m using sliding_window_counter }
  - { id: slots, key_by: ip, limit: { concurrent: 4, hold: 30s } }
  - { id: free, key_by: ip, limit: { requests: unlimited } }\n";
    let folder = TestFolder::new();
    let server =
        ServerProcess::with_config(&folder.write("rules.yaml", rules), &["--admin", "127.0.0.1:0"]);
    let bounds = json!([
        ["bucket", "35"],
        ["counter", "18"],
        ["fixed", "12,400"],
        ["free", "–"],
        ["leaky", "25"],
        ["log", "10"],
        ["slots", "4"],
    ]);
    run_script(
        "bounds.js",
        &json!({"base": format!("http://{}", server.admin_address()), "bounds": bounds}),
    );
    server.stop();
}

#[test]
fn rule_edit_applies_and_rolls_back() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    let report = run_script("rules.js", &args);
    let versions = report["versions"].as_array().unwrap();
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
fn layout_fits_a_phone_screen() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    run_script("phone.js", &args);
    server.stop();
}

#[test]
fn regions_page_shows_share_borrowed_and_lent() {
    let regions = TwoRegions::start();
    let (eu, us) = (regions.start_node("eu", &[]), regions.start_node("us", &[]));
    await_state(&eu, "usable");
    await_borrowed(&mut eu.client(), &json!({}));
    await_lent(&us, "eu");
    for (node, share, lent) in [
        (&eu, "50% in region eu", "^nothing yet$"),
        (&us, "30% in region us", "^to eu [1-9][\\d,]* units?, of which [\\d,]+ returned$"),
    ] {
        let base = format!("http://{}", node.admin_address());
        let args = json!({"base": base, "share": share, "lent": lent});
        run_script("regions.js", &args);
    }
    eu.stop();
    us.stop();
}

#[test]
fn client_filter_applies_to_all_tables() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    run_script("clients.js", &args);
    server.stop();
}

/// Leases and views that last longer than the test, and limits that refill only slightly.
const SHARED_RULES: &str = "\
rules:
  - id: lent
    key_by: ip
    limit: 1000/h burst 500
    consistency: leased
    lease: { ttl: 30s }
  - { id: soft, key_by: ip, limit: 1000/h, consistency: async, flush: 10s }
  - { id: strict, key_by: ip, limit: 1000/h, match: { method: GET } }
  - { id: free, key_by: ip, limit: { requests: unlimited } }
";

#[test]
fn consistency_and_holdings_are_shown() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    let url = redis.url();
    let more = ["--admin", "127.0.0.1:0", "--store", &url, "--store-deadline", "2s"];
    let server = ServerProcess::with_config(&folder.write("rules.yaml", SHARED_RULES), &more);
    let base = format!("http://{}", server.admin_address());
    run_script("consistency.js", &json!({"base": base, "http": server.address}));
    server.stop();
}

/// The steps that the server has recorded, as the first event of `/v1/live` sends them.
fn recorded_steps(server: &ServerProcess) -> Vec<Value> {
    let url = format!("http://{}/v1/live", server.admin_address());
    let text = run_curl(&["--no-buffer", "--max-time", "1", &url]).body;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or("{}");
    let event: Value = serde_json::from_str(data).unwrap_or_default();
    event["steps"].as_array().cloned().unwrap_or_default()
}

#[test]
fn charts_start_with_server_history() {
    let folder = TestFolder::new();
    let (server, mut args) = start_server(&folder, &[]);
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
    run_script("minutes.js", &args);
    server.stop();
}

#[test]
fn file_rules_are_shown_read_only() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    let server = ServerProcess::with_config(&file, &["--admin", "127.0.0.1:0"]);
    run_script("read_only.js", &json!({"base": format!("http://{}", server.admin_address())}));
    server.stop();
}

#[test]
fn untrusted_proxy_warning_is_shown_until_trusted() {
    let (folder, upstream) = (TestFolder::new(), RecordingUpstream::start());
    let rules = "rules: [{ id: a, limit: 5000/min }]";
    let file = folder.write("rules.yaml", rules);
    let args = ["--upstream", &upstream.url(), "--admin", "127.0.0.1:0"];
    let server = ServerProcess::start_gateway_with_config(&file, &args);
    let mut client = server.gateway_client();
    for _ in 0..20 {
        client.get_with("/", &[("x-forwarded-for", "203.0.113.7")]);
    }
    let base = format!("http://{}", server.admin_address());
    let mut script = BrowserScript::start("proxy.js", &json!({"base": base}));
    script.wait_for_line("warned");
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.1/32] } }";
    folder.replace_atomically("rules.yaml", format!("{trusts}\n{rules}"));
    script.finish();
    server.stop();
}

#[test]
fn stale_edit_is_rejected() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    run_script("stale.js", &args);
    server.stop();
}

#[test]
fn hostile_names_are_rendered_as_text() {
    let folder = TestFolder::new();
    let token = folder.write("token", "open-sesame-open\n");
    let more = ["--violations-identity", "plain", "--admin-token-file", token.to_str().unwrap()];
    let (server, mut args) = start_server(&folder, &more);
    args["token"] = json!("open-sesame-open");
    run_script("hostile.js", &args);
    server.stop();
}

#[test]
fn token_prompt_stores_token_per_tab() {
    let folder = TestFolder::new();
    let (write, read) = (folder.write("write", WRITE_TOKEN), folder.write("read", READ_TOKEN));
    let files = [write.to_str().unwrap(), read.to_str().unwrap()];
    let more = ["--admin-token-file", files[0], "--admin-read-token-file", files[1]];
    let (server, mut args) = start_server(&folder, &more);
    (args["write"], args["read"]) = (json!(WRITE_TOKEN), json!(READ_TOKEN));
    run_script("token.js", &args);
    server.stop();
}

#[test]
fn dashboard_is_usable_by_keyboard() {
    let folder = TestFolder::new();
    let (server, args) = start_server(&folder, &[]);
    run_script("keyboard.js", &args);
    server.stop();
}

#[test]
fn axe_finds_no_serious_violations() {
    let demo = DemoProcess::start(&[]);
    let report =
        run_script("axe.js", &json!({"base": format!("http://{}", demo.dashboard_address())}));
    assert!(report["rules"].as_u64() > Some(400), "axe checked few rules: {report}");
}

/// An open page does not keep the server from shutting down, and reconnects to the next one.
#[test]
fn lost_connection_is_shown_and_recovers() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    let port = ReservedPort::reserve();
    let at = port.address().to_string();
    let start = || ServerProcess::with_config(&file, &["--admin", &at]);
    let server = start();
    let mut script = BrowserScript::start("lost.js", &json!({"base": format!("http://{at}")}));
    script.wait_for_line("open");
    server.stop();
    script.wait_for_line("lost");
    let server = start();
    script.finish();
    server.stop();
}
