//! Every accepted form of a document: the documented one, and those of rule tables.

use crate::common::{compile, facts, matched_ids};
use tidegate_core::key::Secret;
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::time::Micros;
use tidegate_rules::identity::{
    ApiKeySource, CustomFactSource, FactTrust, ForwardingHeader, IdentityConfig, JwtAlgorithm,
    JwtIdentity, KeyText, UnknownKeyPolicy, UserIdentity,
};
use tidegate_rules::{
    ChargeWhen, CostSource, Document, MatchedRules, OnFail, Rule, RuleLimit, RuleMode, RuleSet,
};

/// Algorithm, requests, window in seconds, burst.
fn policy_numbers(rule: &Rule) -> (Algorithm, u64, u64, u64) {
    let policy = rule.limit().policy().unwrap();
    let quota = policy.quota();
    (policy.algorithm(), quota.requests, quota.window.get() / 1_000_000, quota.burst())
}

fn key_by(rule: &Rule) -> Vec<&str> {
    rule.key_by().collect()
}

#[test]
fn full_example_loads() {
    let set = compile(include_str!("../testdata/full_example.yaml"));
    assert_eq!(policy_numbers(&set.rules()[0]), (Algorithm::TokenBucket, 10, 1, 20));
    assert_eq!(
        policy_numbers(&set.rules()[1]),
        (Algorithm::SlidingWindowCounter, 1000, 3600, 1000)
    );
    let identity = set.identity();
    assert_eq!(identity.ip.trusted_proxies[0].to_string(), "10.0.0.0/8");
    let key = identity.api_key.as_ref().unwrap();
    assert_eq!(key.source, ApiKeySource::Header("x-api-key".to_owned()));
    assert_eq!(key.unknown, UnknownKeyPolicy::Itself);
    let jwt = JwtIdentity {
        header: "authorization".to_owned(),
        claim: "sub".to_owned(),
        key_file: "jwt.pub".to_owned(),
        key: None,
        algorithm: None,
        issuer: vec![],
        audience: vec![],
        leeway: Micros::from_secs(60),
    };
    assert_eq!(identity.user_id, Some(UserIdentity::Jwt(jwt)));

    let post = [("method", "POST"), ("path", "/api/items"), ("ip", "192.0.2.1")];
    assert_eq!(
        matched_ids(&set, &post),
        ["free-writes", "free-hourly"],
        "the default tier is `free`"
    );
    assert_eq!(
        matched_ids(&set, &[("api_key", "demo-paid")]),
        [""; 0],
        "the subject has tier `paid`"
    );
    let given = [("api_key", "demo-paid"), ("tier", "free")];
    assert_eq!(matched_ids(&set, &given), ["free-hourly"], "a given tier is kept");
}

#[test]
fn policy_list_with_other_names_loads() {
    let set = compile(include_str!("../testdata/policy_list.yaml"));
    let rules = set.rules();
    assert_eq!(policy_numbers(&rules[0]), (Algorithm::TokenBucket, 100, 60, 100));
    assert_eq!(policy_numbers(&rules[1]), (Algorithm::SlidingWindowLog, 1000, 3600, 1000));
    assert_eq!(
        policy_numbers(&rules[2]),
        (Algorithm::SlidingWindowCounter, 10_000, 86_400, 10_000)
    );
    assert_eq!(policy_numbers(&rules[3]), (Algorithm::FixedWindow, 50_000, 1, 50_000));
    let keys: Vec<_> = rules.iter().map(key_by).collect();
    assert_eq!(keys, [vec!["user_id"], vec!["ip"], vec!["api_key"], vec![]]);
    assert_eq!(rules[0].id(), "per-user");
}

#[test]
fn endpoint_limits_without_ids_load() {
    let set = compile(include_str!("../testdata/endpoint_limits.yaml"));
    assert_eq!(policy_numbers(&set.rules()[0]), (Algorithm::TokenBucket, 100, 60, 100));
    assert_eq!(key_by(&set.rules()[0]), ["ip"]);
    assert_eq!(key_by(&set.rules()[1]), ["api_key"]);
    let request = [("tier", "free"), ("method", "POST"), ("path", "/api/search")];
    assert_eq!(matched_ids(&set, &request).len(), 2);
}

#[test]
fn tiers_and_internal_endpoints_load() {
    let set = compile(include_str!("../testdata/tiers_and_internal_admin.yaml"));
    assert_eq!(*set.rules()[2].limit(), RuleLimit::Unlimited);
    assert_eq!(*set.rules()[5].limit(), RuleLimit::Deny { window: None });
    assert!(matches!(set.rules()[4].mode(), RuleMode::Warn(_)));
    let admin = |ip| matched_ids(&set, &[("path", "/api/admin/users"), ("ip", ip)]);
    assert_eq!(admin("10.1.2.3"), [""; 0]);
    assert_eq!(admin("fd00::1"), [""; 0]);
    assert_eq!(admin("203.0.113.9"), ["admin-internal"]);
    assert_eq!(matched_ids(&set, &[("path", "/api/admin")]), ["admin-internal"], "unknown address");
}

