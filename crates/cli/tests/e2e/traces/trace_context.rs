//! Whose trace it is: the caller's, a new one, or none of our business.

use super::{
    PARENT_SPAN_ID, SPAN_KIND_SERVER, TRACE_ID, sampled_traceparent, start_traced_gateway,
};
use crate::support::{RecordingUpstream, ServerProcess, TestOtlpCollector};

/// As a proxy must pass it on that makes no traces, right or wrong.
const INVALID_TRACEPARENT: &str = "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0X";

#[test]
fn trace_headers_pass_unchanged_without_tracing() {
    let upstream = RecordingUpstream::start();
    let server = ServerProcess::start_gateway(&upstream.url(), &["--limit", "100/s"]);
    for parent in [&sampled_traceparent(), INVALID_TRACEPARENT] {
        let said = [("traceparent", parent), ("tracestate", "a=1,b=2;x"), ("Tracestate", "c")];
        assert_eq!(server.gateway_client().get_with("/", &said).status, 200);
        let arrived = upstream.next_request();
        assert_eq!(arrived.header("traceparent"), Some(parent));
        let states: Vec<&str> =
            arrived.head.lines().filter(|line| line.starts_with("tracestate")).collect();
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
    let said = [("traceparent", parent.as_str()), ("tracestate", "a=1")];
    assert_eq!(server.gateway_client().get_with("/quiet", &said).status, 200);
    let arrived = upstream.next_request();
    assert_eq!(arrived.header("traceparent"), Some(parent.as_str()));
    assert_eq!(arrived.header("tracestate"), Some("a=1"));
    // One that is, afterwards: when it is there, the other would have been.
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
    for said in [&[("traceparent", INVALID_TRACEPARENT), ("tracestate", "a=1")][..], &twice, &[]] {
        assert_eq!(server.gateway_client().get_with("/", said).status, 200);
        let arrived = upstream.next_request();
        let parent = arrived.header("traceparent").unwrap();
        let parts: Vec<&str> = parent.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { panic!("{parent}") };
        assert_eq!((version, trace.len(), span.len(), flags), ("00", 32, 16, "01"), "{parent}");
        assert!(trace != TRACE_ID && span != PARENT_SPAN_ID, "{parent}");
        assert_eq!(arrived.header("tracestate"), None, "it belongs to a parent that is none");
        let spans = collector.wait_for_trace(trace, 3);
        assert_eq!(spans.find_span("GET", SPAN_KIND_SERVER).parent_id(), "");
    }
}

#[test]
fn sampling_ratio_applies_to_new_traces() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let args = ["--limit", "1000/s", "--otlp-sample", "0.5"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    let mut visitor = server.gateway_client();
    let mut told = Vec::new();
    for _ in 0..200 {
        assert_eq!(visitor.get("/").status, 200);
        let arrived = upstream.next_request();
        let parent = arrived.header("traceparent").unwrap();
        if parent.ends_with("-01") {
            told.push(parent[3..35].to_owned());
        } else {
            assert!(parent.ends_with("-00"), "{parent}");
        }
    }
    // Of 200 fair draws fewer than 50 or more than 150 do not come in the life of a universe.
    assert!((50..=150).contains(&told.len()), "{}", told.len());
    told.iter().for_each(|trace| _ = collector.wait_for_trace(trace, 3));
    assert_eq!(collector.received_spans().len(), told.len() * 3);
}
