//! A process that is killed while it changes its rules: the next one finds the old version or the new, never half.

use serde_json::json;

use super::fleet::told;
use super::{admin, serve, soak, version};
use crate::support::Folder;

const MANY: usize = 300;

/// Many rules, all of one number, so that half of a change would show.
fn document(number: u64) -> String {
    let many: String = (0..MANY)
        .map(|at| {
            format!(
                "  - {{ id: r{at}, key_by: f{at}, match: {{ kind: other }}, limit: {}/h }}\n",
                number + 1
            )
        })
        .collect();
    let facts: String = (0..MANY).map(|at| format!(", f{at}")).collect();
    let declared = format!("facts: [kind{facts}]");
    format!("{}{many}", super::fleet::pair(number).replace("facts: [kind]", &declared))
}

/// How long a kill waits, in looks at a file: closer to the instant of the change each time, from both sides.
#[derive(Default)]
struct Aim {
    too_early: u64,
    too_late: Option<u64>,
}

impl Aim {
    fn looks(&self) -> u64 {
        match self.too_late {
            None => (self.too_early * 2).max(1_000),
            Some(too_late) => self.too_early.midpoint(too_late),
        }
    }

    fn saw(&mut self, looks: u64, changed: bool) {
        if changed {
            self.too_late = Some(looks);
        } else {
            self.too_early = looks;
        }
    }
}

/// What a process finds when it starts: the number of its rules, which must be one, and its version.
fn found(folder: &Folder, url: &str) -> (u64, u64) {
    let server = serve(&folder.path("rules.yaml"), &["--rules-db", url]);
    let found = told(&mut server.client());
    let list = admin(&server).get("/v1/rules?limit=1000").body;
    let limits = list["rules"].as_array().unwrap().iter().skip(2);
    let limits: Vec<_> = limits.map(|rule| rule["rule"]["limit"].clone()).collect();
    assert_eq!(limits, vec![json!(format!("{}/h", found + 1)); MANY]);
    let version = version(&mut admin(&server));
    server.stop();
    (found, version)
}

#[test]
fn killed_in_the_middle_of_a_change_it_has_the_old_rules_or_the_new() {
    let folder = Folder::new();
    folder.write("rules.yaml", document(0));
    let url = format!("sqlite:{}", folder.path("office.db").display());
    let (mut before, mut aim) = (found(&folder, &url), Aim::default());
    for round in 1..=if soak() { 100 } else { 14 } {
        let server = serve(&folder.path("rules.yaml"), &["--rules-db", &url]);
        let mut editor = admin(&server);
        let looks = aim.looks();
        editor.send_ask("PUT /v1/document", &[("if-match", "*")], &document(round));
        for _ in 0..looks {
            let _ = std::fs::metadata(folder.path("office.db-wal"));
        }
        server.signal("KILL");
        drop(server);
        let after = found(&folder, &url);
        let new = (round, before.1 + 1);
        assert!(after == before || after == new, "round {round}: {after:?} after {before:?}");
        aim.saw(looks, after == new);
        before = after;
    }
    assert!(before.1 > 1 && aim.too_early > 0, "kills came before the change and after it");
}
