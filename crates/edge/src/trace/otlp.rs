//! Spans as an `ExportTraceServiceRequest` of OTLP (opentelemetry-proto 1.x, `trace.proto`), with the names that the
//! semantic conventions give to what is told. No client is named: of a decision there is its rule, not its key.
//!
//! Written by hand like the other messages; whether others read it so is seen in the tests of the program.

use tidegate_core::time::Timestamp;

use super::Resource;
use super::span::{Decided, Deciding, Served, Span, Status, What};
use crate::protobuf::Writer;

const SCOPE: &str = "tidegate";

const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// The status of a span that went wrong.
const ERROR: u64 = 2;

/// Flags of a span: whether its parent is remote is known, and it is.
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The bytes of a batch.
pub(super) fn request(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut request = Writer::after(0, 256 + spans.len() * 320);
    request.message(1, |all| {
        all.message(1, |told| {
            text(told, 1, "service.name", &resource.service);
            text(told, 1, "service.version", env!("CARGO_PKG_VERSION"));
            resource.attributes.iter().for_each(|(name, value)| text(told, 1, name, value));
        });
        all.message(2, |scope| {
            scope.message(1, |who| {
                who.bytes(1, SCOPE.as_bytes());
                who.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            spans.iter().for_each(|span| scope.message(2, |told| write(told, span)));
        });
    });
    request.finish()
}

fn write(to: &mut Writer, span: &Span) {
    let Span { context, parent, begun, ended, what } = span;
    to.bytes(1, &context.trace);
    to.bytes(2, &context.span);
    if let Some(parent) = parent {
        to.bytes(3, parent.state.as_deref().unwrap_or_default().as_bytes());
        to.bytes(4, &parent.span);
    }
    to.bytes(5, name(what).as_bytes());
    to.number(6, kind(what));
    to.fixed64(7, nanos(*begun));
    to.fixed64(8, nanos(*ended));
    match what {
        What::Served(served) => write_served(to, served),
        What::Decided(decided) => write_decided(to, decided),
        What::Called { method, server, status } => {
            text(to, 9, "http.request.method", method);
            if let Some((host, port)) = server {
                text(to, 9, "server.address", host);
                number(to, "server.port", u64::from(*port));
            }
            http_status(to, *status);
        }
    }
    if let Some(why) = fault(what) {
        text(to, 9, "error.type", &why);
        to.message(15, |status| status.number(3, ERROR));
    }
    let remote = parent.as_ref().is_some_and(|parent| parent.remote);
    let remote = if remote { HAS_REMOTE | IS_REMOTE } else { HAS_REMOTE };
    to.fixed32(16, u32::from(context.flags) | remote);
}

/// Names are few: those of requests are their methods, as the conventions say where there is no route.
fn name(what: &What) -> String {
    match what {
        What::Served(served) => match served.route {
            Some(route) if matches!(served.status, Some(Status::Grpc(_))) => {
                route.trim_start_matches('/').to_owned()
            }
            Some(route) => format!("{} {route}", served.method),
            None => method_name(served.method).to_owned(),
        },
        What::Decided(_) => "decide".to_owned(),
        What::Called { method, .. } => method_name(method).to_owned(),
    }
}

fn method_name(method: &'static str) -> &'static str {
    if method == super::OTHER_METHOD { "HTTP" } else { method }
}

const fn kind(what: &What) -> u64 {
    match what {
        What::Served(_) => SERVER,
        What::Decided(_) => INTERNAL,
        What::Called { .. } => CLIENT,
    }
}

/// What went wrong. A refusal is no fault of ours; to who called an upstream it is one, as the conventions have it.
fn fault(what: &What) -> Option<String> {
    let status = match what {
        What::Decided(_) => return None,
        What::Served(served) => match served.status {
            Some(Status::Http(status @ 500..)) => status,
            // Those codes that say that the server could not.
            Some(Status::Grpc(code @ (2 | 4 | 12..=15))) => u16::from(code),
            Some(_) => return None,
            None => return Some("cancelled".to_owned()),
        },
        What::Called { status: Some(status @ 400..), .. } => *status,
        What::Called { status: Some(_), .. } => return None,
        What::Called { status: None, .. } => return Some("no_answer".to_owned()),
    };
    Some(status.to_string())
}

fn write_served(to: &mut Writer, served: &Served) {
    let Served { door, method, path, route, status } = served;
    text(to, 9, "tidegate.door", door.name());
    if let Some(Status::Grpc(code)) = status {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        text(to, 9, "rpc.system", "grpc");
        text(to, 9, "rpc.service", service);
        text(to, 9, "rpc.method", method);
        return number(to, "rpc.grpc.status_code", u64::from(*code));
    }
    text(to, 9, "http.request.method", method);
    text(to, 9, "url.path", path);
    if let Some(route) = route {
        text(to, 9, "http.route", route);
    }
    if let Some(Status::Http(status)) = status {
        http_status(to, Some(*status));
    }
}

fn write_decided(to: &mut Writer, decided: &Decided) {
    let Decided { decisions, rules, allowed, answered_by, store_time, delay, deciding } = decided;
    to.message(9, |entry| {
        entry.bytes(1, b"tidegate.allowed");
        entry.message(2, |value| value.choice(2, u64::from(*allowed)));
    });
    number(to, "tidegate.rules", *rules as u64);
    text(to, 9, "tidegate.answered_by", answered_by.name());
    if *decisions > 1 {
        number(to, "tidegate.decisions", *decisions as u64);
    }
    if let Some(store_time) = store_time {
        number(to, "tidegate.store_time_us", store_time.get());
    }
    if delay.get() > 0 {
        number(to, "tidegate.delay_us", delay.get());
    }
    let Some(Deciding { rule, mode, verdict, cost, left }) = deciding else { return };
    text(to, 9, "tidegate.rule", rule);
    text(to, 9, "tidegate.mode", mode);
    text(to, 9, "tidegate.verdict", verdict.name());
    number(to, "tidegate.cost", *cost);
    if let Some((limit, remaining)) = left {
        number(to, "tidegate.limit", *limit);
        number(to, "tidegate.remaining", *remaining);
    }
}

fn http_status(to: &mut Writer, status: Option<u16>) {
    if let Some(status) = status {
        number(to, "http.response.status_code", u64::from(status));
    }
}

fn text(to: &mut Writer, field: u32, name: &str, value: &str) {
    to.message(field, |entry| {
        entry.bytes(1, name.as_bytes());
        entry.message(2, |any| any.entry(1, value.as_bytes()));
    });
}

fn number(to: &mut Writer, name: &str, value: u64) {
    to.message(9, |entry| {
        entry.bytes(1, name.as_bytes());
        entry.message(2, |any| any.choice(3, value));
    });
}

const fn nanos(at: Timestamp) -> u64 {
    at.as_micros().saturating_mul(1_000)
}
