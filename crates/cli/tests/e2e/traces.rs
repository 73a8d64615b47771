//! Traces of a running server, as a collector and an upstream see them.

mod collector_faults;
mod settings;
mod spans_by_api;
mod trace_context;

use crate::support::{ServerProcess, TestOtlpCollector};

/// The caller's trace and span.
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_SPAN_ID: &str = "00f067aa0ba902b7";

/// Span kinds of OpenTelemetry.
const SPAN_KIND_INTERNAL: i32 = 1;
const SPAN_KIND_SERVER: i32 = 2;
const SPAN_KIND_CLIENT: i32 = 3;

/// A `traceparent` header of a sampled trace.
fn sampled_traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_SPAN_ID}-01")
}

/// A gateway that exports traces to a collector.
fn start_traced_gateway(
    upstream: &str,
    collector: &TestOtlpCollector,
    args: &[&str],
) -> ServerProcess {
    ServerProcess::start_gateway(upstream, &[&["--otlp", &collector.url()], args].concat())
}
