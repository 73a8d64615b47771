//! Rules of a file are changed in the file: every command that would change them says so.

use super::{Office, RULES};
use crate::office::{admin, serve};
use crate::support::wait_for;

#[test]
fn commands_that_change_rules_of_a_file_say_where_to_change_them() {
    let office = Office::of_file();
    let file = office.document("new.yaml", &RULES.replace("5/h", "6/h"));
    let advice = ["read-only", "they come from", "rules.yaml", "--rules-db sqlite:PATH"];
    for args in [
        &["rules", "apply", &file, "--yes"][..],
        &["rules", "enable", "quiet"],
        &["rules", "disable", "quiet"],
        &["rules", "delete", "quiet", "--yes"],
        &["rules", "rollback", "1", "--yes"],
        &["override", "set", "per-user", "user_id=42", "--requests", "500"],
        &["subject", "set", "user_id=42", "tier=paid"],
    ] {
        office.run(args).says(1, &advice);
    }
    let ended = office.run(&["rules", "apply", &file]);
    ended.says(1, &advice);
    assert_eq!(ended.out, "", "it does not ask what cannot be");
    let status = admin(&office.server).get("/v1/status").body;
    assert_eq!(
        (&status["rules"]["source"], &status["rules"]["editable"]),
        (&"file".into(), &false.into())
    );
    let files = std::fs::read_dir(office.folder.path("")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["new.yaml", "rules.yaml"], "no database appears beside the file");
    assert_eq!(office.well(&["rules", "diff", &office.document("same.yaml", RULES)]), SAME);
    assert!(office.well(&["rules", "history"]).starts_with("no versions"));
}

const SAME: &str = "no difference to version 0\n";

/// One click on the dashboard must not make the file dead after a restart.
#[test]
fn the_file_stays_the_source_of_rules_after_a_refused_change_and_a_restart() {
    let office = Office::of_file();
    assert_eq!(office.run(&["rules", "disable", "quiet"]).code, Some(1));
    let Office { server, folder, .. } = office;
    server.stop();
    let rules = folder.path("rules.yaml");
    let server = serve(&rules, &[]);
    let limit = || {
        let rule = admin(&server).get("/v1/rules/quiet").body["rule"].clone();
        (rule["limit"].as_str().unwrap().to_owned(), rule["is_active"].clone())
    };
    assert_eq!(limit(), ("5/h".to_owned(), serde_json::Value::Null));
    folder.replace("rules.yaml", RULES.replace("5/h", "7/h"));
    wait_for("the edited file", || (limit().0 == "7/h").then_some(()));
}

/// What an earlier version left beside the file is not used, and that is said.
#[test]
fn a_database_beside_the_file_is_named_and_not_used() {
    let office = Office::open();
    office.well(&["rules", "disable", "quiet"]);
    let Office { server, folder, .. } = office;
    server.stop();
    std::fs::rename(folder.path("office.db"), folder.path("rules.db")).unwrap();
    let server = serve(&folder.path("rules.yaml"), &[]);
    let rule = admin(&server).get("/v1/rules/quiet").body["rule"].clone();
    assert_eq!(rule["is_active"], serde_json::Value::Null, "{rule}");
    let log = server.log();
    assert!(log.contains("rules.db") && log.contains("--rules-db sqlite:PATH"), "{log}");
}
