//! Rules that divide their limit among regions: each node enforces the share of its region.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::proxy::{DelayScope, FaultProxy};
use tidegate_testkit::redis::RedisServer as Redis;

use crate::support::server_process::collect_lines;
use crate::support::{
    HttpTestClient, ServerProcess, TestFolder, run_tidegate, utf8_text, wait_for,
};
use crate::telemetry::fetch_metrics;

/// Ten requests, which no test outlives.
const RULES: &str = "rules:
  - id: divided
    key_by: ip
    limit: { requests: 10, window: 365d, algorithm: fixed_window }
    regions: { shares: { eu: 70%, us: 30% } }
";

fn count_admitted(server: &ServerProcess) -> usize {
    let (mut client, facts) = (server.client(), json!({ "ip": "203.0.113.7" }));
    (0..20).filter(|_| client.check(&facts).body["allowed"] == true).count()
}

#[test]
fn each_region_admits_its_share() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    for (region, share) in [("eu", 7), ("us", 3)] {
        let server = ServerProcess::with_config(&file, &["--region", region]);
        assert_eq!(count_admitted(&server), share, "{region}");
    }
    let in_document = folder.write("eu.yaml", format!("server: {{ region: eu }}\n{RULES}"));
    assert_eq!(count_admitted(&ServerProcess::with_config(&in_document, &[])), 7);
    let from_flag = ServerProcess::with_config(&in_document, &["--region", "us"]);
    assert_eq!(count_admitted(&from_flag), 3, "the flag wins");
}

#[test]
fn explanation_shows_share_and_bound_of_all_regions() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    let file = file.to_str().unwrap();
    let output = run_tidegate(&["explain", "--config", file, "--region", "us", "ip=203.0.113.7"]);
    let text = utf8_text(&output.stdout);
    for expected in [
        "3 per 365d by fixed_window in region us: 30% of 10 per 365d by fixed_window",
        "at most 6 in any 365d in region us, 20 in all regions",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn node_without_share_does_not_start() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", RULES);
    let file = file.to_str().unwrap();
    for (args, expected) in [
        (vec!["serve", "--config", file], "this node has no region"),
        (vec!["serve", "--config", file, "--region", "ap"], "`ap` has no share"),
        (vec!["config", "check", file], "`--region eu`"),
    ] {
        let output = run_tidegate(&args);
        let text = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}\n{text}");
        assert!(text.contains(expected), "{args:?}\n{text}");
    }
    let output = run_tidegate(&["config", "check", file, "--region", "us"]);
    assert_eq!(output.status.code(), Some(0));
}

/// Borrowing needs room in the burst for units that live 500 ms.
const BORROWING: &str = "rules:
  - id: global
    key_by: global
    limit: 200/s burst 400
    consistency: leased
    regions: { shares: { eu: 50%, us: 30%, ap: 20% }, borrow: {} }
";

/// Two stores, and the rules of two regions.
pub struct TwoRegions {
    eu: Redis,
    us: Redis,
    folder: TestFolder,
}

impl TwoRegions {
    pub fn start() -> Self {
        let folder = TestFolder::new();
        folder.write("rules.yaml", BORROWING);
        Self { eu: Redis::start(), us: Redis::start(), folder }
    }

    pub fn start_node(&self, region: &str, args: &[&str]) -> ServerProcess {
        let (own, other, store) = match region {
            "eu" => (&self.eu, "us", &self.us),
            _ => (&self.us, "eu", &self.eu),
        };
        let (url, other) = (own.url(), format!("{other}={}", store.url()));
        let common = ["--region", region, "--store", &url, "--region-store", &other];
        let more = ["--admin", "127.0.0.1:0", "--store-deadline", "2s"];
        let args = [&common[..], &more, args].concat();
        ServerProcess::with_config(&self.folder.path("rules.yaml"), &args)
    }
}

/// Waits until a node says this of a region's store.
pub fn await_state(node: &ServerProcess, state: &str) -> Value {
    wait_for(&format!("region to be {state}"), || {
        let status = HttpTestClient::connect(&node.admin_address()).get("/v1/status").body;
        (status["regions"]["lenders"][0]["state"] == state).then_some(status)
    })
}

/// Waits until a node shows that the nodes of `borrower` borrowed units of the rule `global`.
/// Returns what it shows of the rule.
pub fn await_lent(lender: &ServerProcess, borrower: &str) -> Value {
    wait_for("lent units", || {
        let status = HttpTestClient::connect(&lender.admin_address()).get("/v1/status").body;
        let rule = status["regions"]["rules"]["global"].clone();
        (rule["lent"][borrower]["granted"].as_u64() > Some(0)).then_some(rule)
    })
}

