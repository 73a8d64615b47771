//! Rules one by one, and going back.

use super::Office;

#[test]
fn rules_are_listed_in_a_table_and_shown_as_they_are_written() {
    let office = Office::open();
    assert_eq!(
        office.well(&["rules", "list"]),
        "\
rule      state    by       limit                           match
writes    enforce  api_key  requests=10 window=1h burst=20  endpoint=POST /api/*
per-user  enforce  user_id  2/30d using fixed_window        everything
quiet     shadow   ip       5/h                             path=/quiet
"
    );
    assert_eq!(
        office.well(&["rules", "get", "quiet"]),
        "rules:\n  - id: quiet\n    match: { path: /quiet }\n    key_by: ip\n    limit: 5/h\n    mode: shadow\n"
    );
    let rule = office.json(&["rules", "get", "quiet"]);
    assert_eq!(
        (rule["position"].as_u64(), rule["rule"]["mode"].as_str()),
        (Some(2), Some("shadow"))
    );
}

#[test]
fn a_rule_is_switched_off_and_on_and_deleted() {
    let office = Office::open();
    assert_eq!(office.well(&["rules", "disable", "quiet"]), "disabled: rule quiet\n");
    assert!(office.well(&["rules", "list"]).contains("quiet     disabled"));
    assert_eq!(office.well(&["rules", "enable", "quiet"]), "enabled: rule quiet\n");
    office.run(&["rules", "delete", "quiet"]).says(2, &["Delete this rule?", "--yes"]);
    let out = office.well(&["rules", "delete", "quiet", "--yes"]);
    assert!(out.starts_with("rules:\n  - id: quiet\n"), "what goes is shown: {out}");
    assert!(out.ends_with("deleted: version 4 is in force\n"), "{out}");
    office.run(&["rules", "get", "quiet"]).says(1, &["there is no rule `quiet`"]);
    office.well(&["rules", "delete", "writes", "--yes"]);
    let last = ["rules", "delete", "per-user", "--yes"];
    office.run(&last).says(1, &["nothing was changed: no rule would be left", "--allow-empty"]);
    office.well(&[&last[..], &["--allow-empty"]].concat());
}

#[test]
fn a_version_is_gone_back_to_after_showing_what_that_changes() {
    let office = Office::open();
    office.well(&["rules", "delete", "quiet", "--yes", "--author", "bob", "--reason", "too quiet"]);
    office.run(&["rules", "rollback", "9", "--yes"]).says(1, &["no version 9", "1 to 2"]);
    let out = office.well(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(
        out,
        "+ rule quiet\n    + match.path: /quiet\n    + key_by: ip\n    + limit: 5/h\n    + mode: shadow\n\
         went back to version 1: version 3 is in force\n"
    );
    let again = office.well(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(again, "nothing to change: version 3 says the same as version 1\n");
    let history = office.well(&["rules", "history", "--most", "2"]);
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split("  ").collect()).collect();
    assert!(
        lines[1][0].starts_with('3') && history.contains("went back to version 1"),
        "{history}"
    );
    assert!(history.contains("bob") && history.contains("too quiet"), "{history}");
    assert!(history.ends_with("there are more: --most N\n"), "{history}");
}
