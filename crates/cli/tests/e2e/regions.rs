//! Rules that divide their limit among regions: each node enforces the share of its region.

use serde_json::json;

use crate::support::{ServerProcess, TestFolder, run_tidegate, utf8_text};

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