/// Sends more requests than the share of the region admits, until one is admitted with a borrowed
/// unit.
pub fn await_borrowed(client: &mut HttpTestClient, facts: &Value) {
    wait_for("a borrowed unit to be spent", || {
        let mut is_borrowed = || client.check(facts).body["answered_by"] == "borrowed";
        (0..1_000).any(|_| is_borrowed()).then_some(())
    });
}

#[test]
fn region_lends_to_other_region_with_same_secret() {
    let regions = TwoRegions::start();
    let eu = regions.start_node("eu", &[]);
    // No node of the other region has marked its store yet.
    await_state(&eu, "mismatch");
    wait_for("the warnings", || {
        let status = HttpTestClient::connect(&eu.admin_address()).get("/readyz").body;
        let warnings = status["warnings"].to_string();
        let expected =
            ["nothing is borrowed from region us: no node", "--region-store ap=redis://"];
        expected.iter().all(|words| warnings.contains(words)).then_some(())
    });
    let us = regions.start_node("us", &[]);
    await_state(&eu, "usable");
    await_state(&us, "usable");
    let mut client = eu.client();
    await_borrowed(&mut client, &json!({}));
    let rules = HttpTestClient::connect(&eu.admin_address()).get("/v1/rules").body;
    let of_rule = &rules["rules"][0]["consistency"]["regions"];
    assert_eq!((&of_rule["region"], &of_rule["share"]), (&json!("eu"), &json!("50%")));
    let lender = &of_rule["borrow"]["lenders"][0];
    assert_eq!((&lender["region"], &lender["usable"]), (&json!("us"), &json!(true)));
    assert!(lender["spent"].as_u64() > Some(0), "{lender}");
    assert_eq!(of_rule["borrow"]["lenders"][1]["has_store"], json!(false), "ap");
    // Nodes of one region are no nodes of the other.
    assert_eq!(regions.us.command(&["ZCARD", "tg:nodes"]).integer(), 1);
    let metrics = fetch_metrics(&eu);
    for name in [
        "tidegate_region_up{region=\"us\"} 1",
        "tidegate_region_units_total{region=\"us\",event=\"spent\"}",
        "tidegate_region_exchange_seconds_count{region=\"us\"}",
    ] {
        assert!(metrics.contains(name), "{name}\n{metrics}");
    }
    eu.stop();
    us.stop();
}

/// The number of a metric with these labels.
fn metric(node: &ServerProcess, name: &str) -> u64 {
    let metrics = fetch_metrics(node);
    let number = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{name}\n{metrics}"))
}

#[test]
fn lender_shows_what_borrower_reports() {
    let regions = TwoRegions::start();
    let (eu, us) = (regions.start_node("eu", &[]), regions.start_node("us", &[]));
    await_state(&eu, "usable");
    await_borrowed(&mut eu.client(), &json!({}));
    let seen = await_lent(&us, "eu");
    assert_eq!((&seen["share"], &seen["lent"]["ap"]["granted"]), (&json!("30%"), &json!(0)));
    // Without more demand, both regions come to show the same numbers.
    let lent = wait_for("the same numbers in both regions", || {
        let names = ["granted", "returned"];
        let borrowed = names.map(|event| {
            metric(&eu, &format!("tidegate_region_units_total{{region=\"us\",event=\"{event}\"}}"))
        });
        let lent = names.map(|event| {
            let labels = format!("{{region=\"eu\",event=\"{event}\"}}");
            metric(&us, &format!("tidegate_region_units_lent_total{labels}"))
        });
        (borrowed == lent).then_some(lent[0])
    });
    let us_admin = format!("http://{}", us.admin_address());
    let top = run_tidegate(&["top", "--once", "--admin", &us_admin]);
    let text = utf8_text(&top.stdout);
    let row = text.lines().find(|line| line.starts_with("global")).unwrap_or_default();
    assert!(text.contains("share  borrowed  lent") && row.contains("30%"), "{text}");
    assert!(lent > 0);
    // A node that stops returns what it holds, and reports the last units.
    await_borrowed(&mut eu.client(), &json!({}));
    let eu_admin = HttpTestClient::connect(&eu.admin_address()).get("/v1/status").body;
    let granted = eu_admin["regions"]["rules"]["global"]["granted"].as_u64().unwrap();
    eu.stop();
    let field = |kind: &str| regions.us.command(&["HGET", "tg:lent", &format!("{kind} eu global")]);
    assert!(field("granted").integer() >= i64::try_from(granted).unwrap(), "{granted}");
    assert!(regions.us.command(&["PTTL", "tg:lent"]).integer() > 0, "it expires");
    us.stop();
}

/// A question to another region may take five minutes under these rules, longer than the test.
const PATIENT: &str = "rules:
  - id: patient
    key_by: global
    limit: { requests: 100, window: 365d, algorithm: fixed_window }
    consistency: leased
    regions: { shares: { eu: 50%, us: 50% }, borrow: { ttl: 10m, every: 10ms } }
