//! Encodes spans as an OTLP `ExportTraceServiceRequest` (opentelemetry-proto 1.x, `trace.proto`),
//! with the attribute names of the semantic conventions. Spans identify no client: a decision span
//! contains the rule, not the key.
//!
//! The protobuf encoding is written by hand, like the other messages. The end-to-end tests verify
//! that other implementations can decode it.

use tidegate_core::time::Timestamp;

use super::TraceResource;
use super::span::{
    DecidingRule, DecisionAttributes, FinishedSpan, ServerAttributes, SpanKind, SpanStatus,
};
use tidegate_web::protobuf::ProtoWriter;

const SCOPE: &str = "tidegate";

const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// The status code of a failed span.
const ERROR: u64 = 2;

/// Span flags: it is known whether the parent is remote, and the parent is remote.
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Encodes a batch of spans.
pub(super) fn encode_request(resource: &TraceResource, spans: &[FinishedSpan]) -> Vec<u8> {
    let mut request = ProtoWriter::with_reserved_prefix(0, 256 + spans.len() * 320);
    request.message(1, |all| {
        all.message(1, |to| {
            text_attribute(to, 1, "service.name", &resource.service);
            text_attribute(to, 1, "service.version", env!("CARGO_PKG_VERSION"));
            resource.attributes.iter().for_each(|(name, value)| text_attribute(to, 1, name, value));
        });
        all.message(2, |scope| {
            scope.message(1, |to| {
                to.bytes(1, SCOPE.as_bytes());
                to.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            spans.iter().for_each(|span| scope.message(2, |to| write_span(to, span)));
        });
    });
    request.finish()
}

fn write_span(to: &mut ProtoWriter, span: &FinishedSpan) {
    let FinishedSpan { context, parent, started_at, ended_at, kind } = span;
    to.bytes(1, &context.trace);
    to.bytes(2, &context.span);
    if let Some(parent) = parent {
        to.bytes(3, parent.state.as_deref().unwrap_or_default().as_bytes());
        to.bytes(4, &parent.span);
    }
    to.bytes(5, span_name(kind).as_bytes());
    to.varint_field(6, span_kind(kind));
    to.fixed64(7, unix_nanos(*started_at));
    to.fixed64(8, unix_nanos(*ended_at));
    match kind {
        SpanKind::Server(attributes) => write_server(to, attributes),
        SpanKind::Decision(decided) => write_decision(to, decided),
        SpanKind::Upstream { method, server, status } => {
            text_attribute(to, 9, "http.request.method", method);
            if let Some((host, port)) = server {
                text_attribute(to, 9, "server.address", host);
                integer_attribute(to, "server.port", u64::from(*port));
            }
            status_attribute(to, *status);
        }
    }
    if let Some(error) = error_type(kind) {
        text_attribute(to, 9, "error.type", &error);
        to.message(15, |status| status.varint_field(3, ERROR));
    }
    let remote = parent.as_ref().is_some_and(|parent| parent.remote);
    let remote = if remote { HAS_REMOTE | IS_REMOTE } else { HAS_REMOTE };
    to.fixed32(16, u32::from(context.flags) | remote);
}

/// The name of a span. Names have low cardinality: a request without a route is named by its
/// method, as the semantic conventions require.
fn span_name(kind: &SpanKind) -> String {
    match kind {
        SpanKind::Server(attributes) => match attributes.route {
            Some(route) if matches!(attributes.status, Some(SpanStatus::Grpc(_))) => {
                route.trim_start_matches('/').to_owned()
            }
            Some(route) => format!("{} {route}", attributes.method),
            None => method_name(attributes.method).to_owned(),
        },
        SpanKind::Decision(_) => "decide".to_owned(),
        SpanKind::Upstream { method, .. } => method_name(method).to_owned(),
    }
}

fn method_name(method: &'static str) -> &'static str {
    if method == super::OTHER_METHOD { "HTTP" } else { method }
}

const fn span_kind(kind: &SpanKind) -> u64 {
    match kind {
        SpanKind::Server(_) => SERVER,
        SpanKind::Decision(_) => INTERNAL,
        SpanKind::Upstream { .. } => CLIENT,
    }
}

/// The `error.type` of a failed span. For a server span, a 4xx status (such as a refusal) is not an
/// error; for an upstream call it is, as in the semantic conventions.
fn error_type(kind: &SpanKind) -> Option<String> {
    let status = match kind {
        SpanKind::Decision(_) => return None,
        SpanKind::Server(attributes) => match attributes.status {
            Some(SpanStatus::Http(status @ 500..)) => status,
            // The codes that the conventions count as server errors.
            Some(SpanStatus::Grpc(code @ (2 | 4 | 12..=15))) => u16::from(code),
            Some(_) => return None,
            None => return Some("cancelled".to_owned()),
        },
        SpanKind::Upstream { status: Some(status @ 400..), .. } => *status,
        SpanKind::Upstream { status: Some(_), .. } => return None,
        SpanKind::Upstream { status: None, .. } => return Some("no_answer".to_owned()),
    };
    Some(status.to_string())
}

fn write_server(to: &mut ProtoWriter, attributes: &ServerAttributes) {
    let ServerAttributes { api, method, path, route, status } = attributes;
    text_attribute(to, 9, "tidegate.api", api.name());
    if let Some(SpanStatus::Grpc(code)) = status {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        text_attribute(to, 9, "rpc.system", "grpc");
        text_attribute(to, 9, "rpc.service", service);
        text_attribute(to, 9, "rpc.method", method);
        return integer_attribute(to, "rpc.grpc.status_code", u64::from(*code));
    }
    text_attribute(to, 9, "http.request.method", method);
    text_attribute(to, 9, "url.path", path);
    if let Some(route) = route {
        text_attribute(to, 9, "http.route", route);
    }
    if let Some(SpanStatus::Http(status)) = status {
        status_attribute(to, Some(*status));
    }
}

fn write_decision(to: &mut ProtoWriter, decided: &DecisionAttributes) {
    let DecisionAttributes {
        decisions,
        rules,
        allowed,
        answered_by,
        store_time,
        delay,
        deciding_rule,
    } = decided;
    to.message(9, |entry| {
        entry.bytes(1, b"tidegate.allowed");
        entry.message(2, |value| value.oneof_varint_field(2, u64::from(*allowed)));
    });
    integer_attribute(to, "tidegate.rules", *rules as u64);
    text_attribute(to, 9, "tidegate.answered_by", answered_by.name());
    if *decisions > 1 {
        integer_attribute(to, "tidegate.decisions", *decisions as u64);
    }
    if let Some(store_time) = store_time {
        integer_attribute(to, "tidegate.store_time_us", store_time.get());
    }
    if delay.get() > 0 {
        integer_attribute(to, "tidegate.delay_us", delay.get());
    }
    let Some(DecidingRule { rule, mode, verdict, cost, limit_remaining }) = deciding_rule else {
        return;
    };
    text_attribute(to, 9, "tidegate.rule", rule);
    text_attribute(to, 9, "tidegate.mode", mode);
    text_attribute(to, 9, "tidegate.verdict", verdict.name());
    integer_attribute(to, "tidegate.cost", *cost);
    if let Some((limit, remaining)) = limit_remaining {
        integer_attribute(to, "tidegate.limit", *limit);
        integer_attribute(to, "tidegate.remaining", *remaining);
    }
}

fn status_attribute(to: &mut ProtoWriter, status: Option<u16>) {
    if let Some(status) = status {
        integer_attribute(to, "http.response.status_code", u64::from(status));
    }
}

fn text_attribute(to: &mut ProtoWriter, field: u32, name: &str, value: &str) {
    to.message(field, |entry| {
        entry.bytes(1, name.as_bytes());
        entry.message(2, |any| any.repeated_bytes(1, value.as_bytes()));
    });
}

fn integer_attribute(to: &mut ProtoWriter, name: &str, value: u64) {
    to.message(9, |entry| {
        entry.bytes(1, name.as_bytes());
        entry.message(2, |any| any.oneof_varint_field(3, value));
    });
}

const fn unix_nanos(at: Timestamp) -> u64 {
    at.as_micros().saturating_mul(1_000)
}
