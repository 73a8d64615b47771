//! Fact extraction, and the ways in which a client could pose as another. Test names that begin
//! with `bypass` belong to a catalogue of attacks that must fail.

use http::{HeaderValue, Method, Request};
use tidegate_core::key::{Fingerprint, Secret};
use tidegate_rules::{Document, RuleSet};

use super::super::MAX_VALUE_BYTES;
use super::*;

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

fn rules(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).unwrap();
    RuleSet::compile(&document, Secret::UNSET).unwrap()
}

fn extractor(identity: &str) -> Extractor {
    Extractor::new(rules(&format!("identity: {{ {identity} }}")).identity()).unwrap()
}

fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Reads a fact of a request from an untrusted peer.
fn fact_from_untrusted_peer(
    identity: &str,
    name: &str,
    head: &Parts,
) -> Result<Option<String>, FactError> {
    fact_from_peer(CLIENT, identity, name, head)
}

fn fact_from_peer(
    peer: &str,
    identity: &str,
    name: &str,
    head: &Parts,
) -> Result<Option<String>, FactError> {
    let extractor = extractor(identity);
    let facts = extractor.extract_facts(head, "/", ip(peer));
    let facts = facts.map_err(|bad| {
        assert_eq!(bad.name, name);
        bad.why
    })?;
    Ok(facts.get(name).map(str::to_owned))
}

fn ok_some(text: &str) -> Result<Option<String>, FactError> {
    Ok(Some(text.to_owned()))
}

/// The key of the only rule, for a request from `peer`.
fn rule_key(rules: &RuleSet, head: &Parts, peer: &str) -> Fingerprint {
    let extractor = Extractor::new(rules.identity()).unwrap();
    let path = crate::path::canonical(head.uri.path()).unwrap();
    let mut facts = extractor.extract_facts(head, &path, ip(peer)).unwrap();
    rules.enrich(&mut facts);
    rules.rules()[0].fingerprint(&facts, rules)
}

#[test]
fn address_method_and_path_always_extracted() {
    let extractor = extractor("");
    let head = head("/a?q=1", &[("x-api-key", "k"), ("cookie", "a=b")]);
    let facts = extractor.extract_facts(&head, "/a", ip(CLIENT)).unwrap();
    let known: Vec<_> = facts.iter().collect();
    assert_eq!(known, [("ip", CLIENT), ("method", "GET"), ("path", "/a")]);
    assert_eq!(facts.ip(), CLIENT.parse().ok());
}

#[test]
fn api_key_is_read_from_configured_source() {
    let headers = [
        ("x-api-key", "in-header"),
        ("authorization", "bEARER  in-bearer"),
        ("cookie", "a=1; key=in-cookie"),
    ];
    let head = head("/?key=in%2Dquery", &headers);
    for (source, expected) in [
        ("header: X-Api-Key", "in-header"),
        ("query: key", "in-query"),
        ("bearer: true", "in-bearer"),
        ("cookie: key", "in-cookie"),
    ] {
        assert_eq!(
            fact_from_untrusted_peer(&format!("api_key: {{ {source} }}"), "api_key", &head),
            ok_some(expected)
        );
        let nothing = self::head("/", &[]);
        assert_eq!(
            fact_from_untrusted_peer(&format!("api_key: {{ {source} }}"), "api_key", &nothing),
            Ok(None)
        );
    }
}

#[test]
fn non_bearer_authorization_is_ignored() {
    for value in ["Basic YTpi", "Bearer", "Bearertoken", "Bearer ", "", "\tx"] {
        let head = head("/", &[("authorization", value)]);
        assert_eq!(
            fact_from_untrusted_peer("api_key: { bearer: true }", "api_key", &head),
            Ok(None),
            "{value}"
        );
    }
}

#[test]
fn empty_api_key_is_absent() {
    let head = head("/?key=", &[("x-api-key", " "), ("cookie", "key=")]);
    for source in ["header: x-api-key", "query: key", "cookie: key"] {
        assert_eq!(
            fact_from_untrusted_peer(&format!("api_key: {{ {source} }}"), "api_key", &head),
            Ok(None)
        );
    }
}

#[test]
fn duplicate_api_key_is_refused() {
    let headers = [
        ("x-api-key", "a"),
        ("x-api-key", "a"),
        ("authorization", "Bearer a"),
        ("authorization", "Basic b"),
        ("cookie", "key=a"),
        ("cookie", "key=b"),
    ];
    let head = head("/?key=a&key=b", &headers);
    for source in ["header: x-api-key", "query: key", "bearer: true", "cookie: key"] {
        let found = fact_from_untrusted_peer(&format!("api_key: {{ {source} }}"), "api_key", &head);
        assert_eq!(found, Err(FactError::Repeated), "{source}");
    }
}