";

/// The store of the other region runs a question, and its answer never arrives. Meanwhile the node
/// decides by its own share.
#[test]
fn no_request_waits_for_other_region() {
    let regions = TwoRegions::start();
    let file = regions.folder.write("rules.yaml", PATIENT);
    let us = regions.start_node("us", &[]);
    let link = FaultProxy::start(regions.us.address());
    let (own, other) = (regions.eu.url(), format!("us=redis://{}", link.address()));
    let args = ["--region", "eu", "--store", &own, "--region-store", &other];
    let more = ["--admin", "127.0.0.1:0", "--store-deadline", "2s"];
    let eu = ServerProcess::with_config(&file, &[&args[..], &more].concat());
    await_state(&eu, "usable");
    let idle = regions.us.command(&["DBSIZE"]).integer();
    link.delay(Duration::from_secs(600), DelayScope::Replies);
    let (mut client, facts) = (eu.client(), json!({}));
    let mut admitted = 0;
    let mut check = || {
        let answer = client.check(&facts).body;
        admitted += u64::from(answer["allowed"] == true);
        answer
    };
    wait_for("a question to the other region", || {
        check();
        (regions.us.command(&["DBSIZE"]).integer() > idle).then_some(())
    });
    for _ in 0..500 {
        let answer = check();
        assert_ne!(answer["answered_by"], "borrowed", "{answer}");
    }
    assert!((1..=50).contains(&admitted), "{admitted} of the share of 50");
    // The question is still in flight: none has been answered or given up.
    let metrics = fetch_metrics(&eu);
    for outcome in ["answered", "unanswered"] {
        let none =
            format!("tidegate_region_questions_total{{region=\"us\",outcome=\"{outcome}\"}} 0");
        assert!(metrics.contains(&none), "{none}\n{metrics}");
    }
    us.stop();
}

#[test]
fn other_key_secret_stops_borrowing() {
    let regions = TwoRegions::start();
    let secret = |name: &str, text: &str| regions.folder.write(name, text.repeat(4));
    let (one, two) = (secret("one", "0123456789"), secret("two", "9876543210"));
    let flag = |path: &Path| ["--key-secret-file".to_owned(), path.to_str().unwrap().to_owned()];
    let (one, two) = (flag(&one), flag(&two));
    let us = regions.start_node("us", &two.each_ref().map(String::as_str));
    let eu = regions.start_node("eu", &one.each_ref().map(String::as_str));
    let status = await_state(&eu, "mismatch");
    await_state(&us, "mismatch");
    eu.wait_for_log("nothing is borrowed from another region: its nodes have another");
    let process = wait_for("a degraded status", || {
        let ready = HttpTestClient::connect(&eu.admin_address()).get("/readyz");
        (ready.body["status"] == "degraded").then_some(ready.body)
    });
    let error = process["region_error"].to_string();
    assert!(error.contains("from region us: its nodes have another --key-secret-file"), "{error}");
    assert!(status["regions"]["lenders"][0]["reason"].to_string().contains("--key-secret-file"));
    let (rules, eu_url) = (regions.folder.path("rules.yaml"), regions.eu.url());
    let us_store = format!("us={}", regions.us.url());
    let mut args = vec!["doctor", "--config", rules.to_str().unwrap(), "--region", "eu"];
    args.extend(["--store", &eu_url, "--store-deadline", "2s", "--region-store", &us_store]);
    args.extend(one.iter().map(String::as_str));
    let output = run_tidegate(&args);
    let report = utf8_text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{report}");
    for expected in [
        "region      us, redis://127.0.0.1:",
        "region us: nothing is borrowed from it: its nodes have another --key-secret-file",
        "rule global: nothing is borrowed from region ap, which has no store here",
    ] {
        assert!(report.contains(expected), "{expected}\n{report}");
    }
}

#[test]
fn store_of_other_region_is_not_marked() {
    let regions = TwoRegions::start();
    let us = regions.start_node("us", &[]);
    wait_for("the marker", || {
        (regions.us.command(&["EXISTS", "tg:region"]).integer() == 1).then_some(())
    });
    let wrong = ServerProcess::with_config(
        &regions.folder.path("rules.yaml"),
        &["--region", "eu", "--store", &regions.us.url(), "--admin", "127.0.0.1:0"],
    );
    wrong.wait_for_log("--store is marked as the store of another region");
    let marker = regions.us.command(&["GET", "tg:region"]).text();
    assert!(marker.starts_with("us "), "{marker}");
    us.stop();
}

