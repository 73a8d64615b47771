//! Help texts, the version, usage errors, and colors.

use crate::support::{assert_golden, run_tidegate, tidegate_command, utf8_text};

#[test]
fn help_texts_match_golden_files() {
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
        let output = run_tidegate(args);
        assert_eq!(output.status.code(), Some(0), "{name}");
        assert_golden(name, &utf8_text(&output.stdout));
    }
}

#[test]
fn admin_help_texts_match_golden_files() {
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
        let output = run_tidegate(&args);
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert_golden(&format!("help-{}.txt", words.replace(' ', "-")), &utf8_text(&output.stdout));
    }
}

#[test]
fn version_flag_prints_package_version() {
    let output = run_tidegate(&["--version"]);
    assert_eq!(utf8_text(&output.stdout), concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn usage_error_exits_with_code_2() {
    for (args, words) in [
        (&[][..], "Usage: tidegate"),
        (&["serv"][..], "serve"),
        (&["serve", "--htpp", "off"], "--http"),
        (&["serve", "--http", "somewhere"], "127.0.0.1:8081"),
        (&["serve", "--http", "off", "--resp", "off"], "all listeners are off"),
        (&["serve", "rules.yaml"], "--config rules.yaml"),
        (&["serve", "--limit", "100 per minute"], "`100/min`"),
        (&["serve", "--limit", "10rps"], "`10/s`"),
        (&["serve", "--limit", "1sec"], "`100/1s`"),
        (&["serve", "--limit", "0/s"], "`1/s`"),
        (&["serve", "--limit", "-5/s"], "`5/s`"),
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
        let output = run_tidegate(args);
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(words), "{args:?}: {errors}");
        assert!(!errors.contains('\u{1b}'), "no colors without a terminal: {errors}");
    }
}

#[test]
fn piped_output_has_no_colors() {
    for args in [&["check", "ip=1.2.3.4", "--limit", "1/s"][..], &["--help"], &["serve", "--help"]]
    {
        let output = tidegate_command().args(args).output().unwrap();
        assert!(!utf8_text(&output.stdout).contains('\u{1b}'), "{args:?}");
    }
}
