//! The gRPC API: Envoy's rate limit service, health checking and reflection, over HTTP/2.
//!
//! gRPC is implemented directly on hyper: one path per method, length-prefixed messages, and a
//! status in the trailers. [`listen`](tidegate_net::listen) accepts, monitors and drains the
//! connections.

mod descriptor_pool;
mod frame;
mod health;
mod reflection;
mod response_body;
mod status;
mod timeout;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tidegate_core::store::Store;
use tidegate_limiter::{Limiter, NoFallback};
use tidegate_rules::ApiKind;
use tokio::time::Instant;

use crate::envoy::{self, EnvoyResponse, RateLimitService};
use crate::http::body::{BodyMemoryBudget, CollectedBody, MAX_SHORT_BODY_BYTES};
use health::GrpcHealthService;
pub use response_body::GrpcBody;
use status::{GrpcCode, GrpcStatus};
use tidegate_net::listen::{ConnectionInfo, HttpHandler};
use tidegate_telemetry::trace::{self, DecisionSpan, RequestAttributes, ServerSpan, Tracer};
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, ProcessStatus, http_response};

/// Path of the method that decides requests.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Settings of the gRPC API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum size of a message to the rate limit service. Envoy copies client headers into
    /// messages, possibly the same header into several descriptors.
    pub max_message_bytes: usize,
    /// Memory shared by all long messages. A message that does not fit waits.
    pub max_held_bytes: usize,
    /// How long a client may take to send a message.
    pub message_timeout: Duration,
    /// How requests are decided and which headers responses carry.
    pub envoy: envoy::Settings,
    /// Exports traces of calls; `None` disables tracing.
    pub tracer: Option<Tracer>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_message_bytes: 4 * 1024 * 1024,
            max_held_bytes: 64 * 1024 * 1024,
            message_timeout: Duration::from_secs(10),
            envoy: envoy::Settings::default(),
            tracer: None,
        }
    }
}

/// The gRPC services, backed by a limiter.
pub struct GrpcApi<S, L = NoFallback> {
    service: Arc<RateLimitService<S, L>>,
    health: GrpcHealthService,
    body_memory: BodyMemoryBudget,
    settings: Settings,
}

/// The supported methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrpcMethod {
    ShouldRateLimit,
    Check,
    List,
    Watch,
    Reflect,
}

impl GrpcMethod {
    fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            SHOULD_RATE_LIMIT => Self::ShouldRateLimit,
            "/grpc.health.v1.Health/Check" => Self::Check,
            "/grpc.health.v1.Health/List" => Self::List,
            "/grpc.health.v1.Health/Watch" => Self::Watch,
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Self::Reflect,
            _ => return None,
        })
    }
}

impl<S: Store + 'static, L: Store + 'static> GrpcApi<S, L> {
    /// Creates the API for a limiter.
    #[must_use]
    pub fn new(
        limiter: Arc<Limiter<S, L>>,
        status: Arc<ProcessStatus>,
        settings: Settings,
    ) -> Self {
        let service = Arc::new(RateLimitService::new(limiter, settings.envoy, ApiKind::Grpc));
        let body_memory = BodyMemoryBudget::new(settings.max_held_bytes);
        Self { service, health: GrpcHealthService::new(status), body_memory, settings }
    }

