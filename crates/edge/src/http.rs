//! The HTTP door: which question a request is, and the answer to it.
//!
//! HTTP/1.1 straight on hyper, one small table of endpoints. Nothing is charged on a request that
//! is wrong anywhere. How connections are accepted, watched and drained is in [`listen`](crate::listen).

pub mod body;
mod envoy_call;
mod forward_auth;
mod guard;

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use tidegate_core::decision::AnsweredBy;
use tidegate_core::store::Store;
use tidegate_core::time::Timestamp;
use tidegate_engine::{Limiter, NoLocal};
use tidegate_rules::{Door as AskedAt, Facts};

use crate::envoy::{self, Service};
use crate::identity::Extractors;
use crate::json::{self, Check, Checks, Client, Peek, Refund};
use crate::listen::{Answers, Caller};
use crate::problem::{NOT_LISTED, NOT_RESET, Problem, missing_parts};
use crate::respond::{self, HeaderSettings};
use crate::trace::{self, Asked, Serving, Tracer};
use crate::{Peer, Status, Token, answer};
use body::{Announced, Room};
use guard::Refusal;

/// How the door behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest body of one question.
    pub max_body_bytes: usize,
    /// The longest body of `/v1/checks`.
    pub max_batch_bytes: usize,
    /// The longest body of `/json`.
    pub max_envoy_bytes: usize,
    /// The memory that long bodies share; those for which there is none wait.
    pub max_held_bytes: usize,
    /// How long a caller may take to send a body.
    pub body_timeout: Duration,
    /// How rate-limit headers are written.
    pub headers: HeaderSettings,
    /// How calls in the form of Envoy's rate limit service are decided and answered.
    pub envoy: envoy::Settings,
    /// Opens the guarded endpoints to callers from elsewhere.
    pub token: Option<Token>,
    /// Who tells what becomes of requests as traces.
    pub tracer: Option<Tracer>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 * 1024,
            max_batch_bytes: 1024 * 1024,
            max_envoy_bytes: 4 * 1024 * 1024,
            max_held_bytes: 64 * 1024 * 1024,
            body_timeout: Duration::from_secs(10),
            headers: HeaderSettings::default(),
            envoy: envoy::Settings::default(),
            token: None,
            tracer: None,
        }
    }
}

/// Answers questions over HTTP by what a limiter decides.
pub struct Door<S, L = NoLocal> {
    limiter: Arc<Limiter<S, L>>,
    envoy: Service<S, L>,
    /// Whose requests they are that proxies ask about.
    extractors: Extractors,
    status: Arc<Status>,
    room: Room,
    settings: Settings,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Check,
    Checks,
    Peek,
    Refund,
    Reset,
    Counters,
    Explain,
    /// A call in the JSON form of Envoy's rate limit service.
    Json,
    /// A proxy asks about a request that it holds.
    ForwardAuth,
    Live,
    Ready,
    /// The probe of Envoy's reference server.
    Healthcheck,
}

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/check" => Self::Check,
            "/v1/checks" => Self::Checks,
            "/v1/peek" => Self::Peek,
            "/v1/refund" => Self::Refund,
            "/v1/reset" => Self::Reset,
            "/v1/counters" => Self::Counters,
            "/v1/explain" => Self::Explain,
            "/json" => Self::Json,
            "/healthcheck" => Self::Healthcheck,
            "/livez" => Self::Live,
            "/readyz" => Self::Ready,
            _ => {
                let rest = path.strip_prefix(forward_auth::PATH)?;
                return (rest.is_empty() || rest.starts_with('/')).then_some(Self::ForwardAuth);
            }
        })
    }

    /// Its path, as a trace names it.
    const fn route(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Checks => "/v1/checks",
            Self::Peek => "/v1/peek",
            Self::Refund => "/v1/refund",
            Self::Reset => "/v1/reset",
            Self::Counters => "/v1/counters",
            Self::Explain => "/v1/explain",
            Self::Json => "/json",
            Self::ForwardAuth => forward_auth::PATH,
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Healthcheck => "/healthcheck",
        }
    }

    const fn is_probe(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Healthcheck)
    }

    /// Whether it tells or changes more than a decision does.
    const fn is_guarded(self) -> bool {
        matches!(self, Self::Peek | Self::Refund | Self::Reset | Self::Counters | Self::Explain)
    }

    /// The methods it takes.
    const fn allow(self) -> &'static str {
        if self.is_probe() { "GET, HEAD" } else { "POST" }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::ForwardAuth => true,
            _ if self.is_probe() => matches!(*method, Method::GET | Method::HEAD),
            _ => *method == Method::POST,
        }
    }
}

