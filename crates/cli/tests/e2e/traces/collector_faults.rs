//! A collector that is gone, hangs, refuses or comes back: requests do not notice, and what is lost is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::start_traced_gateway;
use crate::support::otlp_collector::ReceivedSpan;
use crate::support::{
    RecordingUpstream, ServerProcess, TestOtlpCollector, now, recording_upstream::reply_ok,
    run_curl, run_tidegate, utf8_text, wait_for,
};

/// More spans than there is room for: three for each request.
const REQUESTS: usize = 1_500;

/// Loose: a request takes a fraction of a millisecond, and a collector is waited for for seconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);

fn metric_value(server: &ServerProcess, series: &str) -> u64 {
    let page = run_curl(&[&format!("http://{}/metrics", server.admin_address())]).body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in {page}")).parse().unwrap()
}

const EXPORTED: &str = r#"tidegate_trace_spans_total{fate="exported"}"#;
const DROPPED: &str = r#"tidegate_trace_spans_total{fate="dropped"}"#;
const WAITING: &str = "tidegate_trace_spans_waiting";

/// Floods a server, which must not wait for anybody.
fn send_requests(server: &ServerProcess, upstream: &RecordingUpstream) {
    let mut visitor = server.gateway_client();
    let begun = now();
    for _ in 0..REQUESTS {
        assert_eq!(visitor.get("/").status, 200);
    }
    assert!(begun.elapsed() < TIME_LIMIT, "{:?}", begun.elapsed());
    assert_eq!(upstream.received_requests().len(), REQUESTS);
}

/// Stops it, which must not take longer than the drain and what is left for the collector.
fn stop_within_limit(server: ServerProcess) -> String {
    let (begun, mut server) = (now(), server);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", server.log());
    assert!(begun.elapsed() < TIME_LIMIT, "{:?}", begun.elapsed());
    server.wait_for_log("stopped");
    server.log()
}

#[test]
fn collector_outage_does_not_delay_requests() {
    let hanging = TestOtlpCollector::start_hanging();
    let nobody = tidegate_testkit::port::ReservedPort::reserve();
    let gone = format!("http://{}", nobody.address());
    for url in [hanging.url(), gone] {
        let upstream = RecordingUpstream::start();
        let args = ["--limit", "1000000/s", "--otlp", &url, "--admin", "127.0.0.1:0"];
        let server = ServerProcess::start_gateway(&upstream.url(), &args);
        send_requests(&server, &upstream);
        let (dropped, waiting) = (metric_value(&server, DROPPED), metric_value(&server, WAITING));
        assert_eq!(metric_value(&server, EXPORTED), 0);
        assert_eq!(waiting, 4_096, "there is so much room");
        assert_eq!(dropped + waiting, 3 * REQUESTS as u64, "what has no room is counted");
        wait_for("the loss to be told", || {
            server.log().contains("the collector takes no traces").then_some(())
        });
        let log = stop_within_limit(server);
        assert_eq!(log.matches("the collector takes no traces").count(), 1, "once: {log}");
    }
}

#[test]
fn recovered_collector_receives_queued_spans() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let collector = TestOtlpCollector::start_replying(move |_, stream| {
        if is_well.load(Ordering::SeqCst) {
            reply_ok(stream, "");
        } else {
            let busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(stream, busy);
        }
    });
    let upstream = RecordingUpstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.gateway_client().get("/").status, 200);
    server.wait_for_log("503");
    well.store(true, Ordering::SeqCst);
    server.wait_for_log("the collector takes traces again");
    wait_for("what waited to be exported", || (metric_value(&server, EXPORTED) == 3).then_some(()));
    assert_eq!((metric_value(&server, DROPPED), metric_value(&server, WAITING)), (0, 0));
    // What ends between the last look and the stop is exported at the stop.
    assert_eq!(server.gateway_client().get("/").status, 200);
    let log = stop_within_limit(server);
    for words in ["the collector takes no traces", "the collector takes traces again"] {
        assert_eq!(log.matches(words).count(), 1, "{log}");
    }
    let mut last: Vec<String> =
        collector.received_spans().iter().map(ReceivedSpan::span_id).collect();
    last.sort_unstable();
    last.dedup();
    assert_eq!(last.len(), 6, "sent again is not told twice");
}

#[test]
fn rejected_spans_are_dropped() {
    let collector = TestOtlpCollector::start_replying(|_, stream| {
        let no = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let _ = std::io::Write::write_all(stream, no);
    });
    let upstream = RecordingUpstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = start_traced_gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.gateway_client().get("/").status, 200);
    wait_for("the refusal to be counted", || (metric_value(&server, DROPPED) == 3).then_some(()));
    assert_eq!(metric_value(&server, WAITING), 0);
}

#[test]
fn invalid_otlp_flags_are_rejected() {
    for (args, words) in [
        (["--otlp", "collector:4318"], "write `off`, or such as `http://127.0.0.1:4318`"),
        (["--otlp-sample", "50%"], "a number from 0 to 1"),
        (["--otlp-attributes", "prod"], "deployment.environment.name=prod"),
    ] {
        let output = run_tidegate(&[&["serve"], &args[..]].concat());
        let told = utf8_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    }
}