#[test]
fn table_rows_load() {
    let set = compile(include_str!("../testdata/table_rows.yaml"));
    let rules = set.rules();
    assert_eq!(policy_numbers(&rules[0]), (Algorithm::TokenBucket, 10, 1, 50));
    assert_eq!(policy_numbers(&rules[2]), (Algorithm::TokenBucket, 1000, 1, 2000));
    assert_eq!(
        policy_numbers(&rules[4]),
        (Algorithm::TokenBucket, 1, 2, 3),
        "exactly 0.5 per second"
    );
    assert_eq!((rules[0].id(), rules[0].description()), ("1", Some("free users")));
    assert!(!rules[4].is_active());
    let request = [("tier", "free"), ("user_id", "7"), ("path", "/api/search"), ("ip", "::1")];
    assert_eq!(matched_ids(&set, &request), ["1", "3", "4"]);
    let key =
        |method| rules[2].fingerprint(&facts(&[("method", method), ("path", "/api/search")]), &set);
    assert_eq!(key("GET"), key("POST"), "such a rule counts all methods of an endpoint together");
}

#[test]
fn config_service_document_loads() {
    let set = compile(include_str!("../testdata/config_service.yaml"));
    assert_eq!(
        policy_numbers(&set.rules()[1]),
        (Algorithm::SlidingWindowCounter, 1000, 3600, 1000)
    );
    assert!(set.rules().iter().all(|rule| key_by(rule) == ["api_key"]));
    assert!(set.rules().iter().all(|rule| rule.on_fail() == OnFail::Allow));
    let free = [("tier", "free"), ("method", "POST"), ("path", "/api/x")];
    assert_eq!(matched_ids(&set, &free).len(), 2, "both rules apply");
    assert_eq!(matched_ids(&set, &[("tier", "paid")]).len(), 1);
}

#[test]
fn every_rule_setting_is_parsed() {
    let set = compile(
        r#"
on_fail: local
facts: [tenant, route]
rules:
  - id: all
    match: { tenant: [acme, "beta-*"], ip: 192.0.2.0/24, endpoint: [/a, "GET|HEAD /b/{id}"] }
    key_by: [tenant, route]
    limit: { requests: 5, window: 1h30m, algorithm: Leaky_Bucket, burst: 9, queue: true }
    cost: 3
    mode: warn
    warn: { allow: 4, period: 30s }
    ban: { after: 10, within: 1m, for: 5m }
    charge: always
    on_fail: deny
  - { limit: 7/s using fixed_window }
"#,
    );
    let rule = &set.rules()[0];
    let queue = Algorithm::LeakyBucket(LeakMode::Queue);
    assert_eq!(policy_numbers(rule), (queue, 5, 5400, 9));
    assert_eq!(key_by(rule), ["tenant", "route"]);
    assert_eq!((rule.cost(), rule.charge()), (&CostSource::Fixed(3), ChargeWhen::Always));
    assert_eq!((rule.on_fail(), set.rules()[1].on_fail()), (OnFail::Deny, OnFail::Local));
    assert!(rule.ban().is_some());
    let warnings = rule.mode().warning_policy().unwrap();
    assert_eq!((warnings.limit(), warnings.period()), (4, Micros::from_secs(30)));
    assert_eq!(policy_numbers(&set.rules()[1]), (Algorithm::FixedWindow, 7, 1, 7));
}

#[test]
fn concurrency_limits_are_parsed() {
    let set = compile(
        "rules:
           - { id: a, limit: { concurrent: 20 } }
           - { id: b, limit: { concurrent: 5, hold: 2m } }
           - { id: c, limit: { requests: 20, window: 30s, algorithm: sliding_window_log } }
           - { limit: { concurrent: 1 } }",
    );
    let slots = |at: usize| policy_numbers(&set.rules()[at]);
    assert_eq!(slots(0), (Algorithm::Concurrent, 20, 30, 20));
    assert_eq!(slots(1), (Algorithm::Concurrent, 5, 120, 5));
    let policy = |at: usize| set.rules()[at].limit().policy().unwrap();
    assert_eq!(policy(1).slot_hold(), Some(Micros::from_secs(120)));
    assert!(policy(0).is_concurrency() && !policy(2).is_concurrency());
    assert_eq!(policy(0).algorithm().name(), "concurrent");
    assert!(set.rules()[3].id().contains("by-ip-30s-"), "{}", set.rules()[3].id());
}

