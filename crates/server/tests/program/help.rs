//! The help texts, word by word.

use crate::support::{assert_golden, run, text, tidegate};

#[test]
fn every_help_text_is_as_it_was_reviewed() {
    for (name, args) in [
        ("help.txt", &["--help"][..]),
        ("help-serve.txt", &["serve", "--help"]),
        ("help-demo.txt", &["demo", "--help"]),
        ("help-check.txt", &["check", "--help"]),
        ("help-explain.txt", &["explain", "--help"]),
        ("help-bench.txt", &["bench", "--help"]),
        ("help-config.txt", &["config", "--help"]),
        ("help-config-check.txt", &["config", "check", "--help"]),
        ("help-import.txt", &["import", "--help"]),
        ("help-import-envoy-ratelimit.txt", &["import", "envoy-ratelimit", "--help"]),
        ("help-import-limitador.txt", &["import", "limitador", "--help"]),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert_golden(name, &text(&output.stdout));
    }
}

#[test]
fn every_help_text_of_the_rule_office_is_as_it_was_reviewed() {
    for words in [
        "rules",
        "rules list",
        "rules get",
        "rules apply",
        "rules diff",
        "rules delete",
        "rules enable",
        "rules disable",
        "rules history",
        "rules rollback",
        "rules export",
        "override",
        "override set",
        "override list",
        "override rm",
        "subject",
        "subject set",
        "subject list",
        "subject rm",
        "reset",
        "violations",
        "keys",
        "top",
        "db",
        "db migrate",
    ] {
        let args: Vec<&str> = words.split(' ').chain(["--help"]).collect();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert_golden(&format!("help-{}.txt", words.replace(' ', "-")), &text(&output.stdout));
    }
}

#[test]
fn the_version_is_told() {
    let output = run(&["--version"]);
    assert_eq!(text(&output.stdout), concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_to_write() {
    for (args, words) in [
        (&[][..], "Usage: tidegate"),
        (&["serv"][..], "serve"),
        (&["serve", "--htpp", "off"], "--http"),
        (&["serve", "--http", "somewhere"], "127.0.0.1:8081"),
        (&["serve", "--http", "off", "--resp", "off"], "every listener is off"),
        (&["serve", "rules.yaml"], "--config rules.yaml"),
        (&["serve", "--limit", "100 per minute"], "`100/min`"),
        (&["serve", "--limit", "10rps"], "`10/s`"),
        (&["serve", "--limit", "1sec"], "`100/1s`"),
        (&["serve", "--limit", "0/s"], "`1/s`"),
        (&["serve", "--limit=-5/s"], "`5/s`"),
        (&["serve", "--limit", "2/min by user"], "`user_id`"),
        (&["serve", "--limit", "2/min by api-key"], "`api_key`"),
        (&["serve", "--api-key-header", "x y"], "`x-api-key`"),
        (&["serve", "--snapshot-interval", "10"], "`10s`"),
        (&["serve", "--memory-limit", "1KiB"], "1MiB"),
        (&["serve", "--reset-style", "date"], "epoch, delta"),
        (&["serve", "--header-style", "rfc"], "all, x, ietf, legacy, none"),
        (&["serve", "--retry-jitter", "5"], "`10s`"),
        (&["serve", "--expose-headers=maybe"], "--expose-headers"),
        (&["check", "203.0.113.7"], "name=value"),
        (&["check", "ip=1.2.3.4", "--cost", "0"], "1.."),
        (&["check", "--limit", "1/s", "--server", "http://127.0.0.1:1"], "one or the other"),
        (&["check", "--server", "https://example.org"], "plain HTTP"),
        (&["check", "ip=1", "ip=2", "--limit", "1/s"], "ip"),
        (&["bench", "--seconds", "0"], "1.."),
        (&["import", "envoy"], "envoy-ratelimit"),
        (&["import", "envoy-ratelimit"], "DIR_OR_FILE"),
        (&["import", "limitador", "a.yaml", "b.yaml"], "b.yaml"),
    ] {
        let output = run(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains(words), "{args:?}: {told}");
        assert!(!told.contains('\u{1b}'), "no colours where there is no terminal: {told}");
    }
}

#[test]
fn colours_are_left_out_even_of_answers_when_they_are_piped() {
    for args in [&["check", "ip=1.2.3.4", "--limit", "1/s"][..], &["--help"], &["serve", "--help"]]
    {
        let output = tidegate().args(args).output().unwrap();
        assert!(!text(&output.stdout).contains('\u{1b}'), "{args:?}");
    }
}
