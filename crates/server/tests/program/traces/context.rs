//! Whose trace it is: the caller's, a new one, or none of our business.

use super::{CALLER, SERVER, TRACE, gateway, sampled};
use crate::support::{Collector, Server, Upstream};

/// As a proxy must pass it on that makes no traces, right or wrong.
const ODD: &str = "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0X";

#[test]
fn without_traces_the_headers_pass_byte_for_byte() {
    let upstream = Upstream::start();
    let server = Server::in_front_of(&upstream.url(), &["--limit", "100/s"]);
    for parent in [&sampled(), ODD] {
        let said = [("traceparent", parent), ("tracestate", "a=1,b=2;x"), ("Tracestate", "c")];
        assert_eq!(server.visitor().get_with("/", &said).status, 200);
        let arrived = upstream.request();
        assert_eq!(arrived.header("traceparent"), Some(parent));
        let states: Vec<&str> =
            arrived.head.lines().filter(|line| line.starts_with("tracestate")).collect();
        assert_eq!(states, ["tracestate: a=1,b=2;x", "tracestate: c"]);
    }
    assert_eq!(server.visitor().get("/").status, 200);
    assert_eq!(upstream.request().header("traceparent"), None, "nothing is added");
}

#[test]
fn who_is_not_sampled_is_passed_on_and_not_told() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let server = gateway(&upstream.url(), &collector, &["--limit", "100/s"]);
    let parent = sampled().replace("-01", "-00");
    let said = [("traceparent", parent.as_str()), ("tracestate", "a=1")];
    assert_eq!(server.visitor().get_with("/quiet", &said).status, 200);
    let arrived = upstream.request();
    assert_eq!(arrived.header("traceparent"), Some(parent.as_str()));
    assert_eq!(arrived.header("tracestate"), Some("a=1"));
    // One that is, afterwards: when it is there, the other would have been.
    assert_eq!(server.visitor().get_with("/", &[("traceparent", &sampled())]).status, 200);
    let spans = collector.trace(TRACE, 3);
    assert_eq!(spans.named("GET", SERVER).get("url.path").as_deref(), Some("/"));
}

#[test]
fn a_parent_that_makes_no_sense_is_ignored_and_a_trace_begun() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let server = gateway(&upstream.url(), &collector, &["--limit", "100/s"]);
    let twice = [("traceparent", &*sampled()), ("traceparent", &*sampled())];
    for said in [&[("traceparent", ODD), ("tracestate", "a=1")][..], &twice, &[]] {
        assert_eq!(server.visitor().get_with("/", said).status, 200);
        let arrived = upstream.request();
        let parent = arrived.header("traceparent").unwrap();
        let parts: Vec<&str> = parent.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { panic!("{parent}") };
        assert_eq!((version, trace.len(), span.len(), flags), ("00", 32, 16, "01"), "{parent}");
        assert!(trace != TRACE && span != CALLER, "{parent}");
        assert_eq!(arrived.header("tracestate"), None, "it belongs to a parent that is none");
        let spans = collector.trace(trace, 3);
        assert_eq!(spans.named("GET", SERVER).parent(), "");
    }
}

#[test]
fn of_traces_that_begin_here_a_part_is_told_and_the_upstream_knows_which() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let args = ["--limit", "1000/s", "--otlp-sample", "0.5"];
    let server = gateway(&upstream.url(), &collector, &args);
    let mut visitor = server.visitor();
    let mut told = Vec::new();
    for _ in 0..200 {
        assert_eq!(visitor.get("/").status, 200);
        let arrived = upstream.request();
        let parent = arrived.header("traceparent").unwrap();
        if parent.ends_with("-01") {
            told.push(parent[3..35].to_owned());
        } else {
            assert!(parent.ends_with("-00"), "{parent}");
        }
    }
    // Of 200 fair draws fewer than 50 or more than 150 do not come in the life of a universe.
    assert!((50..=150).contains(&told.len()), "{}", told.len());
    told.iter().for_each(|trace| _ = collector.trace(trace, 3));
    assert_eq!(collector.spans().len(), told.len() * 3);
}
