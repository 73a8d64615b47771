//! The HTTP API: maps requests to endpoints and writes the responses.
//!
//! It is HTTP/1.1 directly on hyper with a small endpoint table. An invalid request is never
//! charged, not even in part. [`listen`](tidegate_net::listen) accepts, monitors and drains the
//! connections.

mod authorization;
pub mod body;
mod envoy_json;
mod forward_auth;

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
use tidegate_limiter::{BorrowStats, Limiter, NoFallback, NodeHoldings};
use tidegate_rules::{ApiKind, Facts, RuleSet};

use crate::counter_problem::{STORE_DOWN_NOT_LISTED, STORE_DOWN_NOT_RESET, missing_key_message};
use crate::envoy::{self, RateLimitService};
use crate::json::{
    self, BatchCheckRequest, CheckRequest, ClientCountersRequest, PeekRequest, RefundRequest,
};
use authorization::ApiAccessError;
use body::{BodyMemoryBudget, LengthParser};
use tidegate_identity::extractor_cache::ExtractorCache;
use tidegate_net::listen::{ConnectionInfo, HttpHandler};
use tidegate_response as respond;
use tidegate_response::HeaderSettings;
use tidegate_telemetry::trace::{self, RequestAttributes, ServerSpan, Tracer};
use tidegate_web::problem::HttpError;
use tidegate_web::{BearerToken, Peer, ProcessStatus, http_response};

/// Settings of the HTTP API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum body size, except for the endpoints below.
    pub max_body_bytes: usize,
    /// Maximum body size of `/v1/checks`.
    pub max_batch_bytes: usize,
    /// Maximum body size of `/json`.
    pub max_envoy_bytes: usize,
    /// Memory shared by all long bodies. A body that does not fit waits.
    pub max_held_bytes: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How rate-limit headers are written.
    pub headers: HeaderSettings,
    /// How requests to `/json` are decided and which headers their responses carry.
    pub envoy: envoy::Settings,
    /// Token that opens the guarded endpoints to callers from other machines.
    pub token: Option<BearerToken>,
    /// Exports traces of requests; `None` disables tracing.
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

/// The HTTP API, backed by a limiter.
pub struct HttpApi<S, L = NoFallback> {
    limiter: Arc<Limiter<S, L>>,
    envoy: RateLimitService<S, L>,
    /// Extract the identity of the client from a forward-auth request.
    extractors: ExtractorCache,
    status: Arc<ProcessStatus>,
    body_memory: BodyMemoryBudget,
    settings: Settings,
}

/// The endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpEndpoint {
    Check,
    Checks,
    Peek,
    Refund,
    Reset,
    Counters,
    Explain,
    /// Envoy's rate limit service in proto-JSON.
    EnvoyJson,
    /// A proxy asks whether a request that it holds may pass.
    ForwardAuth,
    Live,
    Ready,
    /// The health probe of Envoy's reference server.
    Healthcheck,
}

impl HttpEndpoint {
    fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/check" => Self::Check,
            "/v1/checks" => Self::Checks,
            "/v1/peek" => Self::Peek,
            "/v1/refund" => Self::Refund,
            "/v1/reset" => Self::Reset,
            "/v1/counters" => Self::Counters,
            "/v1/explain" => Self::Explain,
            "/json" => Self::EnvoyJson,
            "/healthcheck" => Self::Healthcheck,
            "/livez" => Self::Live,
            "/readyz" => Self::Ready,
            _ => {
                let rest = path.strip_prefix(forward_auth::PATH)?;
                return (rest.is_empty() || rest.starts_with('/')).then_some(Self::ForwardAuth);
            }
        })
    }

    /// The path, as traces name it.
    const fn route(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Checks => "/v1/checks",
            Self::Peek => "/v1/peek",
            Self::Refund => "/v1/refund",
            Self::Reset => "/v1/reset",
            Self::Counters => "/v1/counters",
            Self::Explain => "/v1/explain",
            Self::EnvoyJson => "/json",
            Self::ForwardAuth => forward_auth::PATH,
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Healthcheck => "/healthcheck",
        }
    }

    const fn is_probe(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Healthcheck)
    }

    /// Returns whether the endpoint reads or changes more than a decision does.
    const fn is_guarded(self) -> bool {
        matches!(self, Self::Peek | Self::Refund | Self::Reset | Self::Counters | Self::Explain)
    }

    /// Value of the `Allow` header.
    const fn allowed_methods(self) -> &'static str {
        if self.is_probe() { "GET, HEAD" } else { "POST" }
    }

    fn accepts_method(self, method: &Method) -> bool {
        match self {
            Self::ForwardAuth => true,
            _ if self.is_probe() => matches!(*method, Method::GET | Method::HEAD),
            _ => *method == Method::POST,
        }
    }
}

