//! `tidegate bench` reports its measurements and its method.

use serde_json::Value;

use crate::support::{run_tidegate, utf8_text};

#[test]
fn bench_measures_the_configured_rules() {
    let args = ["bench", "--config", "example.yaml", "--seconds", "1", "--threads", "2", "--json"];
    let output = run_tidegate(&args);
    assert_eq!(output.status.code(), Some(0), "{}", utf8_text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((number("rules"), number("rules_hit"), number("threads")), (4, 4, 2));
    assert!(number("decisions_per_second") > 1_000, "{report}");
    assert_eq!(number("allowed") + number("refused"), number("decisions"));
    assert!(number("refused") > 0, "one rule of four refuses every request: {report}");
    assert!(number("p50_ns") > 0 && number("p50_ns") <= number("p99_ns"), "{report}");
}

#[test]
fn text_report_has_headline_and_method() {
    let output =
        run_tidegate(&["bench", "--limit", "100/s by ip", "--seconds", "1", "--keys", "1000"]);
    let report = utf8_text(&output.stdout);
    assert!(report.lines().next().unwrap().ends_with("decisions per second"), "{report}");
    assert!(report.contains("Measured in this process"), "{report}");
}

#[test]
fn unmatchable_rules_exit_with_code_3() {
    let output = run_tidegate(&["bench", "--config", "inactive.yaml"]);
    assert_eq!(output.status.code(), Some(3), "{}", utf8_text(&output.stderr));
}
