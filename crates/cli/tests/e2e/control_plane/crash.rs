//! A process killed while it changes its rules: the next process finds the old version or the new
//! one, never a mixture.

use serde_json::json;

use super::fleet::active_pair;
use super::{admin_client, is_soak, rules_version, start_server};
use crate::support::TestFolder;

const RULE_COUNT: usize = 300;

/// Many rules that all contain the same number, so that a partial change would be visible.
fn document_with_pair(number: u64) -> String {
    let many: String = (0..RULE_COUNT)
        .map(|at| {
            format!(
                "  - {{ id: r{at}, key_by: f{at}, match: {{ kind: other }}, limit: {}/h }}\n",
                number + 1
            )
        })
        .collect();
    let facts: String = (0..RULE_COUNT).map(|at| format!(", f{at}")).collect();
    let declared = format!("facts: [kind{facts}]");
    format!("{}{many}", super::fleet::paired_rules(number).replace("facts: [kind]", &declared))
}

/// Binary search for the moment of the change. The delay before a kill is counted in reads of a
/// file's metadata.
#[derive(Default)]
struct KillDelaySearch {
    too_early: u64,
    too_late: Option<u64>,
}

impl KillDelaySearch {
    fn next_delay(&self) -> u64 {
        match self.too_late {
            None => (self.too_early * 2).max(1_000),
            Some(too_late) => self.too_early.midpoint(too_late),
        }
    }

    fn record_result(&mut self, delay: u64, changed: bool) {
        if changed {
            self.too_late = Some(delay);
        } else {
            self.too_early = delay;
        }
    }
}

/// Starts a process and returns the number in its rules and its version; fails if the rules contain
/// different numbers.
fn start_and_read_rules(folder: &TestFolder, url: &str) -> (u64, u64) {
    let server = start_server(&folder.path("rules.yaml"), &["--rules-db", url]);
    let found = active_pair(&mut server.client());
    let list = admin_client(&server).get("/v1/rules?limit=1000").body;
    let limits = list["rules"].as_array().unwrap().iter().skip(2);
    let limits: Vec<_> = limits.map(|rule| rule["rule"]["limit"].clone()).collect();
    assert_eq!(limits, vec![json!(format!("{}/h", found + 1)); RULE_COUNT]);
    let version = rules_version(&mut admin_client(&server));
    server.stop();
    (found, version)
}

#[test]
fn killed_rule_change_is_all_or_nothing() {
    let folder = TestFolder::new();
    folder.write("rules.yaml", document_with_pair(0));
    let url = format!("sqlite:{}", folder.path("tidegate.db").display());
    let (mut before, mut search) =
        (start_and_read_rules(&folder, &url), KillDelaySearch::default());
    for round in 1..=if is_soak() { 100 } else { 14 } {
        let server = start_server(&folder.path("rules.yaml"), &["--rules-db", &url]);
        let mut editor = admin_client(&server);
        let delay = search.next_delay();
        editor.send_request("PUT /v1/document", &[("if-match", "*")], &document_with_pair(round));
        for _ in 0..delay {
            let _ = std::fs::metadata(folder.path("tidegate.db-wal"));
        }
        server.signal("KILL");
        drop(server);
        let after = start_and_read_rules(&folder, &url);
        let new = (round, before.1 + 1);
        assert!(after == before || after == new, "round {round}: {after:?} after {before:?}");
        search.record_result(delay, after == new);
        before = after;
    }
    assert!(before.1 > 1 && search.too_early > 0, "no kill before the change, or none after it");
}
