//! Spans that have not ended: a request at a door, its decision, its way to an upstream. Each is told when it is
//! dropped or says what came of it, and only if the trace is sampled: otherwise nothing is copied or kept.

use http::header::HeaderMap;
use http::{Method, Request, StatusCode};
use tidegate_core::time::Timestamp;
use tidegate_engine::Decision;
use tidegate_rules::Door;

use super::Tracer;
use super::context::{self, Context, TRACEPARENT, TRACESTATE};
use super::span::{self, Decided, Parent, Served, Span, Status, What};

/// The longest path that is told.
const MAX_PATH: usize = 1_024;

/// What the conventions call a method that nobody knows.
pub(super) const OTHER_METHOD: &str = "_OTHER";

/// A request while it is answered.
pub(crate) struct Serving {
    tracer: Tracer,
    /// Our own place in the trace.
    context: Context,
    /// Whether the caller said where it stands, as it should.
    continued: bool,
    recorded: Option<Recorded>,
}

struct Recorded {
    begun: Timestamp,
    parent: Option<Parent>,
    served: Box<Served>,
}

/// A decision while it is made.
pub(crate) struct Deciding {
    tracer: Tracer,
    parent: Context,
    begun: Timestamp,
}

/// A request on its way to an upstream and back.
pub(crate) struct Calling {
    tracer: Tracer,
    context: Context,
    parent: Context,
    begun: Timestamp,
    method: &'static str,
}

impl Serving {
    /// A request begins at a door, perhaps at one of our own places there.
    pub(super) fn begin(tracer: &Tracer, head: Asked<'_>) -> Self {
        let Asked { door, method, path, route, headers } = head;
        let given = Context::of(headers);
        let span = tracer.ids().span();
        let context = match given {
            Some(given) => given.at(span),
            None => {
                let trace = tracer.ids().trace();
                Context::first(trace, span, tracer.draws(&trace))
            }
        };
        let recorded = context.is_sampled().then(|| Recorded {
            begun: tracer.now(),
            parent: given.map(|given| Parent {
                span: given.span,
                remote: true,
                state: context::state(headers),
            }),
            served: Box::new(Served {
                door,
                method: known(method),
                path: path[..path.floor_char_boundary(MAX_PATH)].to_owned(),
                route,
                status: None,
            }),
        });
        Self { tracer: tracer.clone(), context, continued: given.is_some(), recorded }
    }

    /// Its decision begins.
    pub(crate) fn decides(&self) -> Option<Deciding> {
        self.recorded.as_ref()?;
        let tracer = self.tracer.clone();
        Some(Deciding { begun: tracer.now(), parent: self.context, tracer })
    }

    /// It is sent on with these headers, which say where it stands from then on. Whoever is not sampled is sent on
    /// as they came.
    pub(crate) fn calls(&self, headers: &mut HeaderMap) -> Option<Calling> {
        if !self.continued {
            headers.remove(TRACESTATE);
        }
        let Some(recorded) = &self.recorded else {
            if !self.continued {
                headers.insert(TRACEPARENT, self.context.header());
            }
            return None;
        };
        let tracer = self.tracer.clone();
        let context = self.context.at(tracer.ids().span());
        headers.insert(TRACEPARENT, context.header());
        let (begun, method) = (tracer.now(), recorded.served.method);
        Some(Calling { tracer, context, parent: self.context, begun, method })
    }

    /// How it is answered.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.ended(Status::Http(status.as_u16()));
    }

    /// How a call of gRPC is answered.
    pub(crate) fn answered_grpc(&mut self, code: u8) {
        self.ended(Status::Grpc(code));
    }

    fn ended(&mut self, status: Status) {
        if let Some(recorded) = &mut self.recorded {
            recorded.served.status = Some(status);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(Recorded { begun, parent, served }) = self.recorded.take() {
            let (context, ended) = (self.context, self.tracer.now());
            self.tracer.put(Span { context, parent, begun, ended, what: What::Served(served) });
        }
    }
}

impl Deciding {
    fn decided(self, decisions: &[Decision]) {
        let Self { tracer, parent, begun } = self;
        let ended = tracer.now();
        let refused = decisions.iter().find(|decision| !decision.is_allowed());
        let Some(decision) = refused.or(decisions.first()) else { return };
        let rules = decisions.iter().map(|decision| decision.readings().len()).sum();
        let deciding = decision.tightest().map(|(rule, reading)| span::Deciding {
            rule: rule.id().to_owned(),
            mode: rule.mode().name(),
            verdict: reading.verdict,
            cost: decision.charged(reading),
            left: reading.numbers.map(|told| (told.limit, told.remaining)),
        });
        let what = What::Decided(Box::new(Decided {
            decisions: decisions.len(),
            rules,
            allowed: refused.is_none(),
            answered_by: decision.answered_by(),
            store_time: decision.store_time(),
            delay: decision.delay(),
            deciding,
        }));
        let context = parent.at(tracer.ids().span());
        tracer.put(Span { context, parent: Some(below(parent)), begun, ended, what });
    }
}

impl Calling {
    /// What came of it: the server that was asked, if one was, and what it answered.
    pub(crate) fn answered(self, server: Option<(String, u16)>, status: Option<StatusCode>) {
        let Self { tracer, context, parent, begun, method } = self;
        let status = status.map(|status| status.as_u16());
        let (what, ended) = (What::Called { method, server, status }, tracer.now());
        tracer.put(Span { context, parent: Some(below(parent)), begun, ended, what });
    }
}

/// What a span is of.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) door: Door,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// The place of our own, if it is one.
    pub(crate) route: Option<&'static str>,
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> Asked<'a> {
    /// What is asked at a door; a query may hold secrets and is not told.
    pub(crate) fn of<B>(door: Door, asked: &'a Request<B>, route: Option<&'static str>) -> Self {
        let (method, path, headers) = (asked.method(), asked.uri().path(), asked.headers());
        Self { door, method, path, route, headers }
    }
}

/// Tells what was decided, where somebody wants to know.
pub(crate) fn decided(deciding: Option<Deciding>, decisions: &[Decision]) {
    if let Some(deciding) = deciding {
        deciding.decided(decisions);
    }
}

/// A span below one of our own.
fn below(parent: Context) -> Parent {
    Parent { span: parent.span, remote: false, state: None }
}

/// The methods that there are; a client may send any.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or(OTHER_METHOD)
}
