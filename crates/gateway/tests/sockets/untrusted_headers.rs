//! Headers and trailers that upstreams trust: an untrusted client cannot set them.

use tidegate_gateway::Settings;
use tidegate_net::listen;

use super::scripted_upstream::ScriptedUpstream;
use tidegate_fixtures::gateway::{TestGateway, settings_for};

const UNTRUSTED_RULES: &str = "identity: { api_key: { header: x-api-key } }\n\
     rules: [{ id: r, key_by: api_key, limit: 1000/h, cost: { header: x-cost, max: 9 } }]";
const TRUSTED_RULES: &str = "identity: { ip: { trusted_proxies: [127.0.0.1] } }\nrules: []";

const OVERRIDE_HEADERS: [&str; 14] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    "x-forwarded-method",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-forwarded-uri",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x_forwarded_for",
    "x-forwarded_host",
    "x_real_ip",
];

/// The head that the upstream receives for a request with these headers.
async fn forwarded_head(
    gate: &TestGateway,
    upstream: &mut ScriptedUpstream,
    headers: &str,
) -> String {
    let mut caller = gate.connect().await;
    caller.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()).await;
    assert_eq!(caller.read_response().await.unwrap().status, 200);
    upstream.next_request().await
}

#[tokio::test]
async fn override_headers_pass_only_from_trusted_proxies() {
    let mut upstream = ScriptedUpstream::start().await;
    let headers: String =
        OVERRIDE_HEADERS.iter().map(|name| format!("{name}: claimed\r\n")).collect();
    for (rules, passes) in [(UNTRUSTED_RULES, false), (TRUSTED_RULES, true)] {
        let gate = TestGateway::start(rules, upstream.address).await;
        let seen = forwarded_head(&gate, &mut upstream, &headers).await;
        for name in OVERRIDE_HEADERS {
            assert_eq!(
                seen.contains(&format!("\r\n{name}: claimed\r\n")),
                passes,
                "{name}: {seen}"
            );
        }
    }
}

#[tokio::test]
async fn headers_read_by_rules_reach_upstream_once() {
    let mut upstream = ScriptedUpstream::start().await;
    let gate = TestGateway::start(UNTRUSTED_RULES, upstream.address).await;
    let headers = "Connection: close, X-API-Key, X-Cost, X-Hop\r\nX-API-Key: mine\r\nX-Cost: 2\r\n\
                   X-Hop: 1\r\nX_API_Key: theirs\r\nX_Cost: 1\r\nX_Mine: 1\r\n";
    let seen = forwarded_head(&gate, &mut upstream, headers).await;
    for (line, passes) in [
        ("x-api-key: mine", true),
        ("x-cost: 2", true),
        ("x_mine: 1", true),
        ("x-hop: 1", false),
        ("x_api_key: theirs", false),
        ("x_cost: 1", false),
    ] {
        assert_eq!(seen.contains(&format!("\r\n{line}\r\n")), passes, "{line}: {seen}");
    }
}

/// An upstream that trusts `X-User-Id` must not receive a forged one.
#[tokio::test]
async fn identity_headers_pass_only_from_trusted_proxies() {
    const IDENTITY: &str = "user_id: { header: x-user-id }, tier: { header: x-plan }, facts: { \
         tenant: { header: x-tenant }, agent: { header: x-agent, trust: anyone }, \
         credentials: { header: authorization } }";
    let mut upstream = ScriptedUpstream::start().await;
    let names = ["x-user-id", "x-plan", "x-tenant", "client-ip", "x-agent", "authorization"];
    let headers: String = names.iter().map(|name| format!("{name}: 7\r\n")).collect();
    for (proxies, passing) in [("10.9.9.9", &names[4..]), ("127.0.0.1", &names[..])] {
        let ip = format!("ip: {{ trusted_proxies: [{proxies}], from: client-ip }}");
        let rules = format!("identity: {{ {ip}, {IDENTITY} }}\nrules: []");
        let gate = TestGateway::start(&rules, upstream.address).await;
        let seen = forwarded_head(&gate, &mut upstream, &headers).await;
        for name in names {
            let passes = passing.contains(&name);
            assert_eq!(seen.contains(&format!("\r\n{name}: 7\r\n")), passes, "{name}: {seen}");
        }
    }
}

#[tokio::test]
async fn passed_headers_setting_allows_override_header() {
    let mut upstream = ScriptedUpstream::start().await;
    let passed_headers = vec!["X-HTTP-Method-Override".parse().unwrap()];
    let settings =
        Settings { passthrough_headers: passed_headers, ..settings_for(&[upstream.address]) };
    let gate =
        TestGateway::start_with(UNTRUSTED_RULES, settings, listen::Settings::default()).await;
    let headers = "X-HTTP-Method-Override: PUT\r\nX-HTTP-Method: PUT\r\n";
    let seen = forwarded_head(&gate, &mut upstream, headers).await;
    assert!(seen.contains("\r\nx-http-method-override: PUT\r\n"), "{seen}");
    assert!(!seen.contains("\r\nx-http-method: "), "{seen}");
}

#[tokio::test]
async fn trusted_headers_are_stripped_from_trailers() {
    let mut upstream = ScriptedUpstream::start().await;
    let others = [
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "x-forwarded-proto",
        "x-api-key",
        "x_api_key",
        "x-cost",
        "cookie",
        "x-request-id",
        "via",
    ];
    let names: Vec<&str> = OVERRIDE_HEADERS.into_iter().chain(others).collect();
    for rules in [UNTRUSTED_RULES, TRUSTED_RULES] {
        let gate = TestGateway::start(rules, upstream.address).await;
        let mut caller = gate.connect().await;
        let announced = names.join(", ");
        let trailers: String = names.iter().map(|name| format!("{name}: 6.6.6.6\r\n")).collect();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
             Trailer: {announced}, x-sum\r\n\r\n3\r\nabc\r\n0\r\n{trailers}x-sum: 7\r\n\r\n"
        );
        caller.send(request.as_bytes()).await;
        assert_eq!(caller.read_response().await.unwrap().status, 200);
        // The upstream here parses the trailers as the beginning of the next request.
        caller.send(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let (first, next) = (upstream.next_request().await, upstream.next_request().await);
        let all = format!("{first}{next}");
        let believed = |name: &&str| match *name {
            "x-api-key" | "x_api_key" | "x-cost" => rules == UNTRUSTED_RULES,
            _ => true,
        };
        for name in names.iter().filter(|name| believed(name)) {
            assert!(!all.contains(&format!("{name}: 6.6.6.6")), "{name}: {all}");
        }
        assert!(all.contains("x-sum: 7\r\n"), "{all}");
    }
}
