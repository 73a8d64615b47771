//! The spans of one request, at each API.

use serde_json::json;

use super::{
    PARENT_SPAN_ID, SPAN_KIND_CLIENT, SPAN_KIND_INTERNAL, SPAN_KIND_SERVER, TRACE_ID,
    sampled_traceparent, start_traced_gateway,
};
use crate::support::external_programs::call_grpc_with_metadata;
use crate::support::otlp_collector::attribute_value;
use crate::support::{RecordingUpstream, ServerProcess, TestFolder, TestOtlpCollector};

#[test]
fn gateway_trace_links_caller_and_upstream() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let more = ["--otlp-service", "edge-1", "--otlp-attributes", "cloud.region=eu"];
    let args = [&["--limit", "5/min by ip"], &more[..]].concat();
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    let caller = sampled_traceparent();
    let headers = [("traceparent", caller.as_str()), ("tracestate", "vendor=a:b"), ("x-a", "b")];
    assert_eq!(server.gateway_client().get_with("/items?token=s3cret", &headers).status, 200);
    let spans = collector.wait_for_trace(TRACE_ID, 3);
    let served = spans.find_span("GET", SPAN_KIND_SERVER);
    assert_eq!(served.parent_id(), PARENT_SPAN_ID);
    assert_eq!(served.0.trace_state, "vendor=a:b");
    for (name, value) in [
        ("tidegate.api", "gateway"),
        ("http.request.method", "GET"),
        ("url.path", "/items"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(served.attribute(name).as_deref(), Some(value), "{name}: {served:?}");
    }
    let decided = spans.find_span("decide", SPAN_KIND_INTERNAL);
    assert_eq!(decided.parent_id(), served.span_id());
    for (name, value) in [
        ("tidegate.verdict", "allow"),
        ("tidegate.allowed", "true"),
        ("tidegate.mode", "enforce"),
        ("tidegate.answered_by", "store"),
        ("tidegate.rules", "1"),
        ("tidegate.cost", "1"),
        ("tidegate.limit", "5"),
        ("tidegate.remaining", "4"),
    ] {
        assert_eq!(decided.attribute(name).as_deref(), Some(value), "{name}: {decided:?}");
    }
    assert!(decided.attribute("tidegate.rule").is_some(), "{decided:?}");
    assert!(decided.attribute("tidegate.store_time_us").is_some(), "{decided:?}");
    let called = spans.find_span("GET", SPAN_KIND_CLIENT);
    assert_eq!(called.parent_id(), served.span_id());
    assert_eq!(called.attribute("server.port"), Some(upstream.address.port().to_string()));
    assert_eq!(called.attribute("http.response.status_code").as_deref(), Some("200"));
    let forwarded = upstream.next_request();
    let expected = format!("00-{TRACE_ID}-{}-01", called.span_id());
    assert_eq!(forwarded.header("traceparent"), Some(expected.as_str()));
    assert_eq!(forwarded.header("tracestate"), Some("vendor=a:b"));
    let within = |inner: &crate::support::otlp_collector::ReceivedSpan| {
        served.0.start_time_unix_nano <= inner.0.start_time_unix_nano
            && inner.0.end_time_unix_nano <= served.0.end_time_unix_nano
    };
    assert!(within(decided) && within(called), "{spans:?}");
    let resource = collector.resource.lock().unwrap().clone();
    assert_eq!(attribute_value(&resource, "service.name").as_deref(), Some("edge-1"));
    assert_eq!(attribute_value(&resource, "cloud.region").as_deref(), Some("eu"));
    let all = format!("{spans:?}");
    assert!(!all.contains("s3cret") && !all.contains("client."), "no query, no client: {all}");
}

#[test]
fn refusal_has_no_upstream_span() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let server = start_traced_gateway(&upstream.url(), &collector, &["--limit", "1/d by ip"]);
    assert_eq!(server.gateway_client().get("/").status, 200);
    assert_eq!(
        server.gateway_client().get_with("/", &[("traceparent", &sampled_traceparent())]).status,
        429
    );
    let spans = collector.wait_for_trace(TRACE_ID, 2);
    let served = spans.find_span("GET", SPAN_KIND_SERVER);
    assert_eq!(served.attribute("http.response.status_code").as_deref(), Some("429"));
    assert_eq!(served.0.status.as_ref().map_or(0, |status| status.code), 0, "not an error");
    let decided = spans.find_span("decide", SPAN_KIND_INTERNAL);
    assert_eq!(decided.attribute("tidegate.verdict").as_deref(), Some("deny"));
    assert_eq!(decided.attribute("tidegate.allowed").as_deref(), Some("false"));
    assert_eq!(
        decided.attribute("tidegate.cost").as_deref(),
        Some("0"),
        "a refused request costs nothing"
    );
}