#[test]
fn every_cost_source_is_parsed() {
    let set = compile(
        "rules:
           - { limit: 100/h, cost: { header: X-Cost, max: 1000 } }
           - { limit: 100/h, cost: { body: 1KiB } }
           - { limit: 100/h, cost: { response_header: x-tokens-used, max: 100_000 } }
           - { limit: 100/h, cost: { response_header: x-tokens-used, max: 100_000, estimate: 50 } }
           - { limit: 100/h, cost: { response: 64KiB, estimate: 4 } }
           - { limit: { concurrent: 5 }, cost: { header: x-weight, max: 3 } }
           - { limit: 100/h }",
    );
    let tokens = |estimate| CostSource::ResponseHeader {
        name: "x-tokens-used".into(),
        max: 100_000,
        estimate,
    };
    let expected = [
        CostSource::Header { name: "x-cost".into(), max: 1_000 },
        CostSource::Body { part: 1_024 },
        tokens(1),
        tokens(50),
        CostSource::Response { part: 65_536, estimate: 4 },
        CostSource::Header { name: "x-weight".into(), max: 3 },
        CostSource::Fixed(1),
    ];
    let costs: Vec<CostSource> = set.rules().iter().map(|rule| rule.cost().clone()).collect();
    assert_eq!(costs, expected);
    let base: Vec<u64> = costs.iter().map(CostSource::base).collect();
    assert_eq!(base, [1, 1, 1, 50, 4, 1, 1]);
}

#[test]
fn json_and_empty_documents_load() {
    let set = compile(r#"{"rules": [{"id": "j", "match": {"user_id": 7}, "limit": "1/s"}]}"#);
    assert_eq!(matched_ids(&set, &[("user_id", "7")]), ["j"]);
    let set = compile("");
    assert_eq!(set.rules().len(), 0);
    assert_eq!(compile("# nothing\n").rules().len(), 0);
}

#[test]
fn shorthands_load_alone_or_after_document() {
    let document = Document::from_shorthands(&["100/min by ip burst 20", "5/s by global"]).unwrap();
    let set = RuleSet::compile(&document, Secret::UNSET).unwrap();
    assert_eq!(policy_numbers(&set.rules()[0]), (Algorithm::TokenBucket, 100, 60, 20));
    assert_eq!(key_by(&set.rules()[1]), [""; 0]);

    let source = include_str!("../testdata/full_example.yaml");
    let mut document = Document::parse("rules.yaml", source).unwrap();
    let before = RuleSet::compile(&document, Secret::UNSET).unwrap();
    document.push_shorthands(&["100/min", "100/min"]).unwrap();
    let set = RuleSet::compile(&document, Secret::UNSET).unwrap();
    assert_eq!((before.rules().len(), set.rules().len()), (2, 4));
    assert_ne!(set.rules()[2].id(), set.rules()[3].id(), "derived ids are unique");
    assert_ne!(before.version(), set.version());

    let error = Document::from_shorthands(&["100/min", "10/x"]).unwrap_err().to_string();
    assert!(error.contains("--limit:2:1: [1]: this is not a window, found `x`"), "{error}");
}

#[test]
fn derived_ids_depend_only_on_meaning() {
    let id = |rule: &str| compile(&format!("rules: [{rule}]")).rules()[0].id().to_owned();
    let first = id("{ match: { tier: free, endpoint: 'POST /api/*' }, limit: 10/s }");
    assert!(first.starts_with("endpoint-post-api-tier-free-by-ip-1s-"), "{first}");
    assert_eq!(first, id("{ limit: 99/s burst 5, plan: free, match: { endpoint: POST /api/* } }"));
    let others = [
        "{ match: { tier: paid, endpoint: 'POST /api/*' }, limit: 10/s }",
        "{ match: { tier: free, endpoint: 'POST /api/*' }, limit: 10/m }",
        "{ match: { tier: free, endpoint: 'POST /api/*' }, limit: 10/s by user_id }",
        "{ match: { tier: free, endpoint: 'POST /api/*' }, limit: 10/s using leaky_bucket }",
    ];
    assert!(others.iter().all(|other| id(other) != first));
}

#[test]
fn unknown_api_key_falls_back_to_ip() {
    let set = compile(
        "identity: { api_key: { header: X-Api-Key, unknown: ip } }\n\
         subjects: [{ api_key: known, tier: paid, tenant: acme }]\n\
         rules: [{ id: r, key_by: api_key, limit: 1/s }]",
    );
    let complete = |key| {
        let mut facts = facts(&[("api_key", key), ("ip", "192.0.2.1")]);
        set.enrich(&mut facts);
        facts
    };
    let known = complete("known");
    assert_eq!((known.get("tier"), known.get("tenant")), (Some("paid"), Some("acme")));
    assert_eq!(complete("other").get("api_key"), None);
    let rule = &set.rules()[0];
    assert_eq!(rule.fingerprint(&complete("x"), &set), rule.fingerprint(&complete("y"), &set));
    assert_ne!(rule.fingerprint(&complete("known"), &set), rule.fingerprint(&complete("y"), &set));
}

#[test]
fn enriching_a_view_leaves_owned_facts() {
    let set = compile(include_str!("../testdata/full_example.yaml"));
    let owned = facts(&[("api_key", "demo-paid")]).into_owned();
    let mut view = owned.borrowed();
    set.enrich(&mut view);
    assert_eq!((owned.get("tier"), view.get("tier")), (None, Some("paid")));
    let mut found = MatchedRules::new();
    set.match_rules(&view, &mut found);
    assert!(found.is_empty());
}

fn identity(text: &str) -> IdentityConfig {
    Document::parse("rules.yaml", &format!("identity: {{ {text} }}")).unwrap().identity().clone()
}

#[test]
fn identity_parses_trusted_proxies_and_headers() {
    assert_eq!(
        identity("ip: {}").ip.forwarding_header,
        ForwardingHeader::XForwardedFor,
        "the default"
    );
    for (typed, expected) in [
        ("x_forwarded_for", ForwardingHeader::XForwardedFor),
        ("X-Forwarded-For", ForwardingHeader::XForwardedFor),
        ("Forwarded", ForwardingHeader::Forwarded),
        ("X-Real-IP", ForwardingHeader::Header("x-real-ip".to_owned())),
    ] {
        assert_eq!(
            identity(&format!("ip: {{ from: {typed} }}")).ip.forwarding_header,
            expected,
            "{typed}"
        );
    }
    let ip = identity("ip: { trusted_proxies: [10.0.0.0/8, '::ffff:192.0.2.7'] }").ip;
    for (peer, trusted) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("127.0.0.1", false),
        ("::1", false),
    ] {
        assert_eq!(ip.trusts(peer.parse().unwrap()), trusted, "{peer}");
    }
    assert!(!ip.trusts_unix, "a network does not include Unix sockets");
    let ip = identity("ip: { trusted_proxies: [unix] }").ip;
    assert!(ip.trusts_unix && ip.trusted_proxies.is_empty());
}

