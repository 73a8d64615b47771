//! Listing, disabling and deleting single rules, and rolling back to a version.

use super::AdminCliFixture;

#[test]
fn list_and_get_show_rules() {
    let fixture = AdminCliFixture::start();
    assert_eq!(
        fixture.run_ok(&["rules", "list"]),
        "\
rule      state    by       limit                           match
writes    enforce  api_key  requests=10 window=1h burst=20  endpoint=POST /api/*
per-user  enforce  user_id  2/30d using fixed_window        everything
quiet     shadow   ip       5/h                             path=/quiet
"
    );
    assert_eq!(
        fixture.run_ok(&["rules", "get", "quiet"]),
        "rules:\n  - id: quiet\n    match: { path: /quiet }\n    key_by: ip\n    limit: 5/h\n    mode: shadow\n"
    );
    let rule = fixture.run_json(&["rules", "get", "quiet"]);
    assert_eq!(
        (rule["position"].as_u64(), rule["rule"]["mode"].as_str()),
        (Some(2), Some("shadow"))
    );
}

#[test]
fn rule_is_disabled_enabled_and_deleted() {
    let fixture = AdminCliFixture::start();
    assert_eq!(fixture.run_ok(&["rules", "disable", "quiet"]), "disabled: rule quiet\n");
    assert!(fixture.run_ok(&["rules", "list"]).contains("quiet     disabled"));
    assert_eq!(fixture.run_ok(&["rules", "enable", "quiet"]), "enabled: rule quiet\n");
    fixture.run(&["rules", "delete", "quiet"]).assert_failed(2, &["Delete this rule?", "--yes"]);
    let out = fixture.run_ok(&["rules", "delete", "quiet", "--yes"]);
    assert!(out.starts_with("rules:\n  - id: quiet\n"), "the deleted rule is shown: {out}");
    assert!(out.ends_with("deleted: version 4 is in force\n"), "{out}");
    fixture.run(&["rules", "get", "quiet"]).assert_failed(1, &["there is no rule `quiet`"]);
    fixture.run_ok(&["rules", "delete", "writes", "--yes"]);
    let last = ["rules", "delete", "per-user", "--yes"];
    fixture
        .run(&last)
        .assert_failed(1, &["nothing was changed: no rule would be left", "--allow-empty"]);
    fixture.run_ok(&[&last[..], &["--allow-empty"]].concat());
}

#[test]
fn rollback_shows_diff_and_restores_version() {
    let fixture = AdminCliFixture::start();
    fixture.run_ok(&[
        "rules",
        "delete",
        "quiet",
        "--yes",
        "--author",
        "bob",
        "--reason",
        "too quiet",
    ]);
    fixture.run(&["rules", "rollback", "9", "--yes"]).assert_failed(1, &["no version 9", "1 to 2"]);
    let out = fixture.run_ok(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(
        out,
        "+ rule quiet\n    + match.path: /quiet\n    + key_by: ip\n    + limit: 5/h\n    + mode: shadow\n\
         rolled back to version 1: version 3 is in force\n"
    );
    let again = fixture.run_ok(&["rules", "rollback", "1", "--yes"]);
    assert_eq!(again, "nothing to change: version 3 is identical to version 1\n");
    let history = fixture.run_ok(&["rules", "history", "--max", "2"]);
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split("  ").collect()).collect();
    assert!(
        lines[1][0].starts_with('3') && history.contains("rolled back to version 1"),
        "{history}"
    );
    assert!(history.contains("bob") && history.contains("too quiet"), "{history}");
    assert!(history.ends_with("there are more; raise --max to list them\n"), "{history}");
}
