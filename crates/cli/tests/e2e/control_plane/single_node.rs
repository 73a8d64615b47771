//! A single process with its own database: seeding from a file, and what survives a restart.

use serde_json::json;

use super::fleet::{active_pair, paired_rules};
use super::{admin_client, apply_document, rules_version, start_server};
use crate::support::{ServerProcess, SuccessorChain, TestFolder, wait_for};

#[test]
fn database_replaces_file_and_survives_restart() {
    let folder = TestFolder::new();
    let rules = folder.write("rules.yaml", paired_rules(0));
    let (database, start) =
        (folder.database_url(), |database| start_server(&rules, &["--rules-db", database]));
    let server = start(&database);
    assert_eq!(
        (active_pair(&mut server.client()), rules_version(&mut admin_client(&server))),
        (0, 1)
    );
    assert_eq!(
        apply_document(&mut admin_client(&server), &paired_rules(1)),
        2,
        "the seed is version 1"
    );
    let versions = admin_client(&server).get("/v1/versions/1").body;
    assert!(versions["reason"].as_str().unwrap().contains("rules.yaml"), "{versions}");
    assert_eq!(active_pair(&mut server.client()), 1);
    server.stop();

    let server = start(&database);
    assert_eq!(
        (active_pair(&mut server.client()), rules_version(&mut admin_client(&server))),
        (1, 2)
    );
    folder.replace_atomically("rules.yaml", paired_rules(3));
    server.wait_for_log("the rules come from the database, not from the file");
    assert_eq!(active_pair(&mut server.client()), 1);
    let back =
        admin_client(&server).request("POST /v1/versions/1/rollback", &[("if-match", "*")], "");
    assert_eq!((back.status, active_pair(&mut server.client())), (200, 0));
    server.stop();
}

/// Regression test: a copy of the database file alone lacked the changes in the write-ahead log.
#[test]
fn stopped_database_file_is_a_backup() {
    let folder = TestFolder::new();
    let url = |name: &str| format!("sqlite:{}", folder.path(name).display());
    let rules = folder.write("rules.yaml", paired_rules(0));
    let server = start_server(&rules, &["--rules-db", &url("tidegate.db")]);
    assert_eq!(apply_document(&mut admin_client(&server), &paired_rules(1)), 2);
    server.stop();
    let log = std::fs::metadata(folder.path("tidegate.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0, "the write-ahead log is empty");
    std::fs::copy(folder.path("tidegate.db"), folder.path("backup.db")).unwrap();
    let server = start_server(&rules, &["--rules-db", &url("backup.db")]);
    assert_eq!(
        (active_pair(&mut server.client()), rules_version(&mut admin_client(&server))),
        (1, 2)
    );
}

#[test]
fn only_database_violations_survive_restart() {
    let folder = TestFolder::new();
    let closed =
        |id: &str| format!("rules: [{{ id: {id}, key_by: user_id, limit: {{ requests: deny }} }}]");
    let rules = folder.write("rules.yaml", closed("deny"));
    let by_rule = |server: &ServerProcess| -> Vec<String> {
        let body = admin_client(server).get("/v1/violations?limit=100").body;
        let rows = body["violations"].as_array().unwrap().iter();
        rows.map(|row| row["rule"].as_str().unwrap().to_owned()).collect()
    };
    let database = folder.database_url();
    for (args, surviving) in [(&[][..], 0), (&["--rules-db", &database], 3)] {
        let server = start_server(&rules, args);
        let mut client = server.client();
        (0..3).for_each(|_| assert_eq!(client.check(&json!({"user_id": "u"})).status, 429));
        wait_for("recorded violations", || (by_rule(&server).len() == 3).then_some(()));
        let counts = admin_client(&server).get("/v1/status").body["violations"].clone();
        assert_eq!((&counts["written"], &counts["dropped"]), (&json!(3), &json!(0)));
        server.stop();
        assert_eq!(by_rule(&start_server(&rules, args)), vec!["deny"; surviving]);
    }
}

#[test]
fn successor_keeps_the_database_rules() {
    let folder = TestFolder::new();
    let url = folder.database_url();
    let server = start_server(&folder.write("rules.yaml", paired_rules(0)), &["--rules-db", &url]);
    let address = server.admin_address();
    let mut chain = SuccessorChain::new(&server);
    for round in 1..=3 {
        assert_eq!(apply_document(&mut admin_client(&server), &paired_rules(round)), round + 1);
        chain.replace_process();
        assert_eq!(server.admin_address(), address);
        assert_eq!(active_pair(&mut server.client()), round, "{}", server.log());
        assert_eq!(rules_version(&mut admin_client(&server)), round + 1);
    }
}

#[test]
fn public_admin_listener_requires_token() {
    let folder = TestFolder::new();
    let (write, read) = (
        folder.write("write", "write-0123456789-token\n"),
        folder.write("read", "read-0123456789-token\n"),
    );
    let files = [write.to_str().unwrap(), read.to_str().unwrap()];
    let output = crate::support::run_tidegate(&["serve", "--admin", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(crate::support::utf8_text(&output.stderr).contains("--admin-token-file FILE"));
    let database = folder.database_url();
    let args = ["--admin-token-file", files[0], "--admin-read-token-file", files[1]];
    let args = [&args[..], &["--rules-db", &database]].concat();
    let server = start_server(&folder.write("rules.yaml", paired_rules(0)), &args);
    let request = |bearer: &str, line: &str| {
        let headers =
            [("authorization", bearer), ("if-match", "*"), ("x-tidegate-confirm", "empty")];
        admin_client(&server).request(line, &headers, &json!({"rules": []}).to_string()).status
    };
    for (bearer, read, write) in [
        ("", 401, 401),
        ("Bearer read-0123456789-token", 200, 403),
        ("Bearer write-0123456789-token", 200, 200),
    ] {
        let statuses = (request(bearer, "GET /v1/rules"), request(bearer, "PUT /v1/document"));
        assert_eq!(statuses, (read, write));
    }
    let log = server.log() + &server.stdout();
    assert!(!log.contains("0123456789-token"), "{log}");
}
