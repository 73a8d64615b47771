//! Error messages of invalid documents, and resistance to hostile ones.

use std::fmt::Write as _;
use std::path::Path;

use crate::common::{compile, error_text};
use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_fixtures::golden::assert_golden;
use tidegate_rules::decode::Field;
use tidegate_rules::diagnostic::{DocumentError, FieldError};
use tidegate_rules::{Document, FactDeclarations, MAX_DOCUMENT_BYTES, RuleSet};

/// Compares the exact text, so that every change to it is reviewed; `UPDATE_GOLDEN=1` rewrites it.
#[test]
fn all_errors_are_reported_with_locations() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/mistakes.txt");
    let error = error_text(include_str!("../golden/mistakes.yaml"));
    assert_golden(Path::new(path), error);
}

#[test]
fn cross_rule_errors_are_reported() {
    let error = error_text(
        "rules:\n- { id: a, limit: 1/s }\n- { id: a, limit: 2/s }\n\
         - { key_pattern: 'user:{user_id}', plan: free, rate_per_second: 1, id: x }\n\
         - { key_pattern: 'user:{user_id}', plan: free, rate_per_second: 2, id: y }\n\
         - { match: { tier: free }, plan: paid, limit: 1/s }\n\
         - { match: { ip: 10.0.0.0/9 , tier: x}, plan: { not: [x, y] }, limit: 1/s }\n",
    );
    for expected in [
        "rules[1].id: this id is already used on line 2, found `a`",
        "rules[3].key_pattern: line 4 has this pattern for the same plan and window",
        "rules[4].match: no request is both tier=free and tier=paid",
        "rules[5].match: no request is both tier=x and tier!=x,y",
        "4 problems in rules.yaml",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn identity_errors_are_reported_with_locations() {
    let error = error_text(
        "identity:\n  ip: { from: x_forwarded_fro }\n\
         \x20 api_key: { header: x, cookie: y }\n\
         \x20 user_id: { jwt: { key_file: k, algorithm: none, leeway: 2h, issuer: [] } }\n\
         \x20 tier: { subject: tenant }\n\
         \x20 facts:\n    plan: { header: x }\n    a: { cookie: 'b c' }\n    d: {}\n\
         \x20   e: { cookie: e, trust: anyone }\n    f: { header: f, trust: all }\n",
    );
    for expected in [
        "2:15: identity.ip.from: unknown value, found `x_forwarded_fro`",
        "3:12: identity.api_key: there is more than one source",
        "4:45: identity.user_id.jwt.algorithm: unknown value, found `none`",
        "4:59: identity.user_id.jwt.leeway: the leeway is too long, found `2h`",
        "identity.user_id.jwt.issuer: the list is empty",
        "5:20: identity.tier.subject: the tier is looked up by a fact that `identity` does not supply",
        "identity.facts.plan: this fact has a dedicated setting, found `plan`",
        "identity.facts.a.cookie: this is not the name of a cookie, found `b c`",
        "identity.facts.d: the source is missing",
        "identity.facts.e.trust: a cookie is always set by the client",
        "identity.facts.f.trust: unknown value, found `all`",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn unusable_jwt_key_is_reported() {
    let source = "identity:\n  user_id:\n    jwt: { key_file: jwt.pub }\n\
                  rules: [{ id: a, limit: 1/s }, { id: a, limit: 2/s }]\n";
    let mut document = Document::parse("rules.yaml", source).unwrap();
    document.set_key_error(FieldError::new("this is no key"));
    let error = RuleSet::compile(&document, Secret::UNSET).unwrap_err().to_string();
    for expected in [
        "rules.yaml:3:22: identity.user_id.jwt.key_file: this is no key, found `jwt.pub`",
        "rules[1].id: this id is already used on line 4",
        "2 problems",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn overlapping_queue_rules_are_rejected() {
    let queue = "limit: { requests: 1, window: 1s, algorithm: leaky_bucket, queue: true }";
    for (one, two) in [
        ("tier: free", "tier: [paid, gold]"),
        ("endpoint: GET /a", "endpoint: POST /a"),
        ("endpoint: /a/*", "endpoint: '/b/{x}'"),
        ("ip: 10.0.0.0/8", "ip: { not: 10.0.0.0/7 }"),
        ("method: GET", "endpoint: POST /a"),
        ("tenant: acme", "tenant: 'beta-*'"),
    ] {
        compile(&format!(
            "facts: [tenant]\nrules: [{{ match: {{ {one} }}, {queue} }}, {{ match: {{ {two} }}, {queue} }}]"
        ));
    }
    for (one, two) in [
        ("tier: free", "user_id: 7"),
        ("endpoint: /a/*", "endpoint: '/{x}/b'"),
        ("ip: 10.0.0.0/8", "ip: 10.1.0.0/16"),
        ("tenant: '*-a'", "tenant: 'b-*'"),
    ] {
        let error = error_text(&format!(
            "facts: [tenant]\nrules: [{{ match: {{ {one} }}, {queue} }}, {{ match: {{ {two} }}, {queue} }}]"
        ));
        assert!(error.contains("wait in this queue"), "{error}");
    }
}

#[test]
fn server_section_errors_are_reported_together() {
    let source = "server: { store: redis, deadlin: 5ms }\nrules: [1/x]";
    let read = |server: Option<Field<'_>>| {
        let mut fields = server?.fields()?;
        let store = fields.take("store")?.choice(&[("memory", 1), ("redis", 2)]);
        let _ = fields.take("deadline").and_then(|field| field.duration());
        fields.finish();
        store
    };
    let declared = FactDeclarations::default();
    let error = Document::parse_with("f.yaml", source, &declared, read).unwrap_err().to_string();
    assert!(error.contains("server.deadlin: unknown field, found `deadlin`"), "{error}");
    assert!(error.contains("= write: `deadline`") && error.contains("2 problems"), "{error}");
    let (document, store) =
        Document::parse_with("f.yaml", "server: { store: redis }", &declared, read).unwrap();
    assert_eq!(store, Some(2));
    assert!(document.server().is_some());
}

fn expect_document_error(source: &str) -> DocumentError {
    let compiled = Document::parse("hostile.yaml", source)
        .and_then(|document| RuleSet::compile(&document, Secret::UNSET));
    compiled.expect_err("the document should be rejected")
}

#[test]
fn hostile_documents_are_rejected_with_reason() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let last = level - 1;
        let all = format!("*a{last}, ").repeat(10);
        writeln!(bomb, "a{level}: &a{level} [{all}]").unwrap();
    }
    let chain = (1..3_000).fold("a0: &a0 [x]\n".to_owned(), |mut text, level| {
        writeln!(text, "a{level}: &a{level} [[[*a{}]]]", level - 1).unwrap();
        text
    });
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), "*a, ".repeat(1_000));
    let cases = [
        (long, "anchors and aliases make the document too large"),
        (bomb, "anchors and aliases make the document too large"),
        (chain, "nested deeper"),
        ("a: &a [*a]".to_owned(), "an alias cannot refer to a value that contains it"),
        ("[".repeat(500_000), "nested deeper"),
        ("{a: ".repeat(200_000), "nested deeper"),
        ("- ".repeat(500_000), "nested deeper"),
        ("? ".repeat(300_000), "nested deeper"),
        ("x".repeat(2 << 20), "larger than 1048576 bytes"),
        ("rules:\n\t- limit: 1/s".to_owned(), "not YAML"),
        ("rules: \0".to_owned(), "NUL"),
        ("rules: [1/s]\n---\nrules: []".to_owned(), "one document"),
        ("- 1\n- 2".to_owned(), "a rules document is a mapping"),
        ("hello".to_owned(), "a rules document is a mapping"),
        ("[[rules]]\nid = \"a\"\nlimit = \"1/s\"\n".to_owned(), "this is TOML"),
        ("# limits\n[server]\nhttp = \"off\"\n".to_owned(), "this is TOML"),
        ("key_by = \"ip\"\n[[rules]]\n".to_owned(), "this is TOML"),
        ("rules: {}".to_owned(), "expected a list, found a mapping"),
        ("rules: [1/s".to_owned(), "not YAML"),
        ("rules: []\nrules: []".to_owned(), "already set on line 1"),
        ("{[a]: b}".to_owned(), "the name of a field must be a word"),
        ("rules: [\"1/s\u{1b}[31m\"]".to_owned(), "not a window"),
        ("rules: [{ match: { method: GET|PUT }, limit: 1/s }]".to_owned(), "not an HTTP method"),
        ("rules: [{ match: { endpoint: { not: '*' } }, limit: 1/s }]".to_owned(), "every request"),
        ("rules: *nobody".to_owned(), "not YAML"),
    ];
    for (source, reason) in cases {
        let start: String = source.chars().take(20).collect();
        let error = expect_document_error(&source).to_string();
        assert!(error.contains(reason), "{start}: {error}");
        assert!(!error.contains('\u{1b}'), "{start}: no terminal control characters");
    }
}

#[test]
fn diagnostics_and_long_lines_are_truncated() {
    let source = format!("rules: [{}]", "{x: 1},".repeat(50_000));
    assert!(source.len() < MAX_DOCUMENT_BYTES);
    let error = expect_document_error(&source);
    assert_eq!((error.list.len(), error.omitted), (100, 99_900));
    let text = error.to_string();
    assert!(text.ends_with("100000 problems in hostile.yaml, the first 100 shown\n"));
    assert!(text.lines().all(|line| line.chars().count() < 360));
}

/// There is an error, every one points into the source, and none has control characters.
fn assert_located(error: &DocumentError, source: &str) {
    assert!(!error.list.is_empty());
    let lines = source.lines().count() + 1;
    for problem in &error.list {
        assert!(problem.line <= lines, "line {} of {lines}: {source:?}", problem.line);
        assert!(problem.line == 0 || problem.column > 0, "{source:?}");
    }
    let text = error.to_string();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn errors_of_any_text_are_located(source in r#"([\[\]{}:,\-&*!|>'"%@?#a-c0-9/ \n\t\\]|rules:|limit:|match:|- |\n  ){0,60}"#) {
        if let Err(error) = Document::parse("f", &source) {
            assert_located(&error, &source);
        }
    }

    #[test]
    fn errors_of_any_word_are_located(word in "\\PC{0,24}") {
        let quoted = word.replace('\'', "''");
        for field in ["id", "limit", "key_by", "match", "key_pattern", "rate_per_second", "mode", "ban"] {
            let source = format!("rules: [{{ {field}: '{quoted}', limit: 1/s }}]");
            if let Err(error) = Document::parse("f", &source) {
                assert_located(&error, &source);
            }
        }
        for fact in ["ip", "endpoint", "method", "tier"] {
            let source = format!("rules: [{{ match: {{ {fact}: '{quoted}' }}, limit: 1/s }}]");
            let compiled = Document::parse("f", &source)
                .and_then(|document| RuleSet::compile(&document, Secret::UNSET));
            if let Err(error) = compiled {
                assert_located(&error, &source);
            }
        }
        if let Err(error) = Document::from_shorthands(&[&word, &format!("1/s by {word}")]) {
            prop_assert!(!error.list.is_empty());
        }
    }
}

/// Regression: the burst error was reported only after the window had been corrected.
#[test]
fn burst_error_survives_invalid_window() {
    let error = expect_document_error(
        "rules: [{ id: a, limit: { requests: 5, window: 3, algorithm: fixed_window, burst: 2 } }]",
    );
    let fields: Vec<&str> = error.list.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["rules[0].limit.window", "rules[0].limit.burst"]);
}