#[test]
fn bypass_overlong_api_key_is_refused() {
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    let headers = [
        ("x-api-key", long.as_str()),
        ("authorization", &format!("Bearer {long}")),
        ("cookie", &format!("key={long}")),
    ];
    let head = head(&format!("/?key={long}"), &headers);
    for source in ["header: x-api-key", "query: key", "bearer: true", "cookie: key"] {
        let found = fact_from_untrusted_peer(&format!("api_key: {{ {source} }}"), "api_key", &head);
        assert_eq!(found, Err(FactError::LongValue), "{source}");
    }
    let just = "x".repeat(MAX_VALUE_BYTES);
    let head = self::head("/", &[("x-api-key", &just)]);
    assert_eq!(
        fact_from_untrusted_peer("api_key: { header: x-api-key }", "api_key", &head),
        ok_some(&just)
    );
}

#[test]
fn non_text_api_key_is_refused() {
    let mut head = head("/?key=a%00b", &[]);
    assert_eq!(
        fact_from_untrusted_peer("api_key: { query: key }", "api_key", &head),
        Err(FactError::NotText)
    );
    for bytes in [&b"a\xffb"[..], b"a\tb", b"a\xc2\x85b"] {
        head.headers.insert("x-api-key", HeaderValue::from_bytes(bytes).unwrap());
        let found = fact_from_untrusted_peer("api_key: { header: x-api-key }", "api_key", &head);
        assert_eq!(found, Err(FactError::NotText), "{bytes:?}");
    }
    head.headers.insert("x-api-key", HeaderValue::from_bytes("clé".as_bytes()).unwrap());
    assert_eq!(
        fact_from_untrusted_peer("api_key: { header: x-api-key }", "api_key", &head),
        ok_some("clé")
    );
}

#[test]
fn bypass_whitespace_makes_no_new_key() {
    for value in ["k", " k", "k ", "\tk \t"] {
        let head = head("/", &[("x-api-key", value)]);
        assert_eq!(
            fact_from_untrusted_peer("api_key: { header: x-api-key }", "api_key", &head),
            ok_some("k")
        );
    }
}

#[test]
fn bypass_percent_encoding_makes_no_new_key() {
    for query in ["key=abc", "key=%61bc", "%6bey=ab%63", "x=1&key=abc&y=%zz"] {
        let head = head(&format!("/?{query}"), &[]);
        assert_eq!(
            fact_from_untrusted_peer("api_key: { query: key }", "api_key", &head),
            ok_some("abc"),
            "{query}"
        );
    }
}

/// With `unknown: ip`, requests with made-up API keys are counted by address.
#[test]
fn bypass_unknown_api_keys_share_address_counter() {
    let rules = rules(
        "identity: { api_key: { header: x-api-key, unknown: ip } }\n\
         subjects: [{ api_key: known, tier: paid }]\n\
         rules: [{ id: r, key_by: api_key, limit: 1/s }]",
    );
    let with = |value: &str| rule_key(&rules, &head("/", &[("x-api-key", value)]), CLIENT);
    let without = rule_key(&rules, &head("/", &[]), CLIENT);
    assert_eq!((with("invented-1"), with("invented-2")), (without, without));
    assert_ne!(with("known"), without);
}

#[test]
fn bypass_anonymous_request_is_counted_by_address() {
    let rules = rules(
        "identity: { api_key: { header: x-api-key }, user_id: { header: x-user } }\n\
         rules: [{ id: r, key_by: [api_key, user_id], limit: 1/s }]",
    );
    let one = rule_key(&rules, &head("/", &[]), "198.51.100.1");
    assert_eq!(one, rule_key(&rules, &head("/", &[("x-api-key", "")]), "198.51.100.1"));
    assert_ne!(one, rule_key(&rules, &head("/", &[]), "198.51.100.2"));
}

#[test]
fn bypass_ipv6_network_is_one_client() {
    let rules = rules("rules: [{ id: r, key_by: ip, limit: 1/s }]");
    let of = |peer| rule_key(&rules, &head("/", &[]), peer);
    assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff:ffff:ffff:ffff"));
    assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
}

