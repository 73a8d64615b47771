//! A collector that is unreachable, hangs, refuses or recovers: requests are not delayed, and lost
//! spans are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::start_traced_gateway;
use crate::support::otlp_collector::ReceivedSpan;
use crate::support::{
    RecordingUpstream, ServerProcess, TestOtlpCollector, now, recording_upstream::reply_ok,
    run_curl, run_tidegate, utf8_text, wait_for,
};

/// Each request has three spans, which exceeds the queue.
const REQUESTS: usize = 1_500;

/// Generous: a request takes a fraction of a millisecond, an export times out after seconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);

fn metric_value(server: &ServerProcess, series: &str) -> u64 {
    let page = run_curl(&[&format!("http://{}/metrics", server.admin_address())]).body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in {page}")).parse().unwrap()
}

const EXPORTED: &str = r#"tidegate_trace_spans_total{result="exported"}"#;
const DROPPED: &str = r#"tidegate_trace_spans_total{result="dropped"}"#;
const WAITING: &str = "tidegate_trace_spans_waiting";

/// Sends many requests, none of which may wait for the collector.
fn send_requests(server: &ServerProcess, upstream: &RecordingUpstream) {
    let mut client = server.gateway_client();
    let started = now();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(started.elapsed() < TIME_LIMIT, "{:?}", started.elapsed());
    assert_eq!(upstream.received_requests().len(), REQUESTS);
}

/// Stops the server; fails if the last export to the collector delays that.
fn stop_within_limit(server: ServerProcess) -> String {
    let (started, mut server) = (now(), server);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
    assert!(started.elapsed() < TIME_LIMIT, "{:?}", started.elapsed());
    server.wait_for_log("stopped");
    server.log()
}

#[test]
fn collector_outage_does_not_delay_requests() {
    let hanging = TestOtlpCollector::start_hanging();
    let unused = tidegate_testkit::port::ReservedPort::reserve();
    let unreachable = format!("http://{}", unused.address());
    for url in [hanging.url(), unreachable] {
        let upstream = RecordingUpstream::start();
        let args = ["--limit", "1000000/s", "--otlp", &url, "--admin", "127.0.0.1:0"];
        let server = ServerProcess::start_gateway(&upstream.url(), &args);
        send_requests(&server, &upstream);
        let (dropped, waiting) = (metric_value(&server, DROPPED), metric_value(&server, WAITING));
        assert_eq!(metric_value(&server, EXPORTED), 0);
        assert_eq!(waiting, 4_096, "the queue is full");
        assert_eq!(dropped + waiting, 3 * REQUESTS as u64, "further spans count as dropped");
        wait_for("the loss in the log", || {
            server.log().contains("the collector does not accept traces").then_some(())
        });
        let log = stop_within_limit(server);
        assert_eq!(log.matches("the collector does not accept traces").count(), 1, "once: {log}");
    }
}

#[test]
fn recovered_collector_receives_queued_spans() {
    let healthy = Arc::new(AtomicBool::new(false));
    let is_healthy = Arc::clone(&healthy);
    let collector = TestOtlpCollector::start_replying(move |_, stream| {
        if is_healthy.load(Ordering::SeqCst) {
            reply_ok(stream, "");
        } else {
            let unavailable = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(stream, unavailable);
        }
    });
    let upstream = RecordingUpstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.gateway_client().get("/").status, 200);
    server.wait_for_log("503");
    healthy.store(true, Ordering::SeqCst);
    server.wait_for_log("the collector accepts traces again");
    wait_for("queued spans to be exported", || {
        (metric_value(&server, EXPORTED) == 3).then_some(())
    });
    assert_eq!((metric_value(&server, DROPPED), metric_value(&server, WAITING)), (0, 0));
    // At shutdown, the server exports the spans that are still queued.
    assert_eq!(server.gateway_client().get("/").status, 200);
    let log = stop_within_limit(server);
    for words in ["the collector does not accept traces", "the collector accepts traces again"] {
        assert_eq!(log.matches(words).count(), 1, "{log}");
    }
    let mut span_ids: Vec<String> =
        collector.received_spans().iter().map(ReceivedSpan::span_id).collect();
    span_ids.sort_unstable();
    span_ids.dedup();
    assert_eq!(span_ids.len(), 6, "retried exports keep their span IDs");
}

#[test]
fn rejected_spans_are_dropped() {
    let collector = TestOtlpCollector::start_replying(|_, stream| {
        let bad_request = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let _ = std::io::Write::write_all(stream, bad_request);
    });
    let upstream = RecordingUpstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.gateway_client().get("/").status, 200);
    wait_for("dropped spans in the metrics", || {
        (metric_value(&server, DROPPED) == 3).then_some(())
    });
    assert_eq!(metric_value(&server, WAITING), 0);
}

#[test]
fn invalid_otlp_flags_are_rejected() {
    for (args, words) in [
        (["--otlp", "collector:4318"], "write `off` or a URL such as `http://127.0.0.1:4318`"),
        (["--otlp-sample", "50%"], "a number from 0 to 1"),
        (["--otlp-attributes", "prod"], "deployment.environment.name=prod"),
    ] {
        let output = run_tidegate(&[&["serve"], &args[..]].concat());
        let errors = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
}
