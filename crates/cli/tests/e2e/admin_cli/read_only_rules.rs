//! Rules from a file are read-only: every command that would change them explains that.

use super::{AdminCliFixture, RULES};
use crate::control_plane::{admin_client, start_server};
use crate::support::wait_for;

#[test]
fn file_rules_reject_every_change_command() {
    let fixture = AdminCliFixture::start_with_file_rules();
    let file = fixture.write_document("new.yaml", &RULES.replace("5/h", "6/h"));
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
        fixture.run(args).assert_failed(1, &advice);
    }
    let ended = fixture.run(&["rules", "apply", &file]);
    ended.assert_failed(1, &advice);
    assert_eq!(ended.stdout, "", "no confirmation prompt for a change that cannot be made");
    let status = admin_client(&fixture.server).get("/v1/status").body;
    assert_eq!(
        (&status["rules"]["source"], &status["rules"]["editable"]),
        (&"file".into(), &false.into())
    );
    let files = std::fs::read_dir(fixture.folder.path("")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["new.yaml", "rules.yaml"], "no database appears beside the file");
    assert_eq!(
        fixture.run_ok(&["rules", "diff", &fixture.write_document("same.yaml", RULES)]),
        NO_DIFFERENCE
    );
    assert!(fixture.run_ok(&["rules", "history"]).starts_with("no versions"));
}

const NO_DIFFERENCE: &str = "no difference from version 0\n";

/// After an attempted change and a restart, the file must still be the source of rules.
#[test]
fn file_stays_rule_source_after_rejected_change() {
    let fixture = AdminCliFixture::start_with_file_rules();
    assert_eq!(fixture.run(&["rules", "disable", "quiet"]).code, Some(1));
    let AdminCliFixture { server, folder, .. } = fixture;
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

/// A database that an earlier version created beside the file is not used, and the log says so.
#[test]
fn leftover_database_is_reported_and_unused() {
    let fixture = AdminCliFixture::start();
    fixture.run_ok(&["rules", "disable", "quiet"]);
    let AdminCliFixture { server, folder, .. } = fixture;
    server.stop();
    std::fs::rename(folder.path("tidegate.db"), folder.path("rules.db")).unwrap();
    let server = start_server(&folder.path("rules.yaml"), &[]);
    let rule = admin_client(&server).get("/v1/rules/quiet").body["rule"].clone();
    assert_eq!(rule["is_active"], serde_json::Value::Null, "{rule}");
    let log = server.log();
    assert!(log.contains("rules.db") && log.contains("--rules-db sqlite:PATH"), "{log}");
}