#[test]
fn bypass_path_spelling_makes_no_new_key() {
    let rules = rules("rules: [{ id: r, key_by: endpoint, limit: 1/s }]");
    let of = |uri| rule_key(&rules, &head(uri, &[]), CLIENT);
    for uri in
        ["/api/x?noise=1", "//api//x", "/api/./x", "/api/%78", "/%61pi/y/%2e%2e/x", "/api/x#f"]
    {
        assert_eq!(of(uri), of("/api/x"), "{uri}");
    }
}

/// A declared pattern maps paths that a client can vary without limit to one endpoint.
#[test]
fn bypass_path_variants_share_declared_endpoint() {
    let rules =
        rules("endpoints: ['GET /users/{id}']\nrules: [{ id: r, key_by: endpoint, limit: 1/s }]");
    let of = |uri| rule_key(&rules, &head(uri, &[]), CLIENT);
    for uri in ["/users/8", "/users/8/", "/users/8;v=1", "/users//8", "/users/8?x=1"] {
        assert_eq!(of(uri), of("/users/7"), "{uri}");
    }
}

#[test]
fn bypass_override_headers_are_ignored() {
    let overrides = [
        ("x-http-method-override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("x-original-url", "/other"),
        ("x-rewrite-url", "/other"),
        ("x-forwarded-host", "other.example"),
        ("host", "OTHER.example"),
    ];
    let extractor = extractor("ip: { trusted_proxies: [0.0.0.0/0] }");
    let mut head = head("/a?_method=DELETE", &overrides);
    head.method = Method::POST;
    let facts = extractor.extract_facts(&head, "/a", ip(CLIENT)).unwrap();
    let known: Vec<_> = facts.iter().collect();
    let host = ("host", "other.example");
    assert_eq!(known, [("ip", CLIENT), ("method", "POST"), ("path", "/a"), host]);
}

#[test]
fn host_fact_is_canonicalized() {
    for (given, expected) in [
        ("api.example", "api.example"),
        ("API.Example:8080", "api.example"),
        ("api.example.", "api.example"),
        ("api.example.:443", "api.example"),
        ("[2001:DB8::1]:8080", "[2001:db8::1]"),
        ("[::1]", "[::1]"),
        ("127.0.0.1:80", "127.0.0.1"),
    ] {
        let head = head("/", &[("host", given)]);
        assert_eq!(fact_from_untrusted_peer("", "host", &head), ok_some(expected), "{given}");
    }
}

#[test]
fn bypass_proxy_headers_need_trusted_peer() {
    let trusted = "ip: { trusted_proxies: [10.0.0.0/8] }";
    let head = head("/", &[("x-plan", "gold"), ("x-forwarded-for", "10.0.0.7, 198.51.100.7")]);
    for (name, section) in [
        ("user_id", "user_id: { header: x-plan }"),
        ("tier", "tier: { header: x-plan }"),
        ("tenant", "facts: { tenant: { header: x-plan } }"),
        ("tenant", "facts: { tenant: { header: x-plan, trust: proxy } }"),
    ] {
        let identity = format!("{trusted}, {section}");
        assert_eq!(fact_from_peer(PROXY, &identity, name, &head), ok_some("gold"), "{section}");
        assert_eq!(fact_from_peer(CLIENT, &identity, name, &head), Ok(None), "{section}");
        assert_eq!(
            fact_from_peer(PROXY, section, name, &head),
            Ok(None),
            "no proxy is trusted: {section}"
        );
    }
    let anyone = "facts: { tenant: { header: x-plan, trust: anyone } }";
    assert_eq!(fact_from_peer(CLIENT, anyone, "tenant", &head), ok_some("gold"));
}

/// An untrusted header must not cause a refusal either: it is not read at all.
#[test]
fn untrusted_header_is_never_validated() {
    let head = head("/", &[("x-plan", "a"), ("x-plan", "b")]);
    let identity = "user_id: { header: x-plan }, ip: { trusted_proxies: [10.0.0.0/8] }";
    assert_eq!(fact_from_peer(CLIENT, identity, "user_id", &head), Ok(None));
    assert_eq!(fact_from_peer(PROXY, identity, "user_id", &head), Err(FactError::Repeated));
}

/// Key parts are length-prefixed, not joined, so no separator in a value can merge two keys.
#[test]
fn bypass_separators_cause_no_key_collision() {
    let rules = rules(
        "identity: { api_key: { header: x-api-key }, user_id: { cookie: u } }\n\
         rules: [{ id: r, key_by: [api_key, user_id], limit: 1/s }]",
    );
    let of = |a: &str, b: &str| {
        rule_key(&rules, &head("/", &[("x-api-key", a), ("cookie", &format!("u={b}"))]), CLIENT)
    };
    for (one, two) in
        [(("a", "b_c"), ("a_b", "c")), (("a", "b.c"), ("a.b", "c")), (("ab", "c"), ("a", "bc"))]
    {
        assert_ne!(of(one.0, one.1), of(two.0, two.1));
    }
}

#[test]
fn user_and_custom_facts_from_cookies() {
    let head = head("/", &[("cookie", "sid=7; tenant=acme")]);
    assert_eq!(
        fact_from_untrusted_peer("user_id: { cookie: sid }", "user_id", &head),
        ok_some("7")
    );
    assert_eq!(
        fact_from_untrusted_peer("facts: { org: { cookie: tenant } }", "org", &head),
        ok_some("acme")
    );
}

#[test]
fn client_differs_from_trusted_peer() {
    let extractor = extractor("ip: { trusted_proxies: [10.0.0.0/8], from: forwarded }");
    let head = head("/", &[("forwarded", "for=\"[2001:db8::9]:1\"")]);
    let client = extractor.resolve_client(&head, ip(PROXY));
    assert_eq!(client, ResolvedClient { ip: Some(ip("2001:db8::9")), peer_is_trusted: true });
    assert!(extractor.trusts(ip(PROXY)) && !extractor.trusts(ip(CLIENT)));
}

mod tokens {
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    use serde_json::json;

    use super::*;

    const SECRET: &str = "thirty-two bytes or more of secret";
    const IDENTITY: &str = "user_id: { jwt: { key_file: k, algorithm: HS256 } }";

    fn extractor(identity: &str) -> Extractor {
        let source = format!("identity: {{ {identity} }}");
        let mut document = Document::parse("rules.yaml", &source).unwrap();
        document.set_key(SECRET);
        Extractor::new(document.identity()).unwrap()
    }

    fn token(secret: &str) -> String {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let claims = json!({ "sub": "ann", "exp": 4_000_000_000_u64 });
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
    }

    fn user(identity: &str, headers: &[(&str, &str)]) -> Result<Option<String>, FactError> {
        let (extractor, head) = (extractor(identity), head("/", headers));
        let facts = extractor.extract_facts(&head, "/", ip(CLIENT)).map_err(|bad| bad.why)?;
        Ok(facts.get("user_id").map(str::to_owned))
    }

    #[test]
    fn verified_token_yields_user_id() {
        let good = format!("Bearer {}", token(SECRET));
        assert_eq!(user(IDENTITY, &[("authorization", &good)]), ok_some("ann"));
        let other = "user_id: { jwt: { header: x-token, key_file: k, algorithm: HS256 } }";
        for value in [good.as_str(), &good["Bearer ".len()..]] {
            assert_eq!(user(other, &[("x-token", value)]), ok_some("ann"));
        }
    }

    #[test]
    fn bypass_unverified_claim_yields_no_user() {
        let forged = format!("Bearer {}", token("another secret of 32 bytes or more"));
        let bare = token(SECRET);
        for value in [forged.as_str(), &bare, "Bearer x.y.z", "Basic YTpi", "Bearer "] {
            assert_eq!(user(IDENTITY, &[("authorization", value)]), Ok(None), "{value}");
        }
    }

    #[test]
    fn duplicate_or_overlong_token_is_refused() {
        let good = format!("Bearer {}", token(SECRET));
        let twice = [("authorization", good.as_str()), ("authorization", &good)];
        assert_eq!(user(IDENTITY, &twice), Err(FactError::Repeated));
        let long = format!("Bearer {}", "x".repeat(MAX_VALUE_BYTES + 1));
        assert_eq!(user(IDENTITY, &[("authorization", &long)]), Err(FactError::LongValue));
    }

    #[test]
    fn missing_or_invalid_key_is_error() {
        let source = "identity: { user_id: { jwt: { key_file: jwt.pub } } }";
        let mut document = Document::parse("rules.yaml", source).unwrap();
        let missing = IdentityConfigError::KeyFileNotRead("jwt.pub".to_owned());
        assert_eq!(Extractor::new(document.identity()).unwrap_err(), missing);
        document.set_key(SECRET);
        let bad = Extractor::new(document.identity()).unwrap_err();
        assert_eq!(bad, IdentityConfigError::Key(JwtKeyError::Unknown));
    }
}
