//! An OpenTelemetry collector that records what it receives. It decodes spans with the official
//! protobuf types, which are independent of our encoder.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::recording_upstream::{ReceivedRequest, RecordingUpstream, reply_ok};
use super::wait_for;

/// A collector that records all spans.
pub struct TestOtlpCollector {
    upstream: RecordingUpstream,
    spans: Mutex<Vec<ReceivedSpan>>,
    /// Resource attributes of the latest export.
    pub resource: Mutex<Vec<KeyValue>>,
}

/// A span as the collector received it.
#[derive(Clone, Debug)]
pub struct ReceivedSpan(pub Span);

/// The spans of one request.
#[derive(Debug)]
pub struct TraceSpans(pub Vec<ReceivedSpan>);

impl TestOtlpCollector {
    /// Starts a collector that accepts everything.
    pub fn start() -> Self {
        Self::start_replying(|_, stream| reply_ok(stream, ""))
    }

    /// Starts a collector that answers each export with `reply`.
    pub fn start_replying(
        reply: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let upstream = RecordingUpstream::start_replying(reply);
        Self { upstream, spans: Mutex::default(), resource: Mutex::default() }
    }

    /// Starts a collector that accepts connections but never responds.
    pub fn start_hanging() -> Self {
        let (sender, receiver): (_, Receiver<()>) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        std::mem::forget(sender);
        Self::start_replying(move |_, _| _ = receiver.lock().unwrap().recv())
    }

    pub fn url(&self) -> String {
        self.upstream.url()
    }

    /// All spans received so far.
    #[track_caller]
    pub fn received_spans(&self) -> Vec<ReceivedSpan> {
        let mut spans = self.spans.lock().unwrap();
        for request in self.upstream.received_requests() {
            assert!(request.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request:?}");
            assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
            let export = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
            for all in export.resource_spans {
                *self.resource.lock().unwrap() = all.resource.unwrap().attributes;
                let scopes = all.scope_spans.into_iter();
                spans.extend(scopes.flat_map(|scope| scope.spans).map(ReceivedSpan));
            }
        }
        spans.clone()
    }

    /// Waits for `count` spans of a trace; fails if there are more.
    #[track_caller]
    pub fn wait_for_trace(&self, trace: &str, count: usize) -> TraceSpans {
        let matching = || -> Vec<ReceivedSpan> {
            self.received_spans().into_iter().filter(|span| span.trace_id() == trace).collect()
        };
        let found = wait_for(&format!("{count} spans of {trace}"), || {
            Some(matching()).filter(|spans| spans.len() >= count)
        });
        assert_eq!(found.len(), count, "{found:?}");
        TraceSpans(found)
    }
}

impl ReceivedSpan {
    pub fn trace_id(&self) -> String {
        hex(&self.0.trace_id)
    }

    pub fn span_id(&self) -> String {
        hex(&self.0.span_id)
    }

    pub fn parent_id(&self) -> String {
        hex(&self.0.parent_span_id)
    }

    /// The value of an attribute, as text.
    pub fn attribute(&self, name: &str) -> Option<String> {
        attribute_value(&self.0.attributes, name)
    }
}

impl TraceSpans {
    /// The only span with this name and kind.
    #[track_caller]
    pub fn find_span(&self, name: &str, kind: i32) -> &ReceivedSpan {
        let mut named = self.0.iter().filter(|span| span.0.name == name && span.0.kind == kind);
        let span = named.next().unwrap_or_else(|| panic!("no {name} in {self:?}"));
        assert!(named.next().is_none(), "{self:?}");
        assert!(span.0.start_time_unix_nano <= span.0.end_time_unix_nano, "{span:?}");
        span
    }
}

/// The value of an attribute, as text.
pub fn attribute_value(attributes: &[KeyValue], name: &str) -> Option<String> {
    let mut found = attributes.iter().filter(|entry| entry.key == name);
    let AnyValue { value } = found.next()?.value.clone()?;
    assert!(found.next().is_none(), "{name} occurs twice");
    Some(match value? {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{name}: {other:?}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