impl<S: Store, L: Store> Door<S, L> {
    /// A door to a limiter.
    #[must_use]
    pub fn new(limiter: Arc<Limiter<S, L>>, status: Arc<Status>, settings: Settings) -> Self {
        let envoy = Service::new(Arc::clone(&limiter), settings.envoy, AskedAt::Http);
        let room = Room::new(settings.max_held_bytes);
        Self { limiter, envoy, extractors: Extractors::default(), status, room, settings }
    }

    /// The state of the process, as `/readyz` reports it.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Answers one request of a caller. It always answers.
    pub async fn ask<B>(
        &self,
        request: Request<B>,
        caller: impl Into<Peer>,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut serving = self.begin(&request);
        let answered = self.route(request, caller.into(), serving.as_deref()).await;
        let response = answered.unwrap_or_else(|problem| answer::problem(&problem));
        if let Some(serving) = &mut serving {
            serving.answered(response.status());
        }
        response
    }

    /// The span of a request, where traces are made. Probes ask too often to be told.
    fn begin<B>(&self, request: &Request<B>) -> Option<Box<Serving>> {
        let tracer = self.settings.tracer.as_ref()?;
        let endpoint = Endpoint::of(request.uri().path()).filter(|asked| !asked.is_probe())?;
        let door = match endpoint {
            Endpoint::ForwardAuth => AskedAt::ForwardAuth,
            _ => AskedAt::Http,
        };
        Some(tracer.serve(Asked::of(door, request, Some(endpoint.route()))))
    }

