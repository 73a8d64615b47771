//! Documents against the rules in force: shown, asked about, applied.

use super::terminal::Terminal;
use super::{Office, RULES};

/// More for writers, a rule less, a rule more, and nothing else: that `quiet` moves up is no change.
fn changed() -> String {
    let kept = RULES.replace("requests: 10", "requests: 15");
    let (before, after) = kept.split_once("  - id: per-user").unwrap();
    let (_, quiet) = after.split_once("  - id: quiet").unwrap();
    format!("{before}  - id: quiet{quiet}  - {{ id: late, key_by: ip, limit: 9/h }}\n")
}

const DIFF: &str = "\
- rule per-user
~ rule writes
    ~ limit.requests: 10 -> 15
+ rule late
    + key_by: ip
    + limit: 9/h
";

#[test]
fn a_difference_is_told_by_rule_and_field_and_is_exit_code_1() {
    let office = Office::open();
    let (same, other) =
        (office.document("same.yaml", RULES), office.document("new.yaml", &changed()));
    assert_eq!(office.well(&["rules", "diff", &same]), "no difference to version 1\n");
    let differs = office.run(&["rules", "diff", &other]);
    assert_eq!((differs.code, differs.err.as_str()), (Some(1), ""));
    assert_eq!(differs.out, DIFF);
    assert_eq!(office.json(&["rules", "history"])["versions"].as_array().unwrap().len(), 1);
}

#[test]
fn rules_that_change_places_are_a_difference() {
    let office = Office::open();
    let (first, rest) =
        RULES.strip_prefix("rules:\n").unwrap().split_once("  - id: per-user").unwrap();
    let swapped = format!("rules:\n  - id: per-user{rest}{first}");
    let differs = office.run(&["rules", "diff", &office.document("swapped.yaml", &swapped)]);
    assert_eq!(
        (differs.code, differs.out.as_str()),
        (Some(1), "~ order: 3 rules stand elsewhere\n")
    );
}

#[test]
fn what_is_applied_is_in_force_on_record_and_says_nothing_the_second_time() {
    let office = Office::open();
    let file = office.document("new.yaml", &changed());
    let refused = office.run(&["rules", "apply", &file]);
    refused.says(2, &["stdin is no terminal", "nothing was changed", "--yes"]);
    let apply = ["rules", "apply", &file, "--yes", "--reason", "für alle"];
    assert_eq!(office.well(&apply), format!("{DIFF}applied: version 2 is in force\n"));
    assert_eq!(office.well(&apply), "nothing to change: version 2 says the same\n");
    let history = office.json(&["rules", "history"]);
    let (author, reason) = (&history["versions"][0]["author"], &history["versions"][0]["reason"]);
    assert_eq!((author.as_str(), reason.as_str()), (Some("ann"), Some("für alle")));
    let ids = office.json(&["rules", "list"]);
    let ids: Vec<&str> =
        ids["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["writes", "quiet", "late"]);
}

#[test]
fn a_person_is_asked_and_may_say_no() {
    let office = Office::open();
    let file = office.document("new.yaml", &changed());
    for (typed, code, words) in [
        ("\n", 1, "nothing was changed"),
        ("n\n", 1, "nothing was changed"),
        ("y\n", 0, "version 2 is in force"),
    ] {
        let mut terminal = Terminal::run(&office, &["rules", "apply", &file]);
        terminal.wait("Apply? [y/N] ");
        terminal.type_in(typed);
        let (ended, said) = terminal.end();
        assert_eq!(ended, Some(code), "{typed:?}: {said}");
        assert!(said.contains(words), "{typed:?}: {said}");
    }
}

#[test]
fn somebody_elses_change_between_question_and_answer_is_not_overwritten() {
    let office = Office::open();
    let file = office.document("new.yaml", &changed());
    office.well(&["rules", "disable", "quiet"]);
    for (args, switch) in [
        (&["rules", "apply", &file][..], "enable"),
        (&["rules", "rollback", "1"], "disable"),
        (&["rules", "delete", "quiet"], "enable"),
    ] {
        let mut terminal = Terminal::run(&office, args);
        terminal.wait("[y/N] ");
        office.well(&["rules", switch, "quiet"]);
        let before = office.well(&["rules", "export"]);
        terminal.type_in("y\n");
        let (ended, said) = terminal.end();
        assert_eq!(ended, Some(1), "{said}");
        assert!(said.contains("somebody changed this meanwhile, in version"), "{said}");
        assert_eq!(office.well(&["rules", "export"]), before, "{args:?}");
    }
}

#[test]
fn a_faulty_document_changes_nothing_and_everything_is_told_at_once() {
    let office = Office::open();
    let file = office
        .document("bad.yaml", "rules:\n  - { id: a, limit: 1/zz }\n  - { idd: b, limit: 1/s }\n");
    for command in ["diff", "apply"] {
        let ended = office.run(&["rules", command, &file]);
        ended.says(1, &["bad.yaml is not valid", "line 2", "`zz`", "line 3", "write `id`"]);
    }
    assert_eq!(office.json(&["rules", "list"])["total"], 3);
}

#[test]
fn an_export_is_a_document_that_says_the_same() {
    let office = Office::open();
    let yaml = office.well(&["rules", "export"]);
    let file = office.document("export.yaml", &yaml);
    assert_eq!(office.well(&["rules", "diff", &file]), "no difference to version 1\n");
    let json = office.well(&["rules", "export", "--format", "json"]);
    let file = office.document("export.json", &json);
    assert_eq!(office.well(&["rules", "diff", &file]), "no difference to version 1\n");
    assert!(yaml.starts_with("rules:\n  - id: writes\n"), "{yaml}");
}