    async fn route_call(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<GrpcBody>, GrpcStatus> {
        let Some(call) = GrpcMethod::from_path(request.uri().path()) else {
            let services = [envoy::SERVICE, health::SERVICE].join(" and ");
            let message = format!("unknown method; this server provides {services}");
            return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
        };
        Ok(match call {
            GrpcMethod::Reflect => {
                reflection::serve_reflection(request.into_body(), MAX_SHORT_BODY_BYTES)
            }
            GrpcMethod::ShouldRateLimit => {
                let attributes = RequestAttributes::from_request(
                    ApiKind::Grpc,
                    &request,
                    Some(SHOULD_RATE_LIMIT),
                );
                let mut span = self
                    .settings
                    .tracer
                    .as_ref()
                    .map(|tracer| tracer.start_server_span(attributes));
                let response = self.decide_call(request, span.as_deref()).await;
                if let Some(span) = &mut span {
                    let code =
                        response.as_ref().map_or_else(|status| status.code, |_| GrpcCode::Ok);
                    span.set_grpc_status(code as u8);
                }
                GrpcBody::unary_response(response?)
            }
            GrpcMethod::Check => {
                let (message, _) = self.read_message(request, MAX_SHORT_BODY_BYTES).await?;
                GrpcBody::unary_response(self.health.check(&message.bytes)?)
            }
            GrpcMethod::List => GrpcBody::unary_response(self.health.list()),
            GrpcMethod::Watch => {
                let (message, _) = self.read_message(request, MAX_SHORT_BODY_BYTES).await?;
                self.health.watch(&message.bytes)?
            }
        })
    }

    /// Reads the message of a call. Also returns the caller's deadline, if it sent one.
    async fn read_message(
        &self,
        request: Request<Incoming>,
        max_bytes: usize,
    ) -> Result<(CollectedBody, Option<Instant>), GrpcStatus> {
        let timeout = timeout::from_headers(request.headers())?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let limit = self.settings.message_timeout;
        let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
        let message =
            frame::read_message(request.into_body(), max_bytes, limit, &self.body_memory).await?;
        Ok((message, deadline))
    }

    async fn decide_call(
        &self,
        request: Request<Incoming>,
        span: Option<&ServerSpan>,
    ) -> Result<Bytes, GrpcStatus> {
        let (message, deadline) =
            self.read_message(request, self.settings.max_message_bytes).await?;
        let deciding = span.and_then(ServerSpan::start_decision);
        self.should_rate_limit(message, deadline, deciding).await
    }

    async fn should_rate_limit(
        &self,
        message: CollectedBody,
        deadline: Option<Instant>,
        deciding: Option<DecisionSpan>,
    ) -> Result<Bytes, GrpcStatus> {
        let service = Arc::clone(&self.service);
        let mut decision = Box::pin(async move {
            let call = envoy::read_request(&message.bytes).map_err(|invalid| {
                GrpcStatus::new(GrpcCode::InvalidArgument, invalid.to_string())
            })?;
            // A store failure is an error status, never a response with code `UNKNOWN`: Envoy lets
            // such a request pass.
            let decided = service.decide(&call).await;
            let decided = decided
                .map_err(|error| GrpcStatus::new(GrpcCode::Unavailable, error.to_string()))?;
            trace::finish_decision(deciding, decided.decisions());
            let reply = frame::finish_message(envoy::write_response(
                &EnvoyResponse::from_decisions(&decided),
                frame::PREFIX_BYTES,
            ));
            Ok((reply, decided))
        });
        let Some(deadline) = deadline else { return decision.await.map(|(reply, _)| reply) };
        // `timeout_at` polls the decision first, so a timer is set only if it is not ready at once.
        if let Ok(decided) = tokio::time::timeout_at(deadline, &mut decision).await {
            return decided.map(|(reply, _)| reply);
        }
        let service = Arc::clone(&self.service);
        // The deadline passed, but the store may still charge. Let the decision finish in the
        // background, then refund what it charged.
        tokio::spawn(async move {
            if let Ok((_, decided)) = decision.await {
                service.refund(decided).await;
            }
        });
        Err(GrpcStatus::new(
            GrpcCode::DeadlineExceeded,
            "no decision within the caller's grpc-timeout",
        ))
    }
}

impl<S: Store + 'static, L: Store + 'static> HttpHandler for GrpcApi<S, L> {
    type Body = GrpcBody;

    async fn handle(&self, request: Request<Incoming>, _: &ConnectionInfo) -> Response<GrpcBody> {
        match non_grpc_problem(&request) {
            Some(problem) => http_response::problem(&problem),
            None => self.route_call(request).await.unwrap_or_else(GrpcStatus::into_response),
        }
    }

    fn trusts_peer(&self, _: Peer) -> bool {
        false
    }
}

/// Returns the HTTP error for a request that is not a gRPC call.
fn non_grpc_problem<B>(request: &Request<B>) -> Option<HttpError> {
    let media_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media_type = media_type.and_then(|text| text.split(|byte| *byte == b';').next());
    let (status, detail) = match media_type.map(<[u8]>::trim_ascii) {
        _ if request.version() < Version::HTTP_2 => (
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "this listener serves gRPC over HTTP/2; for JSON use POST /json on the HTTP listener",
        ),
        _ if request.method() != Method::POST => {
            (StatusCode::METHOD_NOT_ALLOWED, "gRPC calls must use POST")
        }
        Some(b"application/grpc" | b"application/grpc+proto") => return None,
        _ => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "this listener accepts application/grpc; for JSON use POST /json on the HTTP listener",
        ),
    };
    Some(HttpError::new(status, detail))
}

impl<S, L> fmt::Debug for GrpcApi<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcApi").field("settings", &self.settings).finish_non_exhaustive()
    }
}
