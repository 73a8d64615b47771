//! `tidegate top` without a terminal: one picture as text or JSON, and why there is none.

use super::{RULES, read, write};
use crate::admin::Office;
use crate::support::{run, text};

#[test]
fn one_picture_is_told_where_there_is_no_terminal() {
    let office = Office::with(RULES, &[]);
    write(&office.server, 5);
    read(&office.server, "ann", 1);
    let told = office.well(&["top"]);
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
    assert_eq!(office.well(&["top", "--once"]).lines().next(), told.lines().next());
}

#[test]
fn programs_get_json() {
    let office = Office::with(RULES, &[]);
    write(&office.server, 5);
    let told = office.json(&["top"]);
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
    let office = Office::with(&rules, &[]);
    let told = office.well(&["top"]);
    let row = |id: &str| told.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    assert!(row("unused").contains("disabled") && !row("unused").contains("enforce"), "{told}");
    assert!(row("writes").contains("enforce"), "{told}");
    let rules = office.json(&["top"])["rules"].clone();
    let unused = rules.as_array().unwrap().iter().find(|rule| rule["id"] == "unused").unwrap();
    assert_eq!((&unused["is_active"], &unused["mode"]), (&false.into(), &"enforce".into()));
}

#[test]
fn who_cannot_watch_hears_why() {
    let nobody = run(&["top", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(text(&nobody.stderr).contains("no answer from http://127.0.0.1:1"), "{nobody:?}");
    let office = Office::with(RULES, &[]);
    let door = run(&["top", "--admin", &office.server.address]);
    assert_eq!(door.status.code(), Some(3));
    assert!(text(&door.stderr).contains("it is not the admin API"), "{door:?}");
    let token = office.folder.write("token", "open-sesame-open\n");
    let closed = Office::with(RULES, &["--admin-token-file", token.to_str().unwrap()]);
    let refused = closed.run(&["top"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("--token-file"), "{refused:?}");
    assert!(closed.well(&["top", "--token-file", token.to_str().unwrap()]).contains("store"));
}
