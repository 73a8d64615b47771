//! A database seeded from a file is the source of rules; if the file differs later, the server
//! warns.

use serde_json::Value;

use super::fleet::{active_pair, paired_rules};
use super::{admin_client, apply_document, start_server};
use crate::support::{ServerProcess, TestFolder, wait_for};

fn readyz_body(server: &ServerProcess) -> Value {
    let response = server.client().get("/readyz");
    assert_eq!(response.status, 200, "a degraded server is still ready");
    response.body
}

#[track_caller]
fn wait_for_status(server: &ServerProcess, status: &str) -> Value {
    wait_for(status, || Some(readyz_body(server)).filter(|ready| ready["status"] == status))
}

#[test]
fn changed_seed_file_warns_until_applied() {
    let folder = TestFolder::new();
    let (rules, database) = (folder.write("rules.yaml", paired_rules(0)), folder.database_url());
    let start = || start_server(&rules, &["--rules-db", &database]);
    let server = start();
    // The rules in the database change; the file is still the same as its seed.
    apply_document(&mut admin_client(&server), &paired_rules(1));
    server.stop();
    let server = start();
    assert_eq!(wait_for_status(&server, "ready")["rules_warning"], Value::Null);
    server.stop();

    folder.replace_atomically("rules.yaml", paired_rules(3));
    let server = start();
    let degraded = wait_for_status(&server, "degraded");
    let warning = degraded["rules_warning"].as_str().unwrap();
    let words = "differs from the rules it seeded the database with";
    assert!(warning.contains(words) && warning.contains("tidegate rules apply"), "{warning}");
    server.wait_for_log(words);
    assert_eq!(active_pair(&mut server.client()), 1, "the database is the source of rules");
    apply_document(&mut admin_client(&server), &paired_rules(3));
    wait_for_status(&server, "ready");
    assert_eq!(active_pair(&mut server.client()), 3);

    folder.replace_atomically("rules.yaml", "rules: [{ id: x, limit: 1/zz }]");
    let warning = wait_for_status(&server, "degraded")["rules_warning"].clone();
    assert!(warning.as_str().unwrap().contains("not valid: line 1 (rules[0].limit)"), "{warning}");
    folder.replace_atomically("rules.yaml", paired_rules(0));
    wait_for_status(&server, "ready");
    assert_eq!(active_pair(&mut server.client()), 3);
}
