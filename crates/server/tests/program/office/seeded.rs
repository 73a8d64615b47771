//! A database that a file seeded: it is the source of rules, and a file that differs is named.

use serde_json::Value;

use super::fleet::{pair, told};
use super::{admin, apply, serve};
use crate::support::{Folder, Server, wait_for};

fn ready(server: &Server) -> Value {
    let answer = server.client().get("/readyz");
    assert_eq!(answer.status, 200, "degraded is not unready");
    answer.body
}

#[track_caller]
fn wait_status(server: &Server, status: &str) -> Value {
    wait_for(status, || Some(ready(server)).filter(|ready| ready["status"] == status))
}

#[test]
fn a_file_that_differs_from_what_it_seeded_is_named_until_it_is_applied() {
    let folder = Folder::new();
    let (rules, database) = (folder.write("rules.yaml", pair(0)), folder.database());
    let start = || serve(&rules, &["--rules-db", &database]);
    let server = start();
    // The database moves on; the file still says what it seeded.
    apply(&mut admin(&server), &pair(1));
    server.stop();
    let server = start();
    assert_eq!(wait_status(&server, "ready")["rules_warning"], Value::Null);
    server.stop();

    folder.replace("rules.yaml", pair(3));
    let server = start();
    let degraded = wait_status(&server, "degraded");
    let warning = degraded["rules_warning"].as_str().unwrap();
    let words = "differs from what it seeded the rules database with";
    assert!(warning.contains(words) && warning.contains("tidegate rules apply"), "{warning}");
    server.wait_log(words);
    assert_eq!(told(&mut server.client()), 1, "the database is the source of rules");
    apply(&mut admin(&server), &pair(3));
    wait_status(&server, "ready");
    assert_eq!(told(&mut server.client()), 3);

    folder.replace("rules.yaml", "rules: [{ id: x, limit: 1/zz }]");
    let warning = wait_status(&server, "degraded")["rules_warning"].clone();
    assert!(warning.as_str().unwrap().contains("not valid: line 1 (rules[0].limit)"), "{warning}");
    folder.replace("rules.yaml", pair(0));
    wait_status(&server, "ready");
    assert_eq!(told(&mut server.client()), 3);
}
