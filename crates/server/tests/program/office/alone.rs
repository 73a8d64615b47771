//! One process with its own database: what a file seeds, and what stays over a restart.

use serde_json::json;

use super::fleet::{pair, told};
use super::{admin, apply, serve, version};
use crate::support::{Folder, Server, Successors, wait_for};

#[test]
fn the_database_takes_over_from_the_file_and_survives_a_restart() {
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", pair(0));
    let (database, start) =
        (folder.database(), |database| serve(&rules, &["--rules-db", database]));
    let server = start(&database);
    assert_eq!((told(&mut server.client()), version(&mut admin(&server))), (0, 1));
    assert_eq!(apply(&mut admin(&server), &pair(1)), 2, "1 is what the file said");
    let versions = admin(&server).get("/v1/versions/1").body;
    assert!(versions["reason"].as_str().unwrap().contains("rules.yaml"), "{versions}");
    assert_eq!(told(&mut server.client()), 1);
    server.stop();

    let server = start(&database);
    assert_eq!((told(&mut server.client()), version(&mut admin(&server))), (1, 2));
    folder.replace("rules.yaml", pair(3));
    server.wait_log("the rules are in the database, not in the file");
    assert_eq!(told(&mut server.client()), 1);
    let back = admin(&server).ask("POST /v1/versions/1/rollback", &[("if-match", "*")], "");
    assert_eq!((back.status, told(&mut server.client())), (200, 0));
    server.stop();
}

/// Found from outside: a copy of the database file alone lacked what was in its write-ahead log.
#[test]
fn copy_of_the_database_file_after_a_stop_is_a_backup() {
    let folder = Folder::new();
    let url = |name: &str| format!("sqlite:{}", folder.path(name).display());
    let rules = folder.write("rules.yaml", pair(0));
    let server = serve(&rules, &["--rules-db", &url("office.db")]);
    assert_eq!(apply(&mut admin(&server), &pair(1)), 2);
    server.stop();
    let log = std::fs::metadata(folder.path("office.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0, "nothing is left in the write-ahead log");
    std::fs::copy(folder.path("office.db"), folder.path("backup.db")).unwrap();
    let server = serve(&rules, &["--rules-db", &url("backup.db")]);
    assert_eq!((told(&mut server.client()), version(&mut admin(&server))), (1, 2));
}

#[test]
fn violations_of_a_database_survive_a_restart_and_those_of_a_file_do_not() {
    let folder = Folder::new();
    let closed =
        |id: &str| format!("rules: [{{ id: {id}, key_by: user_id, limit: {{ requests: deny }} }}]");
    let rules = folder.write("rules.yaml", closed("deny"));
    let by_rule = |server: &Server| -> Vec<String> {
        let body = admin(server).get("/v1/violations?limit=100").body;
        let rows = body["violations"].as_array().unwrap().iter();
        rows.map(|row| row["rule"].as_str().unwrap().to_owned()).collect()
    };
    let database = folder.database();
    for (args, left) in [(&[][..], 0), (&["--rules-db", &database], 3)] {
        let server = serve(&rules, args);
        let mut client = server.client();
        (0..3).for_each(|_| assert_eq!(client.check(&json!({"user_id": "u"})).status, 429));
        wait_for("them to be on record", || (by_rule(&server).len() == 3).then_some(()));
        let tally = admin(&server).get("/v1/status").body["violations"].clone();
        assert_eq!((&tally["written"], &tally["dropped"]), (&json!(3), &json!(0)));
        server.stop();
        assert_eq!(by_rule(&serve(&rules, args)), vec!["deny"; left]);
    }
}

#[test]
fn a_successor_goes_on_with_the_rules_of_the_database() {
    let folder = Folder::new();
    let url = folder.database();
    let server = serve(&folder.write("rules.yaml", pair(0)), &["--rules-db", &url]);
    let address = server.admin();
    let mut line = Successors::of(&server);
    for round in 1..=3 {
        assert_eq!(apply(&mut admin(&server), &pair(round)), round + 1);
        line.next();
        assert_eq!(server.admin(), address);
        assert_eq!(told(&mut server.client()), round, "{}", server.log());
        assert_eq!(version(&mut admin(&server)), round + 1);
    }
}

#[test]
fn an_admin_door_for_everybody_needs_a_token() {
    let folder = Folder::new();
    let (write, read) = (
        folder.write("write", "write-0123456789-token\n"),
        folder.write("read", "read-0123456789-token\n"),
    );
    let files = [write.to_str().unwrap(), read.to_str().unwrap()];
    let output = crate::support::run(&["serve", "--admin", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(crate::support::text(&output.stderr).contains("--admin-token-file FILE"));
    let database = folder.database();
    let args = ["--admin-token-file", files[0], "--admin-read-token-file", files[1]];
    let args = [&args[..], &["--rules-db", &database]].concat();
    let server = serve(&folder.write("rules.yaml", pair(0)), &args);
    let ask = |bearer: &str, line: &str| {
        let headers =
            [("authorization", bearer), ("if-match", "*"), ("x-tidegate-confirm", "empty")];
        admin(&server).ask(line, &headers, &json!({"rules": []}).to_string()).status
    };
    for (bearer, read, write) in [
        ("", 401, 401),
        ("Bearer read-0123456789-token", 200, 403),
        ("Bearer write-0123456789-token", 200, 200),
    ] {
        assert_eq!((ask(bearer, "GET /v1/rules"), ask(bearer, "PUT /v1/document")), (read, write));
    }
    let log = server.log() + &server.out();
    assert!(!log.contains("0123456789-token"), "{log}");
}