#[test]
fn doctor_warns_of_distant_region() {
    let regions = TwoRegions::start();
    let far = FaultProxy::start(regions.us.address());
    far.delay(Duration::from_millis(120), DelayScope::Both);
    let (rules, eu_url) = (regions.folder.path("rules.yaml"), regions.eu.url());
    let us_store = format!("us=redis://{}", far.address());
    let mut args = vec!["doctor", "--config", rules.to_str().unwrap(), "--region", "eu"];
    args.extend(["--store", &eu_url, "--store-deadline", "2s", "--region-store", &us_store]);
    let report = utf8_text(&run_tidegate(&args).stdout);
    assert!(report.contains("more than half of the `borrow` ttl of rule global"), "{report}");
    assert!(!report.contains("raise --store-deadline"), "{report}");
}

#[test]
fn doctor_warns_of_region_that_lends_too_little() {
    let regions = TwoRegions::start();
    let far = FaultProxy::start(regions.us.address());
    far.delay(Duration::from_millis(75), DelayScope::Both);
    let (rules, us_store) =
        (regions.folder.path("rules.yaml"), format!("us=redis://{}", far.address()));
    let tight = BORROWING.replace("borrow: {}", "borrow: { keep: 90% }");
    regions.folder.write("rules.yaml", tight);
    let eu_url = regions.eu.url();
    let mut args = vec!["doctor", "--config", rules.to_str().unwrap(), "--region", "eu"];
    args.extend(["--store", &eu_url, "--store-deadline", "2s", "--region-store", &us_store]);
    let report = utf8_text(&run_tidegate(&args).stdout);
    // Of a lending burst of 90, 10 % are lent; 60/s refill in at least 250 ms.
    assert!(
        report.contains("rule global: region us lends at most 9 units at once, but"),
        "{report}"
    );
    assert!(report.contains("a `burst` of "), "{report}");
    regions.folder.write("rules.yaml", BORROWING);
    let report = utf8_text(&run_tidegate(&args).stdout);
    assert!(!report.contains("units at once"), "{report}");
}

#[test]
fn mistaken_region_stores_are_usage_errors() {
    let folder = TestFolder::new();
    let file = folder.write("rules.yaml", BORROWING);
    let config = ["serve", "--config", file.to_str().unwrap()];
    let store = ["--store", "redis://127.0.0.1:1"];
    for (args, expected) in [
        (&["--region", "eu", "--region-store", "us=redis://h"][..], "counters of this node are in"),
        (&["--region", "eu", "--region-store", "us"], "the name of the region is missing"),
        (
            &[
                &["--region", "eu", "--region-store", "us=redis://h"][..],
                &["--region-store", "us=redis://i"],
                &store,
            ]
            .concat(),
            "region us has two stores",
        ),
    ] {
        let output = run_tidegate(&[&config, args].concat());
        let text = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}\n{text}");
        assert!(text.contains(expected), "{args:?}\n{text}");
    }
    let wrong = "server: { region: eu, region_stores: { us: 'redis://:hidden@h:x' } }\n";
    let file = folder.write("wrong.yaml", format!("{wrong}{BORROWING}"));
    let output = run_tidegate(&["config", "check", file.to_str().unwrap()]);
    let text = utf8_text(&output.stderr);
    assert!(text.contains("server.region_stores.us"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
    let wrong = "server: { region: eu, region_stores: { us: { url: 'redis://:hidden@h', password: \
                 hidden } } }\n";
    let file = folder.write("wrong.yaml", format!("{wrong}{BORROWING}"));
    let output = run_tidegate(&["config", "check", file.to_str().unwrap()]);
    let text = utf8_text(&output.stderr);
    assert!(text.contains("region_stores.us.password: unknown field"), "{text}");
    assert!(text.contains("url, user, password_file"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

/// Stops the script, which stops its servers.
struct ExampleRun(Child);

impl Drop for ExampleRun {
    fn drop(&mut self) {
        let kill = format!("kill -TERM {}", self.0.id());
        _ = Command::new("sh").args(["-c", &kill]).status();
        _ = self.0.wait();
    }
}

#[test]
fn example_script_runs_three_regions_that_borrow() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/regions");
    let mut command = Command::new(folder.join("run.sh"));
    command.env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate")).env("PORT", "0");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let out = collect_lines(child.stdout.take().unwrap());
    let run = ExampleRun(child);
    let node = wait_for("the nodes to listen", || {
        let out = out.lock().unwrap();
        out.contains("ready").then_some(())?;
        let line = out.lines().find_map(|line| line.strip_prefix("ap-1 listening http "));
        line.map(str::to_owned)
    });
    assert_eq!(out.lock().unwrap().matches("listening http").count(), 6);
    let mut client = HttpTestClient::connect(&node);
    await_borrowed(&mut client, &json!({ "api_key": "demo" }));
    drop(run);
    wait_for("the nodes to stop", || HttpTestClient::try_connect(&node).is_err().then_some(()));
}