#[test]
fn identity_parses_key_user_fact_sources() {
    let key = |text: &str| identity(&format!("api_key: {{ {text} }}")).api_key.unwrap().source;
    assert_eq!(key("query: key"), ApiKeySource::Query("key".to_owned()));
    assert_eq!(key("bearer: true"), ApiKeySource::Bearer);
    assert_eq!(key("cookie: Sid"), ApiKeySource::Cookie("Sid".to_owned()));
    let user = identity("user_id: { cookie: sid }").user_id;
    assert_eq!(user, Some(UserIdentity::Cookie("sid".to_owned())));
    let facts = identity(
        "facts: { tenant: { header: X-Tenant }, agent: { header: user-agent, trust: anyone }, \
         device: { cookie: device } }",
    );
    let sources: Vec<_> = facts.facts.iter().map(|f| (f.name.as_str(), &f.source)).collect();
    let expected = [
        ("tenant", &CustomFactSource::Header("x-tenant".to_owned(), FactTrust::Proxy)),
        ("agent", &CustomFactSource::Header("user-agent".to_owned(), FactTrust::Anyone)),
        ("device", &CustomFactSource::Cookie("device".to_owned())),
    ];
    assert_eq!(sources, expected);
}

#[test]
fn tier_can_follow_custom_fact() {
    let set = compile(
        "identity: { tier: { subject: tenant }, facts: { tenant: { header: x-tenant } } }\n\
         subjects: [{ tenant: acme, tier: paid }]\n\
         rules: [{ id: r, match: { tier: paid }, limit: 1/s }]",
    );
    assert_eq!(matched_ids(&set, &[("tenant", "acme")]), ["r"]);
    assert_eq!(matched_ids(&set, &[("tenant", "other")]), [""; 0]);
}

#[test]
fn jwt_settings_parse_and_key_is_redacted() {
    let source = "identity: { user_id: { jwt: { key_file: k, algorithm: hs256, issuer: us, \
                  audience: [api, web], leeway: 5s } } }";
    let mut document = Document::parse("rules.yaml", source).unwrap();
    assert_eq!(document.key_file(), Some("k"));
    document.set_key("hush");
    let Some(UserIdentity::Jwt(jwt)) = &document.identity().user_id else {
        panic!("no token");
    };
    assert_eq!(jwt.key.as_ref().map(KeyText::as_str), Some("hush"));
    assert_eq!(jwt.algorithm, Some(JwtAlgorithm::Hs256));
    assert_eq!((jwt.issuer.as_slice(), jwt.audience.len()), (&["us".to_owned()][..], 2));
    assert_eq!(jwt.leeway, Micros::from_secs(5));
    assert!(!format!("{document:?}").contains("hush"));
}