impl<S: Store, L: Store> HttpApi<S, L> {
    /// Creates the API for a limiter.
    #[must_use]
    pub fn new(
        limiter: Arc<Limiter<S, L>>,
        status: Arc<ProcessStatus>,
        settings: Settings,
    ) -> Self {
        let envoy = RateLimitService::new(Arc::clone(&limiter), settings.envoy, ApiKind::Http);
        let body_memory = BodyMemoryBudget::new(settings.max_held_bytes);
        Self {
            limiter,
            envoy,
            extractors: ExtractorCache::default(),
            status,
            body_memory,
            settings,
        }
    }

    /// The active rules.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.limiter.rules()
    }

    /// What this node holds of each rule's counters; `None` if the store decides every request.
    #[must_use]
    pub fn holdings(&self) -> Option<NodeHoldings> {
        self.limiter.holdings()
    }

    /// What this node borrows from other regions, if it may.
    #[must_use]
    pub fn borrow_stats(&self) -> Option<BorrowStats> {
        self.limiter.borrow_stats()
    }

    /// The status of the process, as `/readyz` reports it.
    #[must_use]
    pub fn status(&self) -> &ProcessStatus {
        &self.status
    }

    /// Handles a request. Every error becomes a response.
    pub async fn handle_request<B>(
        &self,
        request: Request<B>,
        caller: impl Into<Peer>,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut span = self.start_span(&request);
        let result = self.route_request(request, caller.into(), span.as_deref()).await;
        let response = result.unwrap_or_else(|problem| http_response::problem(&problem));
        if let Some(span) = &mut span {
            span.set_http_status(response.status());
        }
        response
    }

    /// Starts a request's span if tracing is enabled. Probes are too frequent to be traced.
    fn start_span<B>(&self, request: &Request<B>) -> Option<Box<ServerSpan>> {
        let tracer = self.settings.tracer.as_ref()?;
        let endpoint = HttpEndpoint::from_path(request.uri().path())
            .filter(|endpoint| !endpoint.is_probe())?;
        let api = match endpoint {
            HttpEndpoint::ForwardAuth => ApiKind::ForwardAuth,
            _ => ApiKind::Http,
        };
        Some(tracer.start_server_span(RequestAttributes::from_request(
            api,
            request,
            Some(endpoint.route()),
        )))
    }

    async fn route_request<B>(
        &self,
        request: Request<B>,
        caller: Peer,
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        let Some(endpoint) = HttpEndpoint::from_path(head.uri.path()) else {
            let detail = "no such endpoint; for decisions use POST /v1/check";
            return Err(HttpError::new(StatusCode::NOT_FOUND, detail));
        };
        if !endpoint.accepts_method(&head.method) {
            let detail = format!("method not allowed; use {}", endpoint.allowed_methods());
            let problem = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail);
            let mut response = http_response::problem(&problem);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(endpoint.allowed_methods()));
            return Ok(response);
        }
        if endpoint.is_probe() {
            return Ok(self.probe(endpoint)); // the body, if any, is not read
        }
        if endpoint == HttpEndpoint::ForwardAuth {
            // Boxed: the future is large, and would enlarge the future of every check.
            let result = Box::pin(self.forward_auth(head, caller, span)).await;
            let mut response = result.unwrap_or_else(|problem| http_response::problem(&problem));
            if !body.is_end_stream() {
                // Some proxies send the length of a body without sending the body.
                http_response::set_connection_close(&mut response);
            }
            return Ok(response);
        }
        let token = self.settings.token.as_ref();
        if let Err(refusal) = authorization::reject_browser_origin(&head.headers, token) {
            return Ok(refusal.into_response());
        }
        let authorized = match endpoint.is_guarded() || endpoint == HttpEndpoint::EnvoyJson {
            true => authorization::authorize(&head.headers, caller, token),
            false => Ok(()),
        };
        // For `/json` the body decides whether authorization is needed.
        if let (true, Err(refusal)) = (endpoint.is_guarded(), authorized) {
            return Ok(refusal.into_response());
        }
        let max_bytes = match endpoint {
            HttpEndpoint::Checks => self.settings.max_batch_bytes,
            HttpEndpoint::EnvoyJson => self.settings.max_envoy_bytes,
            _ => self.settings.max_body_bytes,
        };
        let (timeout, budget) =
            (self.settings.body_timeout, (&self.body_memory, no_declared_length as LengthParser));
        match body::read_budgeted(body, max_bytes, timeout, budget).await {
            Ok(body) if endpoint == HttpEndpoint::Check => self.check(&body.bytes, span).await,
            Ok(body) => {
                Box::pin(self.handle_endpoint(endpoint, &body.bytes, authorized, span)).await
            }
            Err(error) => Ok(error.into_response()),
        }
    }

    fn probe(&self, endpoint: HttpEndpoint) -> Response<Full<Bytes>> {
        match endpoint {
            HttpEndpoint::Ready if self.status.is_ready() => {
                http_response::json(StatusCode::OK, &self.status.ready_view())
            }
            HttpEndpoint::Ready => {
                http_response::json(StatusCode::SERVICE_UNAVAILABLE, &self.status.ready_view())
            }
            HttpEndpoint::Healthcheck if self.status.is_ready() => {
                http_response::static_text(StatusCode::OK, b"OK")
            }
            HttpEndpoint::Healthcheck => {
                http_response::static_text(StatusCode::INTERNAL_SERVER_ERROR, b"not ready")
            }
            _ => http_response::static_json(StatusCode::OK, br#"{"status":"alive"}"#),
        }
    }

    async fn handle_endpoint(
        &self,
        endpoint: HttpEndpoint,
        body: &[u8],
        authorized: Result<(), ApiAccessError>,
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError> {
        let limiter = &self.limiter;
        let decision = match endpoint {
            HttpEndpoint::Check => return self.check(body, span).await,
            HttpEndpoint::Checks => return self.checks(body, span).await,
            HttpEndpoint::Explain => {
                let CheckRequest { facts, cost } = json::parse(body)?;
                let explanation = limiter.explain(&facts, cost).await;
                return Ok(http_response::json_from_string(
                    StatusCode::OK,
                    json::encode_explanation(&explanation),
                ));
            }
            HttpEndpoint::Refund => {
                let RefundRequest { facts, rule, cost, charged_at_us } = json::parse(body)?;
                let rule = self.require_known_rule(rule.as_deref())?;
                let charged_at = charged_at_us.map(Timestamp::from_micros);
                limiter.refund(&facts, rule, cost, charged_at).await
            }
            HttpEndpoint::Reset => {
                let ClientCountersRequest { facts, rule } = json::parse(body)?;
                let rule = self.require_rule_key(rule.as_deref(), &facts)?;
                let decision = limiter.reset(&facts, rule).await;
                if decision.answered_by() == AnsweredBy::Fallback {
                    return Err(HttpError::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        STORE_DOWN_NOT_RESET,
                    ));
                }
                decision
            }
            HttpEndpoint::Counters => {
                let ClientCountersRequest { facts, rule } = json::parse(body)?;
                let rule = self.require_rule_key(rule.as_deref(), &facts)?;
                let counters = limiter.counters(&facts, rule).await;
                if counters.answered_by() == AnsweredBy::Fallback {
                    return Err(HttpError::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        STORE_DOWN_NOT_LISTED,
                    ));
                }
                return Ok(http_response::json_from_string(
                    StatusCode::OK,
                    json::encode_counters(&counters),
                ));
            }
            HttpEndpoint::Live
            | HttpEndpoint::Ready
            | HttpEndpoint::Healthcheck
            | HttpEndpoint::ForwardAuth => {
                return Ok(self.probe(endpoint));
            }
            HttpEndpoint::EnvoyJson => {
                return self.handle_envoy_json(body, authorized, span).await;
            }
            HttpEndpoint::Peek => {
                let PeekRequest { facts, rule, cost } = json::parse(body)?;
                limiter.peek(&facts, self.require_known_rule(rule.as_deref())?, cost).await
            }
        };
        Ok(http_response::json_from_string(StatusCode::OK, json::encode_decision(&decision)))
    }

    /// Decides one request. Status and headers of the response report the decision, too.
    async fn check(
        &self,
        body: &[u8],
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError> {
        let CheckRequest { mut facts, cost } = json::parse(body)?;
        facts.set_api(ApiKind::Http);
        let deciding = span.and_then(ServerSpan::start_decision);
        let decision = &self.limiter.decide(&facts, cost).await;
        trace::finish_decision(deciding, slice::from_ref(decision));
        let status =
            if decision.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
        let mut response = http_response::json_from_string(status, json::encode_decision(decision));
        let settings = &self.settings.headers;
        let random = settings.jitter_seed(decision, &facts);
        respond::write_headers(decision, settings, random, response.headers_mut());
        Ok(response)
    }

    async fn checks(
        &self,
        body: &[u8],
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError> {
        let BatchCheckRequest { mut checks } = json::parse(body)?;
        let deciding = span.and_then(ServerSpan::start_decision);
        let mut decisions = Vec::with_capacity(checks.len());
        for CheckRequest { facts, cost } in &mut checks {
            facts.set_api(ApiKind::Http);
            decisions.push(self.limiter.decide(facts, *cost).await);
        }
        trace::finish_decision(deciding, &decisions);
        Ok(http_response::json_from_string(StatusCode::OK, json::encode_decisions(&decisions)))
    }

    /// Fails if the given rule does not exist.
    fn require_known_rule<'r>(&self, rule: Option<&'r str>) -> Result<Option<&'r str>, HttpError> {
        match rule {
            Some(id) if !self.limiter.rules().rules().iter().any(|rule| rule.id() == id) => {
                Err(HttpError::new(StatusCode::NOT_FOUND, "no rule has this id").with_field("rule"))
            }
            _ => Ok(rule),
        }
    }

    /// Fails if the given rule does not exist, or if `facts` lacks part of that rule's key.
    fn require_rule_key<'r>(
        &self,
        rule: Option<&'r str>,
        facts: &Facts<'_>,
    ) -> Result<Option<&'r str>, HttpError> {
        let Some(id) = self.require_known_rule(rule)? else { return Ok(None) };
        match missing_key_message(&self.limiter.rules(), id, facts) {
            Some(detail) => {
                Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with_field("facts"))
            }
            None => Ok(rule),
        }
    }
}

/// JSON does not declare its length; only the `Content-Length` header may.
const fn no_declared_length(_: &[u8]) -> Option<usize> {
    None
}

impl<S: Store + 'static, L: Store + 'static> HttpHandler for HttpApi<S, L> {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        request: Request<Incoming>,
        caller: &ConnectionInfo,
    ) -> Response<Full<Bytes>> {
        self.handle_request(request, caller.peer).await
    }

    fn trusts_peer(&self, _: Peer) -> bool {
        false
    }
}

impl<S, L> fmt::Debug for HttpApi<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApi").field("settings", &self.settings).finish_non_exhaustive()
    }
}