    async fn route<B>(
        &self,
        request: Request<B>,
        caller: Peer,
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        let Some(endpoint) = Endpoint::of(head.uri.path()) else {
            let detail = "nothing is here; decisions are made at POST /v1/check";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        };
        if !endpoint.takes(&head.method) {
            let detail = format!("this endpoint takes {}", endpoint.allow());
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
            let mut response = answer::problem(&problem);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(endpoint.allow()));
            return Ok(response);
        }
        if endpoint.is_probe() {
            return Ok(self.probe(endpoint)); // whatever body it brings is not read
        }
        if endpoint == Endpoint::ForwardAuth {
            // The state of what is not a check is large, and boxed: it would be moved about with every check.
            let answered = Box::pin(self.forward_auth(head, caller, serving)).await;
            let mut response = answered.unwrap_or_else(|problem| answer::problem(&problem));
            if !body.is_end_stream() {
                // Some proxies leave the length of a body there that they do not send.
                answer::close(&mut response);
            }
            return Ok(response);
        }
        let token = self.settings.token.as_ref();
        if let Err(refusal) = guard::admit_program(&head.headers, token) {
            return Ok(refusal.into_response());
        }
        let admitted = match endpoint.is_guarded() || endpoint == Endpoint::Json {
            true => guard::admit(&head.headers, caller, token),
            false => Ok(()),
        };
        // Of calls in Envoy's form some are guarded, and the body says which.
        if let (true, Err(refusal)) = (endpoint.is_guarded(), admitted) {
            return Ok(refusal.into_response());
        }
        let max_bytes = match endpoint {
            Endpoint::Checks => self.settings.max_batch_bytes,
            Endpoint::Json => self.settings.max_envoy_bytes,
            _ => self.settings.max_body_bytes,
        };
        let (patience, room) = (self.settings.body_timeout, (&self.room, no_length as Announced));
        match body::read_long(body, max_bytes, patience, room).await {
            Ok(body) if endpoint == Endpoint::Check => self.check(&body.bytes, serving).await,
            Ok(body) => Box::pin(self.question(endpoint, &body.bytes, admitted, serving)).await,
            Err(unread) => Ok(unread.into_response()),
        }
    }

    fn probe(&self, endpoint: Endpoint) -> Response<Full<Bytes>> {
        match endpoint {
            Endpoint::Ready if self.status.is_ready() => {
                answer::json(StatusCode::OK, &self.status.told())
            }
            Endpoint::Ready => answer::json(StatusCode::SERVICE_UNAVAILABLE, &self.status.told()),
            Endpoint::Healthcheck if self.status.is_ready() => answer::text(StatusCode::OK, b"OK"),
            Endpoint::Healthcheck => answer::text(StatusCode::INTERNAL_SERVER_ERROR, b"not ready"),
            _ => answer::plain(StatusCode::OK, br#"{"status":"alive"}"#),
        }
    }

    async fn question(
        &self,
        endpoint: Endpoint,
        body: &[u8],
        admitted: Result<(), Refusal>,
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let limiter = &self.limiter;
        let decision = match endpoint {
            Endpoint::Check => return self.check(body, serving).await,
            Endpoint::Checks => return self.checks(body, serving).await,
            Endpoint::Explain => {
                let Check { facts, cost } = json::parse(body)?;
                let explanation = limiter.explain(&facts, cost).await;
                return Ok(answer::written(StatusCode::OK, json::explanation(&explanation)));
            }
            Endpoint::Refund => {
                let Refund { facts, rule, cost, charged_at_us } = json::parse(body)?;
                let rule = self.known(rule.as_deref())?;
                let charged_at = charged_at_us.map(Timestamp::from_micros);
                limiter.refund(&facts, rule, cost, charged_at).await
            }
            Endpoint::Reset => {
                let Client { facts, rule } = json::parse(body)?;
                let rule = self.with_key(rule.as_deref(), &facts)?;
                let decision = limiter.reset(&facts, rule).await;
                if decision.answered_by() == AnsweredBy::Fallback {
                    return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, NOT_RESET));
                }
                decision
            }
            Endpoint::Counters => {
                let Client { facts, rule } = json::parse(body)?;
                let rule = self.with_key(rule.as_deref(), &facts)?;
                let counters = limiter.counters(&facts, rule).await;
                if counters.answered_by() == AnsweredBy::Fallback {
                    return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, NOT_LISTED));
                }
                return Ok(answer::written(StatusCode::OK, json::counters(&counters)));
            }
            Endpoint::Live | Endpoint::Ready | Endpoint::Healthcheck | Endpoint::ForwardAuth => {
                return Ok(self.probe(endpoint));
            }
            Endpoint::Json => return self.envoy_call(body, admitted, serving).await,
            Endpoint::Peek => {
                let Peek { facts, rule, cost } = json::parse(body)?;
                limiter.peek(&facts, self.known(rule.as_deref())?, cost).await
            }
        };
        Ok(answer::written(StatusCode::OK, json::decision(&decision)))
    }

    /// The answer to a check is the one that is told in its status and headers too.
    async fn check(
        &self,
        body: &[u8],
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let Check { mut facts, cost } = json::parse(body)?;
        facts.set_door(AskedAt::Http);
        let deciding = serving.and_then(Serving::decides);
        let decision = &self.limiter.decide(&facts, cost).await;
        trace::decided(deciding, slice::from_ref(decision));
        let status =
            if decision.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        let mut response = answer::written(status, json::decision(decision));
        let settings = &self.settings.headers;
        let random = settings.draw(decision, &facts);
        respond::headers(decision, settings, random, response.headers_mut());
        Ok(response)
    }

    async fn checks(
        &self,
        body: &[u8],
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let Checks { mut checks } = json::parse(body)?;
        let deciding = serving.and_then(Serving::decides);
        let mut decisions = Vec::with_capacity(checks.len());
        for Check { facts, cost } in &mut checks {
            facts.set_door(AskedAt::Http);
            decisions.push(self.limiter.decide(facts, *cost).await);
        }
        trace::decided(deciding, &decisions);
        Ok(answer::written(StatusCode::OK, json::decisions(&decisions)))
    }

    /// A rule that is named must be there.
    fn known<'r>(&self, rule: Option<&'r str>) -> Result<Option<&'r str>, Problem> {
        match rule {
            Some(id) if !self.limiter.rules().rules().iter().any(|rule| rule.id() == id) => {
                Err(Problem::new(StatusCode::NOT_FOUND, "no rule has this id").with_field("rule"))
            }
            _ => Ok(rule),
        }
    }

    /// A rule that is named must be there, and facts must say whose counters are meant.
    fn with_key<'r>(
        &self,
        rule: Option<&'r str>,
        facts: &Facts<'_>,
    ) -> Result<Option<&'r str>, Problem> {
        let Some(id) = self.known(rule)? else { return Ok(None) };
        match missing_parts(&self.limiter.rules(), id, facts) {
            Some(detail) => {
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("facts"))
            }
            None => Ok(rule),
        }
    }
}

/// JSON does not say how long it is; its head may.
const fn no_length(_: &[u8]) -> Option<usize> {
    None
}

impl<S: Store + 'static, L: Store + 'static> Answers for Door<S, L> {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Incoming>, caller: &Caller) -> Response<Full<Bytes>> {
        self.ask(request, caller.peer).await
    }

    fn believes(&self, _: Peer) -> bool {
        false
    }
}

impl<S, L> fmt::Debug for Door<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("settings", &self.settings).finish_non_exhaustive()
    }
}
