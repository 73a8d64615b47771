//! Rules of a file are changed in the file: every command that would change them says so.

use super::{AdminCliFixture, RULES};
use crate::control_plane::{admin_client, start_server};
use crate::support::wait_for;

#[test]
fn file_rules_reject_every_change_command() {
    let office = AdminCliFixture::start_with_file_rules();
    let file = office.write_document("new.yaml", &RULES.replace("5/h", "6/h"));
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
        office.run(args).assert_failed(1, &advice);
    }
    let ended = office.run(&["rules", "apply", &file]);
    ended.assert_failed(1, &advice);
    assert_eq!(ended.stdout, "", "it does not ask what cannot be");
    let status = admin_client(&office.server).get("/v1/status").body;
    assert_eq!(
        (&status["rules"]["source"], &status["rules"]["editable"]),
        (&"file".into(), &false.into())
    );
    let files = std::fs::read_dir(office.folder.path("")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["new.yaml", "rules.yaml"], "no database appears beside the file");
    assert_eq!(
        office.run_ok(&["rules", "diff", &office.write_document("same.yaml", RULES)]),
        NO_DIFFERENCE
    );
    assert!(office.run_ok(&["rules", "history"]).starts_with("no versions"));
}

const NO_DIFFERENCE: &str = "no difference to version 0\n";

/// One click on the dashboard must not make the file dead after a restart.
#[test]
fn file_stays_rule_source_after_rejected_change() {
    let office = AdminCliFixture::start_with_file_rules();
    assert_eq!(office.run(&["rules", "disable", "quiet"]).code, Some(1));
    let AdminCliFixture { server, folder, .. } = office;
    server.stop();
    let rules = folder.path("rules.yaml");
    let server = start_server(&rules, &[]);
    let limit = || {
        let rule = admin_client(&server).get("/v1/rules/quiet").body["rule"].clone();
        (rule["limit"].as_str().unwrap().to_owned(), rule["is_active"].clone())
    };
    assert_eq!(limit(), ("5/h".to_owned(), serde_json::Value::Null));
    folder.replace_atomically("rules.yaml", RULES.replace("5/h", "7/h"));
    wait_for("the edited file", || (limit().0 == "7/h").then_some(()));
}

/// What an earlier version left beside the file is not used, and that is said.
#[test]
fn leftover_database_is_reported_and_unused() {
    let office = AdminCliFixture::start();
    office.run_ok(&["rules", "disable", "quiet"]);
    let AdminCliFixture { server, folder, .. } = office;
    server.stop();
    std::fs::rename(folder.path("office.db"), folder.path("rules.db")).unwrap();
    let server = start_server(&folder.path("rules.yaml"), &[]);
    let rule = admin_client(&server).get("/v1/rules/quiet").body["rule"].clone();
    assert_eq!(rule["is_active"], serde_json::Value::Null, "{rule}");
    let log = server.log();
    assert!(log.contains("rules.db") && log.contains("--rules-db sqlite:PATH"), "{log}");
}
