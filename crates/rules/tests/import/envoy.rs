//! envoyproxy/ratelimit's files.

use tidegate_rules::import::{Foreign, envoy_ratelimit};

use crate::golden::{assert_golden, compile, input, printed};

fn imported(text: &str) -> tidegate_rules::import::Imported {
    let files = [Foreign { file: "config.yaml", text }];
    envoy_ratelimit(&files).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn refused(files: &[(&str, &str)]) -> String {
    let files: Vec<_> = files.iter().map(|(file, text)| Foreign { file, text }).collect();
    let problems = envoy_ratelimit(&files).expect_err("the files should be refused");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_construct_is_carried_over_as_it_was_reviewed() {
    for name in ["readme", "specific", "wildcard", "replaces", "gaps", "odd"] {
        let text = input(&format!("{name}.yaml"));
        let imported = imported(&text);
        assert_golden(&format!("{name}.txt"), &printed(&imported));
        assert_eq!(imported.gaps.is_empty(), name != "gaps", "{name}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    assert_golden("mistakes.txt", &refused(&[("mistakes.yaml", &input("mistakes.yaml"))]));
}

#[test]
fn a_domain_may_be_spread_over_files_but_no_descriptor_comes_twice() {
    let file = |value: &str| {
        format!(
            "domain: d\ndescriptors: [{{ key: k, value: '{value}', rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]"
        )
    };
    let (one, two) = (file("1"), file("2"));
    let both = [("one.yaml", one.as_str()), ("two.yaml", two.as_str())];
    let files = both.map(|(file, text)| Foreign { file, text });
    let imported = envoy_ratelimit(&files).unwrap();
    assert_eq!(compile(&imported.document).rules().len(), 2);
    let told = refused(&[both[0], both[1], ("three.yaml", &one)]);
    assert!(told.contains("three.yaml:2:15: descriptors[0]"), "{told}");
    assert!(told.contains("the other is at one.yaml:2"), "{told}");
}

#[test]
fn a_file_without_anything_and_one_without_descriptors() {
    assert!(refused(&[("empty.yaml", "# nothing\n")]).contains("nothing in this file"));
    let empty = imported("domain: d\ndescriptors:\n");
    assert_eq!(
        empty.document,
        "server:\n  grpc_charge: independent\nkey_by: descriptor\nrules: []\n"
    );
    compile(&empty.document);
}

/// Names that many descriptors share would be written for each of them.
#[test]
fn what_would_be_too_long_is_cut_off_and_said() {
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
    let imported = imported(&text);
    assert!(imported.document.len() <= 1 << 20);
    assert_eq!(compile(&imported.document).rules().len(), 5);
    let told = imported.gaps[0].to_string();
    assert!(told.contains("5995 rules did not fit"), "{told}");
}
