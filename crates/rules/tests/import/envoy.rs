//! Imports of envoyproxy/ratelimit configurations.

use tidegate_rules::import::{ForeignFile, envoy_ratelimit};

use crate::golden::{assert_golden, compile, import_output, input};

fn import_text(text: &str) -> tidegate_rules::import::ImportResult {
    let files = [ForeignFile { file: "config.yaml", text }];
    envoy_ratelimit(&files).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn import_errors(files: &[(&str, &str)]) -> String {
    let files: Vec<_> = files.iter().map(|(file, text)| ForeignFile { file, text }).collect();
    let problems = envoy_ratelimit(&files).expect_err("the files should be rejected");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn envoy_imports_match_golden_files() {
    for name in ["readme", "specific", "wildcard", "replaces", "gaps", "odd"] {
        let text = input(&format!("{name}.yaml"));
        let imported = import_text(&text);
        assert_golden(&format!("{name}.txt"), &import_output(&imported));
        assert_eq!(imported.unsupported.is_empty(), name != "gaps", "{name}");
    }
}

#[test]
fn envoy_errors_match_golden_file() {
    assert_golden("mistakes.txt", &import_errors(&[("mistakes.yaml", &input("mistakes.yaml"))]));
}

#[test]
fn split_domain_rejects_duplicate_descriptors() {
    let file = |value: &str| {
        format!(
            "domain: d\ndescriptors: [{{ key: k, value: '{value}', rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]"
        )
    };
    let (one, two) = (file("1"), file("2"));
    let both = [("one.yaml", one.as_str()), ("two.yaml", two.as_str())];
    let files = both.map(|(file, text)| ForeignFile { file, text });
    let imported = envoy_ratelimit(&files).unwrap();
    assert_eq!(compile(&imported.document).rules().len(), 2);
    let error = import_errors(&[both[0], both[1], ("three.yaml", &one)]);
    assert!(error.contains("three.yaml:2:15: descriptors[0]"), "{error}");
    assert!(error.contains("the other is at one.yaml:2"), "{error}");
}

#[test]
fn empty_file_fails_empty_domain_imports() {
    assert!(import_errors(&[("empty.yaml", "# nothing\n")]).contains("this file is empty"));
    let empty = import_text("domain: d\ndescriptors:\n");
    assert_eq!(
        empty.document,
        "server:\n  grpc_charge: independent\nkey_by: descriptor\nrules: []\n"
    );
    compile(&empty.document);
}

/// Regression: a long prefix that many descriptors share was written for each of them.
#[test]
fn oversized_import_is_truncated_and_reported() {
    let mut text =
        format!("domain: d\ndescriptors:\n- key: {}\n  descriptors:\n", "k".repeat(200_000));
    for n in 0..6_000 {
        let limit = format!(
            "rate_limit: {{ unit: day, requests_per_unit: 1, name: n{n}, replaces: [{{ name: n{} }}] }}",
            5_999 - n
        );
        text += &format!("  - {{ key: c, value: v{n}, {limit} }}\n");
    }
    assert!(text.len() < 1 << 20, "{}", text.len());
    let imported = import_text(&text);
    assert!(imported.document.len() <= 1 << 20);
    assert_eq!(compile(&imported.document).rules().len(), 5);
    let note = imported.unsupported[0].to_string();
    assert!(note.contains("5995 rules did not fit"), "{note}");
}
