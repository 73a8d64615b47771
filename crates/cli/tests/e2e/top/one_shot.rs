//! `tidegate top` without a terminal: one picture as text or JSON, and why there is none.

use super::{RULES, send_reads, send_writes};
use crate::admin_cli::AdminCliFixture;
use crate::support::{run_tidegate, utf8_text};

#[test]
fn piped_top_prints_one_snapshot() {
    let office = AdminCliFixture::start_with(RULES, &[]);
    send_writes(&office.server, 5);
    send_reads(&office.server, "ann", 1);
    let told = office.run_ok(&["top"]);
    for words in [
        "ready, up ",
        "version 1 of ",
        "store      memory",
        "6 since the start",
        "rule ",
        "writes",
        "–",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(told.contains("\nrefused  rule    who\n3        writes  ip=203.0.113.7\n"), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
    assert_eq!(office.run_ok(&["top", "--once"]).lines().next(), told.lines().next());
}

#[test]
fn json_top_prints_one_snapshot() {
    let office = AdminCliFixture::start_with(RULES, &[]);
    send_writes(&office.server, 5);
    let told = office.run_json(&["top"]);
    assert_eq!((&told["decisions"], &told["pid"]), (&5.into(), &office.server.pid().into()));
    let rules = told["rules"].as_array().unwrap();
    let writes = rules.iter().find(|rule| rule["id"] == "writes").unwrap();
    assert_eq!((&writes["verdicts"]["allow"], &writes["verdicts"]["deny"]), (&2.into(), &3.into()));
    assert_eq!(writes["most_in_window"], 4);
    let refused = told["keys"].as_array().unwrap().iter().find(|key| key["kind"] == "refused");
    assert_eq!(refused.unwrap()["count"], 3);
}

#[test]
fn disabled_rule_is_shown_as_disabled() {
    let rules = RULES.replace("limit: 5/h }", "limit: 5/h, is_active: false }");
    let office = AdminCliFixture::start_with(&rules, &[]);
    let told = office.run_ok(&["top"]);
    let row = |id: &str| told.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    assert!(row("unused").contains("disabled") && !row("unused").contains("enforce"), "{told}");
    assert!(row("writes").contains("enforce"), "{told}");
    let rules = office.run_json(&["top"])["rules"].clone();
    let unused = rules.as_array().unwrap().iter().find(|rule| rule["id"] == "unused").unwrap();
    assert_eq!((&unused["is_active"], &unused["mode"]), (&false.into(), &"enforce".into()));
}

#[test]
fn top_explains_connection_errors() {
    let nobody = run_tidegate(&["top", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(utf8_text(&nobody.stderr).contains("no answer from http://127.0.0.1:1"), "{nobody:?}");
    let office = AdminCliFixture::start_with(RULES, &[]);
    let door = run_tidegate(&["top", "--admin", &office.server.address]);
    assert_eq!(door.status.code(), Some(3));
    assert!(utf8_text(&door.stderr).contains("it is not the admin API"), "{door:?}");
    let token = office.folder.write("token", "open-sesame-open\n");
    let closed =
        AdminCliFixture::start_with(RULES, &["--admin-token-file", token.to_str().unwrap()]);
    let refused = closed.run(&["top"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("--token-file"), "{refused:?}");
    assert!(closed.run_ok(&["top", "--token-file", token.to_str().unwrap()]).contains("store"));
}
