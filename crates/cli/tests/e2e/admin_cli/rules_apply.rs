//! `rules diff`, `rules apply` and `rules export`: comparing, confirming and applying documents.

use super::pseudo_terminal::PseudoTerminal;
use super::{AdminCliFixture, RULES};

/// `RULES` with one limit raised, one rule removed and one added. That `quiet` moves up because of
/// the removal is not a change of order.
fn changed_rules() -> String {
    let raised = RULES.replace("requests: 10", "requests: 15");
    let (before, after) = raised.split_once("  - id: per-user").unwrap();
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
    let fixture = AdminCliFixture::start();
    let (same, other) = (
        fixture.write_document("same.yaml", RULES),
        fixture.write_document("new.yaml", &changed_rules()),
    );
    assert_eq!(fixture.run_ok(&["rules", "diff", &same]), "no difference from version 1\n");
    let differs = fixture.run(&["rules", "diff", &other]);
    assert_eq!((differs.code, differs.stderr.as_str()), (Some(1), ""));
    assert_eq!(differs.stdout, EXPECTED_DIFF);
    assert_eq!(fixture.run_json(&["rules", "history"])["versions"].as_array().unwrap().len(), 1);
}

#[test]
fn diff_reports_changed_rule_order() {
    let fixture = AdminCliFixture::start();
    let (first, rest) =
        RULES.strip_prefix("rules:\n").unwrap().split_once("  - id: per-user").unwrap();
    let swapped = format!("rules:\n  - id: per-user{rest}{first}");
    let differs =
        fixture.run(&["rules", "diff", &fixture.write_document("swapped.yaml", &swapped)]);
    assert_eq!((differs.code, differs.stdout.as_str()), (Some(1), "~ order: 3 rules moved\n"));
}

#[test]
fn apply_records_version_and_is_idempotent() {
    let fixture = AdminCliFixture::start();
    let file = fixture.write_document("new.yaml", &changed_rules());
    let refused = fixture.run(&["rules", "apply", &file]);
    refused.assert_failed(2, &["stdin is not a terminal", "nothing was changed", "--yes"]);
    let apply = ["rules", "apply", &file, "--yes", "--reason", "für alle"];
    assert_eq!(fixture.run_ok(&apply), format!("{EXPECTED_DIFF}applied: version 2 is in force\n"));
    assert_eq!(fixture.run_ok(&apply), "nothing to change: version 2 is identical\n");
    let history = fixture.run_json(&["rules", "history"]);
    let (author, reason) = (&history["versions"][0]["author"], &history["versions"][0]["reason"]);
    assert_eq!((author.as_str(), reason.as_str()), (Some("ann"), Some("für alle")));
    let ids = fixture.run_json(&["rules", "list"]);
    let ids: Vec<&str> =
        ids["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["writes", "quiet", "late"]);
}

#[test]
fn apply_asks_for_confirmation() {
    let fixture = AdminCliFixture::start();
    let file = fixture.write_document("new.yaml", &changed_rules());
    for (typed, code, words) in [
        ("\n", 1, "nothing was changed"),
        ("n\n", 1, "nothing was changed"),
        ("y\n", 0, "version 2 is in force"),
    ] {
        let mut terminal = PseudoTerminal::run(&fixture, &["rules", "apply", &file]);
        terminal.wait_for_text("Apply? [y/N] ");
        terminal.type_in(typed);
        let (ended, output) = terminal.wait_for_exit();
        assert_eq!(ended, Some(code), "{typed:?}: {output}");
        assert!(output.contains(words), "{typed:?}: {output}");
    }
}

#[test]
fn concurrent_change_is_not_overwritten() {
    let fixture = AdminCliFixture::start();
    let file = fixture.write_document("new.yaml", &changed_rules());
    fixture.run_ok(&["rules", "disable", "quiet"]);
    for (args, switch) in [
        (&["rules", "apply", &file][..], "enable"),
        (&["rules", "rollback", "1"], "disable"),
        (&["rules", "delete", "quiet"], "enable"),
    ] {
        let mut terminal = PseudoTerminal::run(&fixture, args);
        terminal.wait_for_text("[y/N] ");
        fixture.run_ok(&["rules", switch, "quiet"]);
        let before = fixture.run_ok(&["rules", "export"]);
        terminal.type_in("y\n");
        let (ended, output) = terminal.wait_for_exit();
        assert_eq!(ended, Some(1), "{output}");
        assert!(output.contains("this was changed in the meantime, in version"), "{output}");
        assert_eq!(fixture.run_ok(&["rules", "export"]), before, "{args:?}");
    }
}

#[test]
fn invalid_document_is_rejected_with_all_problems() {
    let fixture = AdminCliFixture::start();
    let file = fixture.write_document(
        "bad.yaml",
        "rules:\n  - { id: a, limit: 1/zz }\n  - { idd: b, limit: 1/s }\n",
    );
    for command in ["diff", "apply"] {
        let ended = fixture.run(&["rules", command, &file]);
        ended
            .assert_failed(1, &["bad.yaml is not valid", "line 2", "`zz`", "line 3", "write `id`"]);
    }
    assert_eq!(fixture.run_json(&["rules", "list"])["total"], 3);
}

#[test]
fn export_round_trips_without_difference() {
    let fixture = AdminCliFixture::start();
    let yaml = fixture.run_ok(&["rules", "export"]);
    let file = fixture.write_document("export.yaml", &yaml);
    assert_eq!(fixture.run_ok(&["rules", "diff", &file]), "no difference from version 1\n");
    let json = fixture.run_ok(&["rules", "export", "--format", "json"]);
    let file = fixture.write_document("export.json", &json);
    assert_eq!(fixture.run_ok(&["rules", "diff", &file]), "no difference from version 1\n");
    assert!(yaml.starts_with("rules:\n  - id: writes\n"), "{yaml}");
}
