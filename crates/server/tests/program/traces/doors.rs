//! The spans of one request at each door.

use serde_json::json;

use super::{CALLER, CLIENT, INTERNAL, SERVER, TRACE, gateway, sampled};
use crate::support::collector::value;
use crate::support::programs::ask_grpc_with;
use crate::support::{Collector, Folder, Server, Upstream};

#[test]
fn through_the_gateway_a_trace_goes_from_the_caller_to_the_upstream() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let more = ["--otlp-service", "edge-1", "--otlp-attributes", "cloud.region=eu"];
    let args = [&["--limit", "5/min by ip"], &more[..]].concat();
    let server = gateway(&upstream.url(), &collector, &args);
    let caller = sampled();
    let said = [("traceparent", caller.as_str()), ("tracestate", "vendor=a:b"), ("x-a", "b")];
    assert_eq!(server.visitor().get_with("/items?token=s3cret", &said).status, 200);
    let spans = collector.trace(TRACE, 3);
    let served = spans.named("GET", SERVER);
    assert_eq!(served.parent(), CALLER);
    assert_eq!(served.0.trace_state, "vendor=a:b");
    for (name, told) in [
        ("tidegate.door", "gateway"),
        ("http.request.method", "GET"),
        ("url.path", "/items"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(served.get(name).as_deref(), Some(told), "{name}: {served:?}");
    }
    let decided = spans.named("decide", INTERNAL);
    assert_eq!(decided.parent(), served.id());
    for (name, told) in [
        ("tidegate.verdict", "allow"),
        ("tidegate.allowed", "true"),
        ("tidegate.mode", "enforce"),
        ("tidegate.answered_by", "store"),
        ("tidegate.rules", "1"),
        ("tidegate.cost", "1"),
        ("tidegate.limit", "5"),
        ("tidegate.remaining", "4"),
    ] {
        assert_eq!(decided.get(name).as_deref(), Some(told), "{name}: {decided:?}");
    }
    assert!(decided.get("tidegate.rule").is_some(), "{decided:?}");
    assert!(decided.get("tidegate.store_time_us").is_some(), "{decided:?}");
    let called = spans.named("GET", CLIENT);
    assert_eq!(called.parent(), served.id());
    assert_eq!(called.get("server.port"), Some(upstream.address.port().to_string()));
    assert_eq!(called.get("http.response.status_code").as_deref(), Some("200"));
    let arrived = upstream.request();
    let expected = format!("00-{TRACE}-{}-01", called.id());
    assert_eq!(arrived.header("traceparent"), Some(expected.as_str()));
    assert_eq!(arrived.header("tracestate"), Some("vendor=a:b"));
    let within = |inner: &crate::support::collector::Told| {
        served.0.start_time_unix_nano <= inner.0.start_time_unix_nano
            && inner.0.end_time_unix_nano <= served.0.end_time_unix_nano
    };
    assert!(within(decided) && within(called), "{spans:?}");
    let resource = collector.resource.lock().unwrap().clone();
    assert_eq!(value(&resource, "service.name").as_deref(), Some("edge-1"));
    assert_eq!(value(&resource, "cloud.region").as_deref(), Some("eu"));
    let all = format!("{spans:?}");
    assert!(!all.contains("s3cret") && !all.contains("client."), "no query, no client: {all}");
}

#[test]
fn a_refusal_is_a_span_that_says_so_and_goes_no_further() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let server = gateway(&upstream.url(), &collector, &["--limit", "1/d by ip"]);
    assert_eq!(server.visitor().get("/").status, 200);
    assert_eq!(server.visitor().get_with("/", &[("traceparent", &sampled())]).status, 429);
    let spans = collector.trace(TRACE, 2);
    let served = spans.named("GET", SERVER);
    assert_eq!(served.get("http.response.status_code").as_deref(), Some("429"));
    assert_eq!(served.0.status.as_ref().map_or(0, |status| status.code), 0, "it is no fault");
    let decided = spans.named("decide", INTERNAL);
    assert_eq!(decided.get("tidegate.verdict").as_deref(), Some("deny"));
    assert_eq!(decided.get("tidegate.allowed").as_deref(), Some("false"));
    assert_eq!(decided.get("tidegate.cost").as_deref(), Some("0"), "it costs nobody anything");
}

