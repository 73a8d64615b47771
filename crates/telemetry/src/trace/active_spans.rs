//! Spans in progress: a request, its decision, and its upstream call. A span is queued for export
//! when it is finished or dropped. If the trace is not sampled, no data is copied.

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

/// Maximum length of an exported path, in bytes.
const MAX_PATH: usize = 1_024;

/// The value that the semantic conventions define for an unknown method.
pub(super) const OTHER_METHOD: &str = "_OTHER";

/// The span of a request that is being handled. Ends when dropped.
pub struct ServerSpan {
    tracer: Tracer,
    /// The context of this span.
    context: TraceContext,
    /// Whether the request had a valid `traceparent`.
    has_remote_parent: bool,
    sampled: Option<SampledServerSpan>,
}

struct SampledServerSpan {
    started_at: Timestamp,
    parent: Option<ParentSpan>,
    attributes: Box<ServerAttributes>,
}

/// The span of a decision in progress.
pub struct DecisionSpan {
    tracer: Tracer,
    parent: TraceContext,
    started_at: Timestamp,
}

/// The span of an upstream call in progress.
pub struct UpstreamSpan {
    tracer: Tracer,
    context: TraceContext,
    parent: TraceContext,
    started_at: Timestamp,
    method: &'static str,
}

impl ServerSpan {
    /// Starts the span of a request.
    pub(super) fn start(tracer: &Tracer, request: RequestAttributes<'_>) -> Self {
        let RequestAttributes { api, method, path, route, headers } = request;
        let remote = TraceContext::from_headers(headers);
        let span = tracer.ids().next_span_id();
        let context = match remote {
            Some(remote) => remote.with_span(span),
            None => {
                let trace = tracer.ids().next_trace_id();
                TraceContext::new_root(trace, span, tracer.should_sample(&trace))
            }
        };
        let sampled = context.is_sampled().then(|| SampledServerSpan {
            started_at: tracer.now(),
            parent: remote.map(|remote| ParentSpan {
                span: remote.span,
                remote: true,
                state: context::tracestate(headers),
            }),
            attributes: Box::new(ServerAttributes {
                api,
                method: known_method(method),
                path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
                route,
                status: None,
            }),
        });
        Self { tracer: tracer.clone(), context, has_remote_parent: remote.is_some(), sampled }
    }

    /// Starts the span of the decision; `None` if the trace is not sampled.
    pub fn start_decision(&self) -> Option<DecisionSpan> {
        self.sampled.as_ref()?;
        let tracer = self.tracer.clone();
        Some(DecisionSpan { started_at: tracer.now(), parent: self.context, tracer })
    }

    /// Starts the span of the upstream call and sets its trace headers; `None` if the trace is not
    /// sampled. In that case, a valid `traceparent` of the caller is forwarded unchanged.
    pub fn start_upstream(&self, headers: &mut HeaderMap) -> Option<UpstreamSpan> {
        if !self.has_remote_parent {
            headers.remove(TRACESTATE);
        }
        let Some(sampled) = &self.sampled else {
            if !self.has_remote_parent {
                headers.insert(TRACEPARENT, self.context.to_header());
            }
            return None;
        };
        let tracer = self.tracer.clone();
        let context = self.context.with_span(tracer.ids().next_span_id());
        headers.insert(TRACEPARENT, context.to_header());
        let (started_at, method) = (tracer.now(), sampled.attributes.method);
        Some(UpstreamSpan { tracer, context, parent: self.context, started_at, method })
    }

    /// Sets the status of the HTTP response.
    pub fn set_http_status(&mut self, status: StatusCode) {
        self.set_status(SpanStatus::Http(status.as_u16()));
    }

    /// Sets the status of the gRPC call.
    pub fn set_grpc_status(&mut self, code: u8) {
        self.set_status(SpanStatus::Grpc(code));
    }

    fn set_status(&mut self, status: SpanStatus) {
        if let Some(sampled) = &mut self.sampled {
            sampled.attributes.status = Some(status);
        }
    }
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        if let Some(SampledServerSpan { started_at, parent, attributes }) = self.sampled.take() {
            let (context, ended_at) = (self.context, self.tracer.now());
            self.tracer.enqueue(FinishedSpan {
                context,
                parent,
                started_at,
                ended_at,
                kind: SpanKind::Server(attributes),
            });
        }
    }
}

impl DecisionSpan {
    /// Ends the span with the decisions of the request.
    pub fn finish(self, decisions: &[Decision]) {
        let Self { tracer, parent, started_at } = self;
        let ended_at = tracer.now();
        let refused = decisions.iter().find(|decision| !decision.is_allowed());
        let Some(decision) = refused.or(decisions.first()) else { return };
        let rules = decisions.iter().map(|decision| decision.readings().len()).sum();
        let deciding_rule = decision.tightest().map(|(rule, reading)| span::DecidingRule {
            rule: rule.id().to_owned(),
            mode: rule.mode().name(),
            verdict: reading.verdict,
            cost: decision.charged_cost(reading),
            limit_remaining: reading.numbers.map(|numbers| (numbers.limit, numbers.remaining)),
        });
        let kind = SpanKind::Decision(Box::new(DecisionAttributes {
            decisions: decisions.len(),
            rules,
            allowed: refused.is_none(),
            answered_by: decision.answered_by(),
            store_time: decision.store_time(),
            delay: decision.delay(),
            deciding_rule,
        }));
        let context = parent.with_span(tracer.ids().next_span_id());
        tracer.enqueue(FinishedSpan {
            context,
            parent: Some(local_parent(parent)),
            started_at,
            ended_at,
            kind,
        });
    }
}

impl UpstreamSpan {
    /// Ends the span with the server that was called, if any, and the status of its response.
    pub fn finish(self, server: Option<(String, u16)>, status: Option<StatusCode>) {
        let Self { tracer, context, parent, started_at, method } = self;
        let status = status.map(|status| status.as_u16());
        let (kind, ended_at) = (SpanKind::Upstream { method, server, status }, tracer.now());
        tracer.enqueue(FinishedSpan {
            context,
            parent: Some(local_parent(parent)),
            started_at,
            ended_at,
            kind,
        });
    }
}

/// The attributes of a request for its span.
#[derive(Clone, Copy)]
pub struct RequestAttributes<'a> {
    pub(crate) api: ApiKind,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The route, if the request is for an endpoint of Tidegate.
    pub(crate) route: Option<&'static str>,
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> RequestAttributes<'a> {
    /// The attributes of a request to this API. Leaves out the query, which may hold secrets.
    pub fn from_request<B>(
        api: ApiKind,
        request: &'a Request<B>,
        route: Option<&'static str>,
    ) -> Self {
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        Self { api, method, path, route, headers }
    }
}

/// Ends the span of a decision, if there is one.
pub fn finish_decision(span: Option<DecisionSpan>, decisions: &[Decision]) {
    if let Some(span) = span {
        span.finish(decisions);
    }
}

/// A parent span in this process.
fn local_parent(parent: TraceContext) -> ParentSpan {
    ParentSpan { span: parent.span, remote: false, state: None }
}

/// The name of a standard method, otherwise [`OTHER_METHOD`]: a client may send any text.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or(OTHER_METHOD)
}
