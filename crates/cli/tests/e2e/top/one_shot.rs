//! `tidegate top` without a terminal: one snapshot as text or JSON, and connection errors.

use super::{RULES, send_reads, send_writes};
use crate::admin_cli::AdminCliFixture;
use crate::support::{run_tidegate, utf8_text};

#[test]
fn piped_top_prints_one_snapshot() {
    let fixture = AdminCliFixture::start_with(RULES, &[]);
    send_writes(&fixture.server, 5);
    send_reads(&fixture.server, "ann", 1);
    let text = fixture.run_ok(&["top"]);
    for words in [
        "ready, up ",
        "version 1 of ",
        "store      memory",
        "6 since the start",
        "rule ",
        "writes",
        "–",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        text.contains("\nrefused  rule    client\n3        writes  ip=203.0.113.7\n"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(fixture.run_ok(&["top", "--once"]).lines().next(), text.lines().next());
}

#[test]
fn json_top_prints_one_snapshot() {
    let fixture = AdminCliFixture::start_with(RULES, &[]);
    send_writes(&fixture.server, 5);
    let snapshot = fixture.run_json(&["top"]);
    assert_eq!(
        (&snapshot["decisions"], &snapshot["pid"]),
        (&5.into(), &fixture.server.pid().into())
    );
    let rules = snapshot["rules"].as_array().unwrap();
    let writes = rules.iter().find(|rule| rule["id"] == "writes").unwrap();
    assert_eq!((&writes["verdicts"]["allow"], &writes["verdicts"]["deny"]), (&2.into(), &3.into()));
    assert_eq!(writes["max_in_window"], 4);
    let refused = snapshot["keys"].as_array().unwrap().iter().find(|key| key["kind"] == "refused");
    assert_eq!(refused.unwrap()["count"], 3);
}

#[test]
fn disabled_rule_is_shown_as_disabled() {
    let rules = RULES.replace("limit: 5/h }", "limit: 5/h, is_active: false }");
    let fixture = AdminCliFixture::start_with(&rules, &[]);
    let text = fixture.run_ok(&["top"]);
    let row = |id: &str| text.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    assert!(row("unused").contains("disabled") && !row("unused").contains("enforce"), "{text}");
    assert!(row("writes").contains("enforce"), "{text}");
    let rules = fixture.run_json(&["top"])["rules"].clone();
    let unused = rules.as_array().unwrap().iter().find(|rule| rule["id"] == "unused").unwrap();
    assert_eq!((&unused["is_active"], &unused["mode"]), (&false.into(), &"enforce".into()));
}

#[test]
fn top_explains_connection_errors() {
    let unreachable = run_tidegate(&["top", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(3));
    let errors = utf8_text(&unreachable.stderr);
    assert!(errors.contains("no answer from http://127.0.0.1:1"), "{errors}");
    let fixture = AdminCliFixture::start_with(RULES, &[]);
    let wrong_listener = run_tidegate(&["top", "--admin", &fixture.server.address]);
    assert_eq!(wrong_listener.status.code(), Some(3));
    let errors = utf8_text(&wrong_listener.stderr);
    assert!(errors.contains("it is not the admin API"), "{errors}");
    let token = fixture.folder.write("token", "open-sesame-open\n");
    let with_token =
        AdminCliFixture::start_with(RULES, &["--admin-token-file", token.to_str().unwrap()]);
    let refused = with_token.run(&["top"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("--token-file"), "{refused:?}");
    let allowed = with_token.run_ok(&["top", "--token-file", token.to_str().unwrap()]);
    assert!(allowed.contains("store"));
}
