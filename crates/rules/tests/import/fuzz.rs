//! Fuzzes the importers: no crash, no hang, no oversized document, and every imported document
//! compiles. There is no coverage-guided fuzzer on a stable toolchain, so these tests start from
//! valid files and mutate them.

use proptest::prelude::*;
use tidegate_rules::MAX_DOCUMENT_BYTES;
use tidegate_rules::import::{ForeignFile, ImportResult, envoy_ratelimit, limitador};
use tidegate_testkit::byte_mutation::{apply_mutations, byte_mutations};

use crate::golden::{compile, input};

const ENVOY: [&str; 7] = ["readme", "specific", "wildcard", "replaces", "gaps", "odd", "mistakes"];
const LIMITS: [&str; 3] = ["limits", "limits-gaps", "limits-mistakes"];

/// Number of cases: `TIDEGATE_CASES`, or a default that suits every change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000)
}

/// Checks that a result is within its limits and compiles.
fn assert_valid_import(imported: &ImportResult) {
    assert!(imported.document.len() <= MAX_DOCUMENT_BYTES);
    compile(&imported.document);
    for gap in &imported.unsupported {
        let line = gap.to_string();
        assert!(line.len() < 2_000 && !line.contains(char::is_control), "one line each: {line:?}");
    }
}

/// Runs both importers on a text, whatever its format.
fn import_with_both(text: &str) {
    let file = ForeignFile { file: "f.yaml", text };
    match envoy_ratelimit(&[file]) {
        Ok(imported) => assert_valid_import(&imported),
        Err(errors) => assert!(errors.iter().all(|problems| !problems.list.is_empty())),
    }
    match limitador(&file) {
        Ok(imported) => assert_valid_import(&imported),
        Err(error) => assert!(!error.list.is_empty()),
    }
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select([&ENVOY[..], &LIMITS[..]].concat())
}

/// Names and values with a special meaning in YAML, rules documents or CEL.
fn word() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 16] = [
        "*",
        "a*",
        "a_b",
        "a",
        "=",
        "null",
        "~",
        "ip",
        "plan",
        "global",
        "descriptor",
        "",
        " ",
        "{",
        "&a",
        "'\"\\",
    ];
    prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(ToOwned::to_owned), any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn random_text_imports_safely(text in any::<String>()) {
        import_with_both(&text);
    }

    #[test]
    fn mutated_files_import_safely(name in names(), mutations in byte_mutations()) {
        let bytes = apply_mutations(input(&format!("{name}.yaml")).into_bytes(), &mutations);
        import_with_both(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_names_and_values_import_safely(words in prop::collection::vec(word(), 8)) {
        // JSON strings are valid YAML.
        let quoted: Vec<String> = words.iter().map(|word| json(word)).collect();
        let [domain, k1, v1, k2, v2, n1, n2, n3] = &quoted[..] else { unreachable!() };
        import_with_both(&format!(
            "domain: {domain}\ndescriptors:\n  - key: {k1}\n    value: {v1}\n    rate_limit: {{ unit: day, requests_per_unit: 1, name: {n1}, replaces: [{{ name: {n2} }}] }}\n    descriptors: [{{ key: {k2}, value: {v2}, rate_limit: {{ unit: day, name: {n3} }} }}]\n  - key: {k2}\n    rate_limit: {{ unlimited: true, name: {n2} }}\n"
        ));
        import_with_both(&format!(
            "- {{ id: {n1}, name: {n2}, namespace: {domain}, max_value: 1, seconds: 7, conditions: [{}, {}], variables: [{}] }}\n",
            json(&format!("descriptors[0][{k1}] == {v1}")),
            json(&format!("{k2} != {v2}")),
            json(&format!("descriptors[0][{n3}]")),
        ));
    }
}

/// A quoted string that YAML parses as the same text.
fn json(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_ascii_graphic() || c == ' ' => c.to_string(),
        c => format!("\\U{:08x}", u32::from(c)),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Files that could exhaust time or memory: each import must finish quickly in little memory.
#[test]
fn hostile_files_import_in_bounded_time() {
    let mut bomb = String::from("domain: d\nx: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    (1..12)
        .for_each(|n| bomb += &format!("x{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(10)));
    let one = "{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }";
    let nested = "{ key: k, descriptors: [".repeat(400);
    let joined = "_".repeat(500_000);
    let long = "k".repeat(500_000);
    let star = "*a".repeat(250_000);
    let named = |n| format!("- {{ key: a{n}, rate_limit: {{ unit: day, name: x }} }}\n");
    let named: String = (0..8_000).map(named).collect();
    let replaces = "{ name: x }, ".repeat(20_000);
    let many: String =
        (0..20_000).map(|n| format!("- {{ key: k_{n}, value: '{n}*' }}\n")).collect();
    let not = "\"a != 'x'\", ".repeat(60_000);
    let texts: String = (0..50_000).map(|n| format!("'{n}', ")).collect();
    let list = format!("a in [{texts}'x']");
    for text in [
        bomb,
        format!("domain: d\ndescriptors: [{nested}"),
        format!("domain: d\ndescriptors: [{{ key: '{joined}', value: '{joined}' }}, {one}]"),
        format!("domain: d\ndescriptors: [{{ key: '{long}', value: '{star}' }}, {one}]"),
        format!(
            "domain: d\ndescriptors:\n- key: '{long}'\n  descriptors: [{}]",
            format!("{one}, ").replace("key: k", "key: &k k").repeat(6_000)
        ),
        format!("domain: &a '{long}'\ndescriptors: [{}]", "{ key: *a }, ".repeat(30_000)),
        format!("domain: d\ndescriptors:\n{many}"),
        format!(
            "domain: d\ndescriptors:\n{named}- {{ key: b, rate_limit: {{ unit: day, replaces: [{replaces}] }} }}"
        ),
        format!("- {{ namespace: d, max_value: 1, seconds: 1, conditions: [{not}] }}"),
        format!("- {{ namespace: d, max_value: 1, seconds: 1, conditions: [\"{list}\"] }}"),
        format!(
            "- {{ namespace: d, max_value: 1, seconds: 1, conditions: [\"{}\"] }}",
            "(".repeat(900_000)
        ),
        format!(
            "- {{ namespace: d, max_value: 1, seconds: 1, variables: [\"{}\"] }}",
            "a.".repeat(400_000)
        ),
        "- ".repeat(500_000),
        "\u{FEFF}domain: d".to_owned(),
        "x".repeat(2 << 20),
    ] {
        import_with_both(&text);
    }
}
