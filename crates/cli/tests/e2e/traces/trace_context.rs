//! Trace context: continuing the caller's trace, starting a new one, or passing headers through.

use super::{
    PARENT_SPAN_ID, SPAN_KIND_SERVER, TRACE_ID, sampled_traceparent, start_traced_gateway,
};
use crate::support::{RecordingUpstream, ServerProcess, TestOtlpCollector};

/// A proxy without tracing must forward even an invalid header unchanged.
const INVALID_TRACEPARENT: &str = "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0X";

#[test]
fn trace_headers_pass_unchanged_without_tracing() {
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway(&upstream.url(), &["--limit", "100/s"]);
    for parent in [&sampled_traceparent(), INVALID_TRACEPARENT] {
        let headers = [("traceparent", parent), ("tracestate", "a=1,b=2;x"), ("Tracestate", "c")];
        assert_eq!(server.gateway_client().get_with("/", &headers).status, 200);
        let forwarded = upstream.next_request();
        assert_eq!(forwarded.header("traceparent"), Some(parent));
        let states: Vec<&str> =
            forwarded.head.lines().filter(|line| line.starts_with("tracestate")).collect();
        assert_eq!(states, ["tracestate: a=1,b=2;x", "tracestate: c"]);
    }
    assert_eq!(server.gateway_client().get("/").status, 200);
    assert_eq!(upstream.next_request().header("traceparent"), None, "nothing is added");
}

#[test]
fn unsampled_trace_is_forwarded_and_unexported() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let server = start_traced_gateway(&upstream.url(), &collector, &["--limit", "100/s"]);
    let parent = sampled_traceparent().replace("-01", "-00");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "a=1")];
    assert_eq!(server.gateway_client().get_with("/quiet", &headers).status, 200);
    let forwarded = upstream.next_request();
    assert_eq!(forwarded.header("traceparent"), Some(parent.as_str()));
    assert_eq!(forwarded.header("tracestate"), Some("a=1"));
    // Then a sampled request: when it arrives, the unsampled one would have arrived too.
    assert_eq!(
        server.gateway_client().get_with("/", &[("traceparent", &sampled_traceparent())]).status,
        200
    );
    let spans = collector.wait_for_trace(TRACE_ID, 3);
    assert_eq!(
        spans.find_span("GET", SPAN_KIND_SERVER).attribute("url.path").as_deref(),
        Some("/")
    );
}

#[test]
fn invalid_traceparent_starts_a_new_trace() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let server = start_traced_gateway(&upstream.url(), &collector, &["--limit", "100/s"]);
    let twice =
        [("traceparent", &*sampled_traceparent()), ("traceparent", &*sampled_traceparent())];
    for headers in [&[("traceparent", INVALID_TRACEPARENT), ("tracestate", "a=1")][..], &twice, &[]]
    {
        assert_eq!(server.gateway_client().get_with("/", headers).status, 200);
        let forwarded = upstream.next_request();
        let parent = forwarded.header("traceparent").unwrap();
        let parts: Vec<&str> = parent.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { panic!("{parent}") };
        assert_eq!((version, trace.len(), span.len(), flags), ("00", 32, 16, "01"), "{parent}");
        assert!(trace != TRACE_ID && span != PARENT_SPAN_ID, "{parent}");
        assert_eq!(forwarded.header("tracestate"), None, "it belongs to the invalid parent");
        let spans = collector.wait_for_trace(trace, 3);
        assert_eq!(spans.find_span("GET", SPAN_KIND_SERVER).parent_id(), "");
    }
}

#[test]
fn sampling_ratio_applies_to_new_traces() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let args = ["--limit", "1000/s", "--otlp-sample", "0.5"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    let mut client = server.gateway_client();
    let mut sampled = Vec::new();
    for _ in 0..200 {
        assert_eq!(client.get("/").status, 200);
        let forwarded = upstream.next_request();
        let parent = forwarded.header("traceparent").unwrap();
        if parent.ends_with("-01") {
            sampled.push(parent[3..35].to_owned());
        } else {
            assert!(parent.ends_with("-00"), "{parent}");
        }
    }
    // With 200 fair draws, a count outside this range is practically impossible.
    assert!((50..=150).contains(&sampled.len()), "{}", sampled.len());
    sampled.iter().for_each(|trace| _ = collector.wait_for_trace(trace, 3));
    assert_eq!(collector.received_spans().len(), sampled.len() * 3);
}
