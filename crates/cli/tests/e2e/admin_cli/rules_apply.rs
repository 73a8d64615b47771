//! Documents against the rules in force: shown, asked about, applied.

use super::pseudo_terminal::PseudoTerminal;
use super::{AdminCliFixture, RULES};

/// More for writers, a rule less, a rule more, and nothing else: that `quiet` moves up is no change.
fn changed_rules() -> String {
    let kept = RULES.replace("requests: 10", "requests: 15");
    let (before, after) = kept.split_once("  - id: per-user").unwrap();
    let (_, quiet) = after.split_once("  - id: quiet").unwrap();
    format!("{before}  - id: quiet{quiet}  - {{ id: late, key_by: ip, limit: 9/h }}\n")
}

const EXPECTED_DIFF: &str = "\
- rule per-user
~ rule writes
    ~ limit.requests: 10 -> 15
+ rule late
    + key_by: ip
    + limit: 9/h
";

#[test]
fn diff_lists_changed_rules_and_fields() {
    let office = AdminCliFixture::start();
    let (same, other) = (
        office.write_document("same.yaml", RULES),
        office.write_document("new.yaml", &changed_rules()),
    );
    assert_eq!(office.run_ok(&["rules", "diff", &same]), "no difference to version 1\n");
    let differs = office.run(&["rules", "diff", &other]);
    assert_eq!((differs.code, differs.stderr.as_str()), (Some(1), ""));
    assert_eq!(differs.stdout, EXPECTED_DIFF);
    assert_eq!(office.run_json(&["rules", "history"])["versions"].as_array().unwrap().len(), 1);
}

#[test]
fn diff_reports_changed_rule_order() {
    let office = AdminCliFixture::start();
    let (first, rest) =
        RULES.strip_prefix("rules:\n").unwrap().split_once("  - id: per-user").unwrap();
    let swapped = format!("rules:\n  - id: per-user{rest}{first}");
    let differs = office.run(&["rules", "diff", &office.write_document("swapped.yaml", &swapped)]);
    assert_eq!(
        (differs.code, differs.stdout.as_str()),
        (Some(1), "~ order: 3 rules stand elsewhere\n")
    );
}

#[test]
fn apply_records_version_and_is_idempotent() {
    let office = AdminCliFixture::start();
    let file = office.write_document("new.yaml", &changed_rules());
    let refused = office.run(&["rules", "apply", &file]);
    refused.assert_failed(2, &["stdin is no terminal", "nothing was changed", "--yes"]);
    let apply = ["rules", "apply", &file, "--yes", "--reason", "für alle"];
    assert_eq!(office.run_ok(&apply), format!("{EXPECTED_DIFF}applied: version 2 is in force\n"));
    assert_eq!(office.run_ok(&apply), "nothing to change: version 2 says the same\n");
    let history = office.run_json(&["rules", "history"]);
    let (author, reason) = (&history["versions"][0]["author"], &history["versions"][0]["reason"]);
    assert_eq!((author.as_str(), reason.as_str()), (Some("ann"), Some("für alle")));
    let ids = office.run_json(&["rules", "list"]);
    let ids: Vec<&str> =
        ids["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["writes", "quiet", "late"]);
}

#[test]
fn apply_asks_for_confirmation() {
    let office = AdminCliFixture::start();
    let file = office.write_document("new.yaml", &changed_rules());
    for (typed, code, words) in [
        ("\n", 1, "nothing was changed"),
        ("n\n", 1, "nothing was changed"),
        ("y\n", 0, "version 2 is in force"),
    ] {
        let mut terminal = PseudoTerminal::run(&office, &["rules", "apply", &file]);
        terminal.wait_for_text("Apply? [y/N] ");
        terminal.type_in(typed);
        let (ended, said) = terminal.wait_for_exit();
        assert_eq!(ended, Some(code), "{typed:?}: {said}");
        assert!(said.contains(words), "{typed:?}: {said}");
    }
}

#[test]
fn concurrent_change_is_not_overwritten() {
    let office = AdminCliFixture::start();
    let file = office.write_document("new.yaml", &changed_rules());
    office.run_ok(&["rules", "disable", "quiet"]);
    for (args, switch) in [
        (&["rules", "apply", &file][..], "enable"),
        (&["rules", "rollback", "1"], "disable"),
        (&["rules", "delete", "quiet"], "enable"),
    ] {
        let mut terminal = PseudoTerminal::run(&office, args);
        terminal.wait_for_text("[y/N] ");
        office.run_ok(&["rules", switch, "quiet"]);
        let before = office.run_ok(&["rules", "export"]);
        terminal.type_in("y\n");
        let (ended, said) = terminal.wait_for_exit();
        assert_eq!(ended, Some(1), "{said}");
        assert!(said.contains("somebody changed this meanwhile, in version"), "{said}");
        assert_eq!(office.run_ok(&["rules", "export"]), before, "{args:?}");
    }
}

#[test]
fn invalid_document_is_rejected_with_all_problems() {
    let office = AdminCliFixture::start();
    let file = office.write_document(
        "bad.yaml",
        "rules:\n  - { id: a, limit: 1/zz }\n  - { idd: b, limit: 1/s }\n",
    );
    for command in ["diff", "apply"] {
        let ended = office.run(&["rules", command, &file]);
        ended
            .assert_failed(1, &["bad.yaml is not valid", "line 2", "`zz`", "line 3", "write `id`"]);
    }
    assert_eq!(office.run_json(&["rules", "list"])["total"], 3);
}

#[test]
fn export_round_trips_without_difference() {
    let office = AdminCliFixture::start();
    let yaml = office.run_ok(&["rules", "export"]);
    let file = office.write_document("export.yaml", &yaml);
    assert_eq!(office.run_ok(&["rules", "diff", &file]), "no difference to version 1\n");
    let json = office.run_ok(&["rules", "export", "--format", "json"]);
    let file = office.write_document("export.json", &json);
    assert_eq!(office.run_ok(&["rules", "diff", &file]), "no difference to version 1\n");
    assert!(yaml.starts_with("rules:\n  - id: writes\n"), "{yaml}");
}
