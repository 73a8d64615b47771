//! Rules one by one, and going back.

use super::AdminCliFixture;

#[test]
fn list_and_get_show_rules() {
    let office = AdminCliFixture::start();
    assert_eq!(
        office.run_ok(&["rules", "list"]),
        "\
rule      state    by       limit                           match
writes    enforce  api_key  requests=10 window=1h burst=20  endpoint=POST /api/*
per-user  enforce  user_id  2/30d using fixed_window        everything
quiet     shadow   ip       5/h                             path=/quiet
"
    );
    assert_eq!(
        office.run_ok(&["rules", "get", "quiet"]),
        "rules:\n  - id: quiet\n    match: { path: /quiet }\n    key_by: ip\n    limit: 5/h\n    mode: shadow\n"
    );
    let rule = office.run_json(&["rules", "get", "quiet"]);
    assert_eq!(
        (rule["position"].as_u64(), rule["rule"]["mode"].as_str()),
        (Some(2), Some("shadow"))
    );
}

#[test]
fn rule_is_disabled_enabled_and_deleted() {
    let office = AdminCliFixture::start();
    assert_eq!(office.run_ok(&["rules", "disable", "quiet"]), "disabled: rule quiet\n");
    assert!(office.run_ok(&["rules", "list"]).contains("quiet     disabled"));
    assert_eq!(office.run_ok(&["rules", "enable", "quiet"]), "enabled: rule quiet\n");
    office.run(&["rules", "delete", "quiet"]).assert_failed(2, &["Delete this rule?", "--yes"]);
    let out = office.run_ok(&["rules", "delete", "quiet", "--yes"]);
    assert!(out.starts_with("rules:\n  - id: quiet\n"), "what goes is shown: {out}");
    assert!(out.ends_with("deleted: version 4 is in force\n"), "{out}");
    office.run(&["rules", "get", "quiet"]).assert_failed(1, &["there is no rule `quiet`"]);
    office.run_ok(&["rules", "delete", "writes", "--yes"]);
    let last = ["rules", "delete", "per-user", "--yes"];
    office
        .run(&last)
        .assert_failed(1, &["nothing was changed: no rule would be left", "--allow-empty"]);
    office.run_ok(&[&last[..], &["--allow-empty"]].concat());
}

#[test]
fn rollback_shows_diff_and_restores_version() {
    let office = AdminCliFixture::start();
    office.run_ok(&[
        "rules",
        "delete",
        "quiet",
        "--yes",
        "--author",
        "bob",
        "--reason",
        "too quiet",
    ]);
    office.run(&["rules", "rollback", "9", "--yes"]).assert_failed(1, &["no version 9", "1 to 2"]);
    let out = office.run_ok(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(
        out,
        "+ rule quiet\n    + match.path: /quiet\n    + key_by: ip\n    + limit: 5/h\n    + mode: shadow\n\
         went back to version 1: version 3 is in force\n"
    );
    let again = office.run_ok(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(again, "nothing to change: version 3 says the same as version 1\n");
    let history = office.run_ok(&["rules", "history", "--most", "2"]);
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split("  ").collect()).collect();
    assert!(
        lines[1][0].starts_with('3') && history.contains("went back to version 1"),
        "{history}"
    );
    assert!(history.contains("bob") && history.contains("too quiet"), "{history}");
    assert!(history.ends_with("there are more: --most N\n"), "{history}");
}
