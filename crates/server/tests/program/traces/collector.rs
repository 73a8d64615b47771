//! A collector that is gone, hangs, refuses or comes back: requests do not notice, and what is lost is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::gateway;
use crate::support::collector::Told;
use crate::support::{Collector, Server, Upstream, curl, now, run, text, upstream::ok, wait_for};

/// More spans than there is room for: three for each request.
const REQUESTS: usize = 1_500;

/// Loose: a request takes a fraction of a millisecond, and a collector is waited for for seconds.
const AT_MOST: Duration = Duration::from_secs(10);

fn sample(server: &Server, series: &str) -> u64 {
    let page = curl(&[&format!("http://{}/metrics", server.admin())]).body;
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in {page}")).parse().unwrap()
}

const EXPORTED: &str = r#"tidegate_trace_spans_total{fate="exported"}"#;
const DROPPED: &str = r#"tidegate_trace_spans_total{fate="dropped"}"#;
const WAITING: &str = "tidegate_trace_spans_waiting";

/// Floods a server, which must not wait for anybody.
fn flood(server: &Server, upstream: &Upstream) {
    let mut visitor = server.visitor();
    let begun = now();
    for _ in 0..REQUESTS {
        assert_eq!(visitor.get("/").status, 200);
    }
    assert!(begun.elapsed() < AT_MOST, "{:?}", begun.elapsed());
    assert_eq!(upstream.requests().len(), REQUESTS);
}

/// Stops it, which must not take longer than the drain and what is left for the collector.
fn stop_in_time(server: Server) -> String {
    let (begun, mut server) = (now(), server);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    assert!(begun.elapsed() < AT_MOST, "{:?}", begun.elapsed());
    server.wait_log("stopped");
    server.log()
}

#[test]
fn requests_do_not_notice_a_collector_that_is_gone_or_hangs() {
    let hanging = Collector::hanging();
    let nobody = tidegate_testkit::port::Port::take();
    let gone = format!("http://{}", nobody.address());
    for url in [hanging.url(), gone] {
        let upstream = Upstream::start();
        let args = ["--limit", "1000000/s", "--otlp", &url, "--admin", "127.0.0.1:0"];
        let server = Server::in_front_of(&upstream.url(), &args);
        flood(&server, &upstream);
        let (dropped, waiting) = (sample(&server, DROPPED), sample(&server, WAITING));
        assert_eq!(sample(&server, EXPORTED), 0);
        assert_eq!(waiting, 4_096, "there is so much room");
        assert_eq!(dropped + waiting, 3 * REQUESTS as u64, "what has no room is counted");
        wait_for("the loss to be told", || {
            server.log().contains("the collector takes no traces").then_some(())
        });
        let log = stop_in_time(server);
        assert_eq!(log.matches("the collector takes no traces").count(), 1, "once: {log}");
    }
}

#[test]
fn a_collector_that_comes_back_gets_what_waited_and_both_are_told_once() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let collector = Collector::replying(move |_, stream| {
        if is_well.load(Ordering::SeqCst) {
            ok(stream, "");
        } else {
            let busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(stream, busy);
        }
    });
    let upstream = Upstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.visitor().get("/").status, 200);
    server.wait_log("503");
    well.store(true, Ordering::SeqCst);
    server.wait_log("the collector takes traces again");
    wait_for("what waited to be exported", || (sample(&server, EXPORTED) == 3).then_some(()));
    assert_eq!((sample(&server, DROPPED), sample(&server, WAITING)), (0, 0));
    // What ends between the last look and the stop is exported at the stop.
    assert_eq!(server.visitor().get("/").status, 200);
    let log = stop_in_time(server);
    for words in ["the collector takes no traces", "the collector takes traces again"] {
        assert_eq!(log.matches(words).count(), 1, "{log}");
    }
    let mut last: Vec<String> = collector.spans().iter().map(Told::id).collect();
    last.sort_unstable();
    last.dedup();
    assert_eq!(last.len(), 6, "sent again is not told twice");
}

#[test]
fn what_the_collector_does_not_want_is_dropped_and_the_next_is_tried() {
    let collector = Collector::replying(|_, stream| {
        let no = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        let _ = std::io::Write::write_all(stream, no);
    });
    let upstream = Upstream::start();
    let args = ["--limit", "1000000/s", "--admin", "127.0.0.1:0"];
    let server = gateway(&upstream.url(), &collector, &args);
    assert_eq!(server.visitor().get("/").status, 200);
    wait_for("the refusal to be counted", || (sample(&server, DROPPED) == 3).then_some(()));
    assert_eq!(sample(&server, WAITING), 0);
}

#[test]
fn what_cannot_be_meant_is_told() {
    for (args, words) in [
        (["--otlp", "collector:4318"], "write `off`, or such as `http://127.0.0.1:4318`"),
        (["--otlp-sample", "50%"], "a number from 0 to 1"),
        (["--otlp-attributes", "prod"], "deployment.environment.name=prod"),
    ] {
        let output = run(&[&["serve"], &args[..]].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    }
}