#[test]
fn unreachable_upstream_marks_both_spans() {
    let collector = TestOtlpCollector::start();
    let unused = tidegate_testkit::port::ReservedPort::reserve();
    let upstream = format!("http://{}", unused.address());
    let server = start_traced_gateway(&upstream, &collector, &["--limit", "5/min"]);
    assert_eq!(
        server.gateway_client().get_with("/", &[("traceparent", &sampled_traceparent())]).status,
        502
    );
    let spans = collector.wait_for_trace(TRACE_ID, 3);
    for (kind, error) in [(SPAN_KIND_SERVER, "502"), (SPAN_KIND_CLIENT, "no_answer")] {
        let span = spans.find_span("GET", kind);
        assert_eq!(span.attribute("error.type").as_deref(), Some(error), "{span:?}");
        assert_eq!(span.0.status.as_ref().unwrap().code, 2);
    }
}

#[test]
fn http_api_traces_checks_not_probes() {
    let collector = TestOtlpCollector::start();
    let server = ServerProcess::start(&["--otlp", &collector.url(), "--limit", "1/d by user_id"]);
    let mut client = server.client();
    assert_eq!(client.get_with("/livez", &[("traceparent", &sampled_traceparent())]).status, 200);
    let body = json!({"facts": {"user_id": "alice"}}).to_string();
    let parent = sampled_traceparent();
    let headers = [("traceparent", parent.as_str())];
    assert_eq!(client.request("POST /v1/check", &headers, &body).status, 200);
    let spans = collector.wait_for_trace(TRACE_ID, 2);
    let served = spans.find_span("POST /v1/check", SPAN_KIND_SERVER);
    assert_eq!(
        (served.parent_id(), served.attribute("tidegate.api").as_deref()),
        (PARENT_SPAN_ID.to_owned(), Some("http"))
    );
    assert_eq!(spans.find_span("decide", SPAN_KIND_INTERNAL).parent_id(), served.span_id());
    assert!(!format!("{spans:?}").contains("alice"), "{spans:?}");
    // The checks of one call share a decision span, which describes the refused one.
    let other = parent.replace(TRACE_ID, &TRACE_ID.replace('4', "5"));
    let check = |user: &str| json!({"facts": {"user_id": user}});
    let body = json!({"checks": [check("bob"), check("alice"), check("carol")]}).to_string();
    assert_eq!(client.request("POST /v1/checks", &[("traceparent", &other)], &body).status, 200);
    let spans = collector.wait_for_trace(&TRACE_ID.replace('4', "5"), 2);
    let decided = spans.find_span("decide", SPAN_KIND_INTERNAL);
    assert_eq!(decided.attribute("tidegate.decisions").as_deref(), Some("3"));
    assert_eq!(decided.attribute("tidegate.verdict").as_deref(), Some("deny"));
}

#[test]
fn forward_auth_and_grpc_continue_traces() {
    let (collector, folder) = (TestOtlpCollector::start(), TestFolder::new());
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
    let server = ServerProcess::with_config(&rules, &args);
    let parent = sampled_traceparent();
    let headers = [("traceparent", parent.as_str()), ("x-forwarded-method", "GET")];
    assert_eq!(server.client().get_with("/v1/forward-auth", &headers).status, 200);
    let spans = collector.wait_for_trace(TRACE_ID, 2);
    let served = spans.find_span("GET /v1/forward-auth", SPAN_KIND_SERVER);
    assert_eq!(served.attribute("tidegate.api").as_deref(), Some("forward_auth"));
    let decided = spans.find_span("decide", SPAN_KIND_INTERNAL);
    assert_eq!(decided.attribute("tidegate.rule").as_deref(), Some("all"));

    let other = TRACE_ID.replace('4', "6");
    let metadata = json!({"traceparent": sampled_traceparent().replace(TRACE_ID, &other)});
    let call = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "alice"}]}]});
    let responses =
        call_grpc_with_metadata(&server.grpc_address(), &[call.clone(), call], &metadata);
    assert_eq!(responses[1]["overallCode"], "OVER_LIMIT", "{responses:?}");
    let spans = collector.wait_for_trace(&other, 4);
    let name = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let (decided, served): (Vec<_>, Vec<_>) =
        spans.0.iter().partition(|span| span.0.name == "decide");
    assert!(
        served.iter().all(|span| span.0.name == name && span.parent_id() == PARENT_SPAN_ID),
        "{spans:?}"
    );
    assert!(
        served.iter().all(|span| span.attribute("rpc.grpc.status_code").as_deref() == Some("0"))
    );
    for (decided, verdict) in decided.iter().zip(["allow", "deny"]) {
        assert_eq!(decided.attribute("tidegate.verdict").as_deref(), Some(verdict));
        assert_eq!(decided.attribute("tidegate.rule").as_deref(), Some("envoy"));
        assert!(served.iter().any(|span| span.span_id() == decided.parent_id()), "{spans:?}");
    }
    assert!(!format!("{spans:?}").contains("alice"), "{spans:?}");
}