#[test]
fn an_upstream_that_is_gone_is_a_fault_of_both_spans() {
    let collector = Collector::start();
    let nobody = tidegate_testkit::port::Port::take();
    let upstream = format!("http://{}", nobody.address());
    let server = gateway(&upstream, &collector, &["--limit", "5/min"]);
    assert_eq!(server.visitor().get_with("/", &[("traceparent", &sampled())]).status, 502);
    let spans = collector.trace(TRACE, 3);
    for (kind, why) in [(SERVER, "502"), (CLIENT, "no_answer")] {
        let span = spans.named("GET", kind);
        assert_eq!(span.get("error.type").as_deref(), Some(why), "{span:?}");
        assert_eq!(span.0.status.as_ref().unwrap().code, 2);
    }
}

#[test]
fn the_http_door_tells_its_questions_and_no_probe() {
    let collector = Collector::start();
    let server = Server::start(&["--otlp", &collector.url(), "--limit", "1/d by user_id"]);
    let mut client = server.client();
    assert_eq!(client.get_with("/livez", &[("traceparent", &sampled())]).status, 200);
    let body = json!({"facts": {"user_id": "alice"}}).to_string();
    let parent = sampled();
    let said = [("traceparent", parent.as_str())];
    assert_eq!(client.ask("POST /v1/check", &said, &body).status, 200);
    let spans = collector.trace(TRACE, 2);
    let served = spans.named("POST /v1/check", SERVER);
    assert_eq!(
        (served.parent(), served.get("tidegate.door").as_deref()),
        (CALLER.to_owned(), Some("http"))
    );
    assert_eq!(spans.named("decide", INTERNAL).parent(), served.id());
    assert!(!format!("{spans:?}").contains("alice"), "{spans:?}");
    // Several questions of one call are one decision span, of which the one that refuses is told.
    let other = parent.replace(TRACE, &TRACE.replace('4', "5"));
    let check = |user: &str| json!({"facts": {"user_id": user}});
    let body = json!({"checks": [check("bob"), check("alice"), check("carol")]}).to_string();
    assert_eq!(client.ask("POST /v1/checks", &[("traceparent", &other)], &body).status, 200);
    let spans = collector.trace(&TRACE.replace('4', "5"), 2);
    let decided = spans.named("decide", INTERNAL);
    assert_eq!(decided.get("tidegate.decisions").as_deref(), Some("3"));
    assert_eq!(decided.get("tidegate.verdict").as_deref(), Some("deny"));
}

#[test]
fn forward_auth_and_envoy_continue_their_callers_traces() {
    let (collector, folder) = (Collector::start(), Folder::new());
    let rules = folder.write(
        "rules.yaml",
        r#"
identity: { ip: { trusted_proxies: [127.0.0.1/32] } }
rules:
  - { id: all, key_by: ip, limit: 1/30d using fixed_window, match: { method: GET } }
  - { id: envoy, match: { domain: edge, descriptor: [user] }, key_by: descriptor, limit: 1/30d using fixed_window }
"#,
    );
    let args = ["--otlp", &collector.url(), "--grpc", "127.0.0.1:0"];
    let server = Server::with_config(&rules, &args);
    let parent = sampled();
    let said = [("traceparent", parent.as_str()), ("x-forwarded-method", "GET")];
    assert_eq!(server.client().get_with("/v1/forward-auth", &said).status, 200);
    let spans = collector.trace(TRACE, 2);
    let served = spans.named("GET /v1/forward-auth", SERVER);
    assert_eq!(served.get("tidegate.door").as_deref(), Some("forward_auth"));
    let decided = spans.named("decide", INTERNAL);
    assert_eq!(decided.get("tidegate.rule").as_deref(), Some("all"));

    let other = TRACE.replace('4', "6");
    let metadata = json!({"traceparent": sampled().replace(TRACE, &other)});
    let call = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]});
    let answers = ask_grpc_with(&server.grpc(), &[call.clone(), call], &metadata);
    assert_eq!(answers[1]["overallCode"], "OVER_LIMIT", "{answers:?}");
    let spans = collector.trace(&other, 4);
    let name = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let (decided, served): (Vec<_>, Vec<_>) =
        spans.0.iter().partition(|span| span.0.name == "decide");
    assert!(served.iter().all(|span| span.0.name == name && span.parent() == CALLER), "{spans:?}");
    assert!(served.iter().all(|span| span.get("rpc.grpc.status_code").as_deref() == Some("0")));
    for (decided, verdict) in decided.iter().zip(["allow", "deny"]) {
        assert_eq!(decided.get("tidegate.verdict").as_deref(), Some(verdict));
        assert_eq!(decided.get("tidegate.rule").as_deref(), Some("envoy"));
        assert!(served.iter().any(|span| span.id() == decided.parent()), "{spans:?}");
    }
    assert!(!format!("{spans:?}").contains("alice"), "{spans:?}");
}
