//! Traces of a running server, as a collector and an upstream see them.

mod collector_faults;
mod settings;
mod spans_by_api;
mod trace_context;

use crate::support::{ServerProcess, TestOtlpCollector};

/// The caller's place in its trace.
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_SPAN_ID: &str = "00f067aa0ba902b7";

/// Kinds of spans.
const SPAN_KIND_INTERNAL: i32 = 1;
const SPAN_KIND_SERVER: i32 = 2;
const SPAN_KIND_CLIENT: i32 = 3;

/// What a caller says that is sampled.
fn sampled_traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_SPAN_ID}-01")
}

/// A gateway that tells a collector.
fn start_traced_gateway(
    upstream: &str,
    collector: &TestOtlpCollector,
    args: &[&str],
) -> ServerProcess {
    ServerProcess::start_gateway(upstream, &[&["--otlp", &collector.url()], args].concat())
}
