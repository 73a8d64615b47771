//! Error messages never quote a secret, whatever error the document has.

use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::{Document, RuleSet};

use crate::common::error_text;

/// Number of cases: `TIDEGATE_CASES`, or a default that suits every change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

/// The errors of `source`, if it is rejected.
fn document_error(source: &str) -> Option<DocumentError> {
    let document = Document::parse("rules.yaml", source);
    document.and_then(|document| RuleSet::compile(&document, Secret::UNSET)).err()
}

/// All texts of the errors.
fn all_error_text(problems: &DocumentError) -> String {
    let json = problems.list.iter().map(|problem| format!("{problem:?}"));
    format!("{problems}{}{}", json.collect::<String>(), problems.locations())
}

#[test]
fn diagnostics_quote_no_secret() {
    let error = error_text(
        "identity:\n  api_key: sk_live_1\nsubjects:\n- { api_key: sk_live_2, tier: [pro] }\n\
         - sk_live_3\n- sk_live_4: pro\n- { tier: pro, tier: sk_live_5 }\n\
         rules:\n- { id: a, match: { api_key: { is: sk_live_6, not: sk_live_6 } }, limit: 1/x }\n\
         - { id: a, limit: often }\nserver: { store: 'redis://:sk_live_7@h' }\n",
    );
    assert!(!error.contains("sk_live"), "{error}");
    for expected in [
        "rules.yaml:2:12: identity.api_key: expected a mapping of `name: value`\n",
        "rules.yaml:4:31: subjects[0]: expected text, found a list\n",
        "rules.yaml:5:3: subjects[1]: expected a mapping of `name: value`\n",
        "rules.yaml:6:3: subjects[2]: nothing identifies this subject\n",
        "rules.yaml:7:16: subjects[3]: this field is already set on line 7\n",
        "rules[0].match.api_key: no request is both api_key=… and api_key!=…",
        "rules[1].limit",
        " 10 | - { id: a, limit: often }",
    ] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn value_after_secret_name_is_not_quoted() {
    for rule in [
        "key_by: api_key=sk_live_1, limit: 1/s",
        "key_by: [ip, api_key=sk_live_1], limit: 1/s",
        "limit: 5/h by api_key sk_live_1",
        "limit: 5/h by api_key=sk_live_1",
    ] {
        let error = error_text(&format!("rules:\n- {{ id: a, {rule} }}\n"));
        assert!(error.contains("rules[0]") && !error.contains("sk_live"), "{error}");
    }
    let error = error_text("rules:\n- { id: a, limit: 5/h by api_key burst often }\n");
    assert!(error.contains("often"), "{error}");
}

/// Each typo has damaged the name `api_key` or `user_id`, or its colon.
#[test]
fn damaged_secret_names_hide_their_values() {
    for matched in [
        "{ api_ksk_live_1 }",
        "{ tier: [], api_ksk_live_1 }",
        "{ sk_live_1 }",
        "sk_live_1",
        "\n      api_ksk_live_1",
        "{ domain: a, api_sk_live_1 }",
        "{ ey: sk_live_1 }",
        "{ ap: sk_live_1 }",
        "{ ap, _key: sk_live_1 }",
        "{ 'api_ k': [sk_live_1, { x: y }] }",
        "{ u_id: { is: sk_live_1, no: sk_live_1 } }",
        "{ domain: a, key: sk_live_1, ip: x }",
    ] {
        let error =
            error_text(&format!("rules:\n  - id: a\n    match: {matched}\n    limit: 1/s\n"));
        assert!(error.contains("rules[0].match"), "{matched}: {error}");
        assert!(!error.contains("sk_live"), "{matched}: {error}");
    }
    let error = error_text("rules:\n- { id: a, limt: sk_live_1, mod: deny }\n");
    assert!(error.contains(" 2 | - { id: a, limt: …\n"), "{error}");
    assert!(error.contains("found `mod`") && !error.contains("sk_live"), "{error}");
}

#[test]
fn document_of_another_format_is_not_quoted() {
    for source in ["token = \"sk_live_1\"\n[rules]\n", "sk_live_1\n", "- sk_live_1\n"] {
        let error = error_text(source);
        assert!(error.contains("rules.yaml:1:1: ") && !error.contains("sk_live"), "{error}");
    }
}

#[test]
fn syntax_errors_quote_no_source() {
    for source in [
        "subjects:\n- api_key: \"sk_live_1\n  tier: pro\n",
        "rules: \"unclosed\nsubjects:\n- api_key: \"sk_live_1\"\n",
        "subjects\n- api_key: sk_live_1\n",
        "subjects:\n- api_key: sk_live_1\n tier: pro\n",
        "subjects:\n- api_key: sk_live_1\0\n",
        "subjects:\n- {api_key: sk_live_1, ? [x] : y}\n",
    ] {
        let error = error_text(source);
        assert!(!error.contains("sk_live"), "{error}");
        assert!(error.contains("error: rules.yaml:"), "{error}");
    }
}

#[test]
fn error_locations_contain_no_values() {
    let problems =
        document_error("rules: [{ id: a, limit: often }, { id: b, limt: 1/s }]\n").unwrap();
    assert_eq!(problems.locations(), "line 1 (rules[0].limit), line 1 (rules[1].limt)");
    let problems = document_error(&format!("rules: [{}]", "7, ".repeat(9))).unwrap();
    assert!(problems.locations().ends_with("(rules[4]) and 4 more"), "{}", problems.locations());
}

/// Number of styles of [`document`].
const PLACES: usize = 14;

/// A document with the marker in place of a secret, in one of several common YAML styles.
fn document(place: usize, marker: &str) -> String {
    let subject = match place {
        0 => format!("{{ api_key: {marker}, tier: pro }}"),
        1 => format!("{{ user_id: \"{marker}\", tier: pro }}"),
        2 => format!("{{ api_key: k2, tier: {marker} }}"),
        3 => format!("{{ {marker}: pro }}"),
        4 => marker.to_owned(),
        5 => format!("\n    api_key: >\n      {marker}\n      {marker}\n    tier: pro"),
        6 => format!("\n    tenant: &k '{marker}'\n    tier: *k"),
        _ => "{ api_key: k1, tier: pro }".to_owned(),
    };
    let matched = match place {
        7 => format!("{{ api_key: {marker} }}"),
        8 => format!("{{ tier: pro, api_key: [{marker}, k1] }}"),
        9 => format!("\n      api_key: {marker}"),
        10 => format!("\n      user_id: {{ is: {marker} }}\n      api_key:\n        - {marker}"),
        11 => format!("{{ domain: edge, api_key: {marker}, app: x }}"),
        _ => "{ api_key: k1 }".to_owned(),
    };
    let store = match place {
        12 => format!("redis://user:{marker}@127.0.0.1/0"),
        _ => "memory".to_owned(),
    };
    let upstream = match place {
        13 => format!("http://user:{marker}@127.0.0.1"),
        _ => "http://127.0.0.1".to_owned(),
    };
    format!(
        "# Who is known, and what is limited.\n\
         identity:\n  api_key: {{ header: x-api-key }}\n  user_id: {{ cookie: u }}\n\
         \x20 tier: {{ subject: api_key, default: free }}\n\
         subjects:\n  - {{ api_key: k0, tier: pro }}\n  - {subject}\n  - {{ user_id: u, tier: pro }}\n\
         endpoints: [GET /items, \"POST /orders\"]\n\
         rules:\n  - id: a\n    description: 'it is \"known\"'\n    match: {matched}\n\
         \x20   limit: 10/s\n  - {{ id: b, key_by: ip, limit: {{ requests: 5, window: 1m }} }}\n\
         server:\n  store: {store}\n  upstream: {upstream}\n"
    )
}

/// The line that makes everything below it secret. A mutation of it could turn it into anything
/// else.
const SECRET_SECTION: &str = "subjects:";

/// A single editing mistake.
#[derive(Clone, Debug)]
enum DocumentMutation {
    Insert(&'static str),
    Remove(usize),
    Replace(&'static str),
    Indent(usize),
    RepeatLine,
    RemoveLine,
    Alias,
}

fn mutation_strategy() -> impl Strategy<Value = DocumentMutation> {
    const TEXTS: [&str; 16] =
        ["\"", "'", ":", ": ", "-", "- ", "{", "}", "[", "]", ",", "#", "\n", "\t", "x", " *k "];
    prop_oneof![
        prop::sample::select(&TEXTS[..]).prop_map(DocumentMutation::Insert),
        prop::sample::select(&TEXTS[..]).prop_map(DocumentMutation::Replace),
        (1_usize..10).prop_map(DocumentMutation::Remove),
        (1_usize..5).prop_map(DocumentMutation::Indent),
        Just(DocumentMutation::RepeatLine),
        Just(DocumentMutation::RemoveLine),
        Just(DocumentMutation::Alias),
    ]
}

/// Applies a mutation to the document, except to the marker and to the name of the section: without
/// the section's name, nothing identifies the text as secret.
fn mutate_document(
    source: &str,
    marker: &str,
    at: &prop::sample::Index,
    mutation: &DocumentMutation,
) -> String {
    let at = at.index(source.len());
    let line_from = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let line_to = source[at..].find('\n').map_or(source.len(), |end| at + end + 1);
    let (from, to, with) = match mutation {
        DocumentMutation::Insert(text) => (at, at, (*text).to_owned()),
        DocumentMutation::Replace(text) => (at, source.len().min(at + 1), (*text).to_owned()),
        DocumentMutation::Remove(count) => (at, source.len().min(at + count), String::new()),
        DocumentMutation::Indent(by) => (line_from, line_from, " ".repeat(*by)),
        DocumentMutation::RepeatLine => (line_to, line_to, source[line_from..line_to].to_owned()),
        DocumentMutation::RemoveLine => (line_from, line_to, String::new()),
        DocumentMutation::Alias => (line_to, line_to, "? *k\n".to_owned()),
    };
    let kept = |word: &str| {
        source.match_indices(word).all(|(start, _)| to <= start || start + word.len() <= from)
    };
    if !kept(SECRET_SECTION) || !kept(marker) {
        return source.to_owned();
    }
    format!("{}{with}{}", &source[..from], &source[to..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn mutated_documents_quote_no_secret(
        place in 0..PLACES,
        at in any::<prop::sample::Index>(),
        mutation in mutation_strategy(),
    ) {
        let marker = "MARKER";
        let source = mutate_document(&document(place, marker), marker, &at, &mutation);
        if let Some(problems) = document_error(&source) {
            let error = all_error_text(&problems);
            prop_assert!(!error.contains(marker), "{source}\n{error}");
        }
    }
}
