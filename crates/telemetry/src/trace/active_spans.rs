//! Spans that have not ended: a request at a door, its decision, its way to an upstream. Each is told when it is
//! dropped or says what came of it, and only if the trace is sampled: otherwise nothing is copied or kept.

use http::header::HeaderMap;
use http::{Method, Request, StatusCode};
use tidegate_core::time::Timestamp;
use tidegate_limiter::Decision;
use tidegate_rules::ApiKind;

use super::Tracer;
use super::context::{self, TRACEPARENT, TRACESTATE, TraceContext};
use super::span::{
    self, DecisionAttributes, FinishedSpan, ParentSpan, ServerAttributes, SpanKind, SpanStatus,
};

/// The longest path that is told.
const MAX_PATH: usize = 1_024;

/// What the conventions call a method that nobody knows.
pub(super) const OTHER_METHOD: &str = "_OTHER";

/// A request while it is answered.
pub struct ServerSpan {
    tracer: Tracer,
    /// Our own place in the trace.
    context: TraceContext,
    /// Whether the caller said where it stands, as it should.
    has_remote_parent: bool,
    sampled: Option<SampledServerSpan>,
}

struct SampledServerSpan {
    started_at: Timestamp,
    parent: Option<ParentSpan>,
    attributes: Box<ServerAttributes>,
}

/// A decision while it is made.
pub struct DecisionSpan {
    tracer: Tracer,
    parent: TraceContext,
    started_at: Timestamp,
}

/// A request on its way to an upstream and back.
pub struct UpstreamSpan {
    tracer: Tracer,
    context: TraceContext,
    parent: TraceContext,
    started_at: Timestamp,
    method: &'static str,
}

impl ServerSpan {
    /// A request begins at a door, perhaps at one of our own places there.
    pub(super) fn start(tracer: &Tracer, head: RequestAttributes<'_>) -> Self {
        let RequestAttributes { api: door, method, path, route, headers } = head;
        let given = TraceContext::from_headers(headers);
        let span = tracer.ids().next_span_id();
        let context = match given {
            Some(given) => given.with_span(span),
            None => {
                let trace = tracer.ids().next_trace_id();
                TraceContext::new_root(trace, span, tracer.should_sample(&trace))
            }
        };
        let sampled = context.is_sampled().then(|| SampledServerSpan {
            started_at: tracer.now(),
            parent: given.map(|given| ParentSpan {
                span: given.span,
                remote: true,
                state: context::tracestate(headers),
            }),
            attributes: Box::new(ServerAttributes {
                api: door,
                method: known_method(method),
                path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
                route,
                status: None,
            }),
        });
        Self { tracer: tracer.clone(), context, has_remote_parent: given.is_some(), sampled }
    }

    /// Its decision begins.
    pub fn start_decision(&self) -> Option<DecisionSpan> {
        self.sampled.as_ref()?;
        let tracer = self.tracer.clone();
        Some(DecisionSpan { started_at: tracer.now(), parent: self.context, tracer })
    }

    /// It is sent on with these headers, which say where it stands from then on. Whoever is not sampled is sent on
    /// as they came.
    pub fn start_upstream(&self, headers: &mut HeaderMap) -> Option<UpstreamSpan> {
        if !self.has_remote_parent {
            headers.remove(TRACESTATE);
        }
        let Some(recorded) = &self.sampled else {
            if !self.has_remote_parent {
                headers.insert(TRACEPARENT, self.context.to_header());
            }
            return None;
        };
        let tracer = self.tracer.clone();
        let context = self.context.with_span(tracer.ids().next_span_id());
        headers.insert(TRACEPARENT, context.to_header());
        let (begun, method) = (tracer.now(), recorded.attributes.method);
        Some(UpstreamSpan { tracer, context, parent: self.context, started_at: begun, method })
    }

    /// How it is answered.
    pub fn set_http_status(&mut self, status: StatusCode) {
        self.set_status(SpanStatus::Http(status.as_u16()));
    }

    /// How a call of gRPC is answered.
    pub fn set_grpc_status(&mut self, code: u8) {
        self.set_status(SpanStatus::Grpc(code));
    }

    fn set_status(&mut self, status: SpanStatus) {
        if let Some(recorded) = &mut self.sampled {
            recorded.attributes.status = Some(status);
        }
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        if let Some(SampledServerSpan { started_at: begun, parent, attributes: served }) =
            self.sampled.take()
        {
            let (context, ended) = (self.context, self.tracer.now());
            self.tracer.enqueue(FinishedSpan {
                context,
                parent,
                started_at: begun,
                ended_at: ended,
                kind: SpanKind::Server(served),
            });
        }
    }
}

impl DecisionSpan {
    /// Ends the span with the decisions that were made.
    pub fn finish(self, decisions: &[Decision]) {
        let Self { tracer, parent, started_at: begun } = self;
        let ended = tracer.now();
        let refused = decisions.iter().find(|decision| !decision.is_allowed());
        let Some(decision) = refused.or(decisions.first()) else { return };
        let rules = decisions.iter().map(|decision| decision.readings().len()).sum();
        let deciding = decision.tightest().map(|(rule, reading)| span::DecidingRule {
            rule: rule.id().to_owned(),
            mode: rule.mode().name(),
            verdict: reading.verdict,
            cost: decision.charged_cost(reading),
            limit_remaining: reading.numbers.map(|told| (told.limit, told.remaining)),
        });
        let what = SpanKind::Decision(Box::new(DecisionAttributes {
            decisions: decisions.len(),
            rules,
            allowed: refused.is_none(),
            answered_by: decision.answered_by(),
            store_time: decision.store_time(),
            delay: decision.delay(),
            deciding_rule: deciding,
        }));
        let context = parent.with_span(tracer.ids().next_span_id());
        tracer.enqueue(FinishedSpan {
            context,
            parent: Some(local_parent(parent)),
            started_at: begun,
            ended_at: ended,
            kind: what,
        });
    }
}

impl UpstreamSpan {
    /// What came of it: the server that was asked, if one was, and what it answered.
    pub fn finish(self, server: Option<(String, u16)>, status: Option<StatusCode>) {
        let Self { tracer, context, parent, started_at: begun, method } = self;
        let status = status.map(|status| status.as_u16());
        let (what, ended) = (SpanKind::Upstream { method, server, status }, tracer.now());
        tracer.enqueue(FinishedSpan {
            context,
            parent: Some(local_parent(parent)),
            started_at: begun,
            ended_at: ended,
            kind: what,
        });
    }
}

/// What a span is of.
#[derive(Clone, Copy)]
pub struct RequestAttributes<'a> {
    pub(crate) api: ApiKind,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The place of our own, if it is one.
    pub(crate) route: Option<&'static str>,
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> RequestAttributes<'a> {
    /// What is asked at a door; a query may hold secrets and is not told.
    pub fn from_request<B>(
        api: ApiKind,
        asked: &'a Request<B>,
        route: Option<&'static str>,
    ) -> Self {
        let (method, path, headers) = (asked.method(), asked.uri().path(), asked.headers());
        Self { api, method, path, route, headers }
    }
}

/// Tells what was decided, where somebody wants to know.
pub fn finish_decision(deciding: Option<DecisionSpan>, decisions: &[Decision]) {
    if let Some(deciding) = deciding {
        deciding.finish(decisions);
    }
}

/// A span below one of our own.
fn local_parent(parent: TraceContext) -> ParentSpan {
    ParentSpan { span: parent.span, remote: false, state: None }
}

/// The methods that there are; a client may send any.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or(OTHER_METHOD)
}
