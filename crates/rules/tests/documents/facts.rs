//! The facts that rules may name, and how paths are compared.

use crate::common::{compile, error_text, facts, matched_ids};
use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_rules::diagnostic::DocumentError;
use tidegate_rules::identity::{ApiKeySource, UnknownKeyPolicy};
use tidegate_rules::{Document, FactDeclarations, RuleSet};

fn expect_document_error(source: &str) -> DocumentError {
    let compiled = Document::parse("rules.yaml", source)
        .and_then(|document| RuleSet::compile(&document, Secret::UNSET));
    compiled.expect_err("the document should be rejected")
}

/// Facts that rules may name without a declaration.
const KNOWN: [&str; 9] =
    ["ip", "method", "path", "endpoint", "host", "user_id", "api_key", "tier", "plan"];

/// Documents that name a fact in every possible place, with the field of the error for an unknown
/// fact.
fn documents_naming(fact: &str) -> [(String, &'static str); 5] {
    let rule = |rest: &str| format!("rules:\n- {{ {rest} }}\n");
    [
        (rule(&format!("match: {{ {fact}: '*' }}, limit: 1/s")), "rules[0].match."),
        (rule(&format!("match: {{ {fact}: {{ not: x }} }}, limit: 1/s")), "rules[0].match."),
        (rule(&format!("key_by: {fact}, limit: 1/s")), "rules[0].key_by"),
        (rule(&format!("limit: '1/s by {fact}:ip'")), "rules[0].limit"),
        (format!("key_by: {fact}\nrules: [1/s, 2/s]\n"), "key_by"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Regression: a rule on a fact that no request has was accepted, and limited no request.
    #[test]
    fn undeclared_fact_is_rejected_everywhere(fact in "[a-z][a-z0-9_-]{0,14}") {
        let odd = ["global", "domain", "descriptor", "null", "true", "false"];
        prop_assume!(!KNOWN.contains(&&*fact) && !odd.contains(&&*fact));
        for (source, field) in documents_naming(&fact) {
            let error = expect_document_error(&source);
            prop_assert_eq!(error.list.len(), 1, "{}{}", source, error);
            let problem = &error.list[0];
            prop_assert!(problem.field.starts_with(field), "{}{}", source, error);
            prop_assert_eq!(problem.found.as_deref(), Some(&*fact));
            let hint = problem.hint.as_deref().unwrap_or_default();
            prop_assert!(hint.contains(&format!("`facts: [{fact}]`")), "{}", hint);
            compile(&format!("facts: [{fact}]\n{source}"));
            compile(&format!("identity: {{ facts: {{ {fact}: {{ header: x-f }} }} }}\n{source}"));
            if source.contains("match: {") {
                compile(&source.replace("match: {", "match: { domain: edge,"));
            }
        }
        let shorthand = Document::from_shorthands(&[format!("1/s by {fact}")]);
        let error = shorthand.expect_err("no request has it").to_string();
        prop_assert!(error.contains(&format!("`--facts {fact}`")), "{}", error);
    }
}

#[test]
fn unknown_fact_error_suggests_nearest() {
    for (typed, meant) in [
        ("endpont", "`endpoint`"),
        ("userid", "`user_id`"),
        ("user", "`user_id`"),
        ("api-key", "`api_key`"),
        ("apikey", "`api_key`"),
        ("client_ip", "`ip`"),
        ("teir", "`tier`"),
        ("tenent", "`tenant`"),
    ] {
        let source = format!("facts: [tenant]\nrules: [{{ key_by: {typed}, limit: 1/s }}]");
        let error = error_text(&source);
        assert!(error.contains(&format!("= write: {meant}; or `facts:")), "{error}");
    }
}

#[test]
fn impossible_path_error_suggests_fix() {
    for (typed, meant) in [
        ("/users/{id}", "`endpoint: /users/{id}`"),
        ("/users/:id", "`endpoint: /users/{id}`"),
        ("internal", "`/internal`"),
    ] {
        let error = error_text(&format!("rules: [{{ match: {{ path: '{typed}' }}, limit: 1/s }}]"));
        assert!(error.contains(meant), "{error}");
    }
}

/// Regression: a rule for `/café` was accepted and limited no client, because requests have the
/// path `/caf%C3%A9`.
#[test]
fn non_canonical_path_error_suggests_spelling() {
    for (typed, meant) in [
        ("/caf\u{e9}", "`/caf%C3%A9`"),
        ("/caf%c3%a9/x", "`/caf%C3%A9/x`"),
        ("/%7euser", "`/~user`"),
        ("/a|b", "`/a%7Cb`"),
        ("/a/../b", "`.` and `..`"),
        ("/a/%2e", "`.` and `..`"),
        ("/a%2Fb", "encoded slash"),
        ("/a\\b", "backslashes"),
        ("/a?b=c", "query"),
        ("/100%", "`%25`"),
        ("/%ff", "UTF-8"),
    ] {
        for fact in ["path", "endpoint"] {
            let rule = format!("{{ match: {{ {fact}: '{typed}' }}, limit: 1/s }}");
            let error = error_text(&format!("rules: [{rule}]"));
            assert!(error.contains(meant), "{fact}: {error}");
        }
    }
    for typed in ["/", "/*", "/caf%C3%A9/*", "/a:b;c=d@e!$&'()+,/", "//a/", "/.well-known/x"] {
        for fact in ["path", "endpoint"] {
            compile(&format!("rules: [{{ match: {{ {fact}: \"{typed}\" }}, limit: 1/s }}]"));
        }
    }
}

/// Regression: a rule for `API.example.com:8080` was accepted and limited no client, because the
/// fact is in lower case and has no port.
#[test]
fn non_canonical_host_error_suggests_spelling() {
    for (typed, meant) in [
        ("API.example.com", "`api.example.com`"),
        ("api.example.com:8080", "`api.example.com`"),
        ("*.Example.com.", "`*.example.com`"),
        ("[2001:DB8::1]:80", "`[2001:db8::1]`"),
    ] {
        let error = error_text(&format!("rules: [{{ match: {{ host: '{typed}' }}, limit: 1/s }}]"));
        assert!(error.contains(meant), "{error}");
    }
    for accepted in [
        "host: ['*.example.com', '[::1]', localhost]",
        // Envoy's configuration defines these values.
        "domain: edge, host: 'API.example.com:80', path: '/a%2Fb'",
    ] {
        compile(&format!("rules: [{{ match: {{ {accepted} }}, limit: 1/s }}]"));
    }
}

/// Regression: `tidegate keys` and `reset` did not apply `paths`, and showed or reset counters of
/// paths that no request has.
#[test]
fn path_options_apply_to_client_counters() {
    let set = compile(
        "paths: { ignore_case: true, strip_parameters: true }\nrules:\n\
         - { id: path, match: { path: /login }, key_by: [ip, path], limit: 1/s }\n\
         - { id: endpoint, match: { endpoint: 'POST /Login' }, key_by: [ip, endpoint], limit: 1/s }\n",
    );
    let keys = |path: &'static str| -> Vec<_> {
        let facts = facts(&[("ip", "192.0.2.7"), ("method", "POST"), ("path", path)]);
        let counters = set.client_counters(&facts, None);
        counters.iter().map(|counter| counter.key.fingerprint).collect()
    };
    assert_eq!(keys("/login").len(), 2);
    for path in ["/LOGIN", "/Login;x=1"] {
        assert_eq!(keys(path), keys("/login"), "{path}");
    }
}

/// Regression: the access log showed `*` for `/LOGIN`, although the rule for `/login` counted it.
#[test]
fn path_options_apply_to_logged_patterns() {
    let rules = "rules: [{ match: { endpoint: 'POST /Login/{id}' }, limit: 1/s }]";
    let set = compile(&format!("paths: {{ ignore_case: true, strip_parameters: true }}\n{rules}"));
    let pattern = |path: &'static str| {
        let facts = facts(&[("method", "POST"), ("path", path)]);
        set.path_pattern(&facts).map(str::to_owned)
    };
    assert_eq!(pattern("/LOGIN;v=2/7").as_deref(), Some("/Login/{id}"));
    assert_eq!(pattern("/other"), None);
}

#[test]
fn unsupplied_conventional_facts_are_listed() {
    let set = compile(
        "rules:\n- { id: a, match: { tier: free }, key_by: api_key, limit: 1/s }\n\
         - { id: off, key_by: user_id, is_active: false, limit: 1/s }\n\
         - { id: envoy, match: { domain: edge, tier: free }, limit: 1/s }\n",
    );
    let listed: Vec<_> = set
        .unsupplied_facts()
        .iter()
        .map(|fact| (fact.rule.as_str(), fact.fact.as_str(), fact.line))
        .collect();
    assert_eq!(listed, [("a", "tier", 2), ("a", "api_key", 2)]);
    let line = set.suggested_identity().expect("a line to add");
    let key = "api_key: { header: x-api-key }";
    assert_eq!(line, format!("identity: {{ {key}, tier: {{ subject: api_key, default: free }} }}"));
    let rules = "rules: [{ match: { plan: free }, key_by: api_key, limit: 1/s }]";
    for supplied in [line, "facts: [api_key, plan]"] {
        let set = compile(&format!("{supplied}\n{rules}"));
        assert_eq!((set.unsupplied_facts(), set.suggested_identity()), (&[][..], None));
    }
}

#[test]
fn command_line_declares_facts_and_key_header() {
    let declared = FactDeclarations {
        facts: vec!["tenant".to_owned()],
        api_key_header: Some("x-key".to_owned()),
        any_fact: false,
    };
    let source = "identity: { api_key: { query: key, unknown: ip } }\n\
                  rules: [{ id: r, match: { tenant: a }, limit: 1/s }]";
    let parsed = Document::parse_with("rules.yaml", source, &declared, |_| ());
    let (mut document, ()) = parsed.unwrap_or_else(|error| panic!("{error}"));
    document.push_shorthands(&["2/min by api_key", "2/min by tenant"]).unwrap();
    let set = RuleSet::compile(&document, Secret::UNSET).unwrap();
    assert_eq!(set.unsupplied_facts(), &[]);
    let key = set.identity().api_key.as_ref().unwrap();
    assert_eq!(key.source, ApiKeySource::Header("x-key".to_owned()));
    assert_eq!(
        key.unknown,
        UnknownKeyPolicy::Ip,
        "the document's setting for unknown keys is kept"
    );
}

/// Regression: `match: { path: /internal }` did not match `/internal/`, which Flask and others
/// serve as the same resource.
#[test]
fn path_variants_share_match_and_key() {
    let set = compile(
        "rules:\n- { id: path, match: { path: /internal }, key_by: path, limit: 1/s }\n\
         - { id: endpoint, match: { endpoint: /internal }, key_by: endpoint, limit: 1/s }\n\
         - { id: not, match: { path: { not: /internal } }, limit: 1/s }\n",
    );
    let keys = |path: &str| {
        let facts = facts(&[("path", path)]);
        set.rules()[..2].iter().map(|rule| rule.fingerprint(&facts, &set)).collect::<Vec<_>>()
    };
    for path in ["/internal", "/internal/", "//internal/"] {
        assert_eq!(matched_ids(&set, &[("path", path)]), ["path", "endpoint"], "{path}");
    }
    assert_eq!(keys("/internal/"), keys("/internal"));
    for path in ["/internal/x", "/internals", "/INTERNAL", "/internal;x", "/internal."] {
        assert_eq!(matched_ids(&set, &[("path", path)]), ["not"], "{path}");
    }
}

#[test]
fn path_options_ignore_case_and_parameters() {
    let rules = "rules:\n- { id: path, match: { path: /Internal }, key_by: path, limit: 1/s }\n\
                 - { id: endpoint, match: { endpoint: 'POST /Users/{id}' }, key_by: endpoint, limit: 1/s }\n\
                 - { id: glob, match: { path: '/Files/*' }, limit: 1/s }\n";
    let set = compile(&format!("paths: {{ ignore_case: true, strip_parameters: true }}\n{rules}"));
    let post = |path: &'static str| matched_ids(&set, &[("method", "POST"), ("path", path)]);
    for path in ["/internal", "/INTERNAL;x=1/", "/users/..;/internal", "/;a/internal"] {
        assert_eq!(post(path), ["path"], "{path}");
    }
    assert_eq!(post("/USERS;v=2/7"), ["endpoint"]);
    assert_eq!(post("/files/A"), ["glob"]);
    let key = |path: &'static str| {
        let mut facts = facts(&[("path", path)]);
        set.enrich(&mut facts);
        set.rules()[0].fingerprint(&facts, &set)
    };
    assert_eq!(key("/INTERNAL;x=1"), key("/internal"));
    let exact = compile(rules);
    assert_eq!(matched_ids(&exact, &[("path", "/internal")]), [""; 0]);
    assert_eq!(matched_ids(&exact, &[("path", "/Internal;x")]), [""; 0]);
}
