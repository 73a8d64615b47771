//! The gRPC door: Envoy's rate limit service, health and reflection, over HTTP/2.
//!
//! gRPC itself is little: a path for each method, messages with a length before them, and a status after the
//! answer. How connections are accepted, watched and drained is in [`listen`](crate::listen).

mod descriptors;
mod frame;
mod health;
mod reflection;
mod reply;
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
use tidegate_engine::{Limiter, NoLocal};
use tidegate_rules::Door as AskedAt;
use tokio::time::Instant;

use crate::envoy::{self, Answer, Service};
use crate::http::body::{Room, SHORT_BYTES, Whole};
use crate::listen::{Answers, Caller};
use crate::problem::Problem;
use crate::trace::{self, Asked, Deciding, Serving, Tracer};
use crate::{Peer, Status as ProcessStatus, answer};
use health::Health;
pub use reply::Reply;
use status::{Code, Status};

/// The call that decides.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How the door behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest call to the rate limit service. Envoy puts headers of its clients into calls, the same one into
    /// several descriptors if it is configured so.
    pub max_message_bytes: usize,
    /// The memory that long calls share; those for which there is none wait.
    pub max_held_bytes: usize,
    /// How long a caller may take to send a message.
    pub message_timeout: Duration,
    /// How calls are decided and answered.
    pub envoy: envoy::Settings,
    /// Who tells what becomes of calls as traces.
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

/// Answers Envoy by what a limiter decides.
pub struct Door<S, L = NoLocal> {
    service: Arc<Service<S, L>>,
    health: Health,
    room: Room,
    settings: Settings,
}

/// The methods of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    ShouldRateLimit,
    Check,
    List,
    Watch,
    Reflect,
}

impl Call {
    fn of(path: &str) -> Option<Self> {
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

impl<S: Store + 'static, L: Store + 'static> Door<S, L> {
    /// A door to a limiter.
    #[must_use]
    pub fn new(
        limiter: Arc<Limiter<S, L>>,
        status: Arc<ProcessStatus>,
        settings: Settings,
    ) -> Self {
        let service = Arc::new(Service::new(limiter, settings.envoy, AskedAt::Grpc));
        let room = Room::new(settings.max_held_bytes);
        Self { service, health: Health::new(status), room, settings }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Reply>, Status> {
        let Some(call) = Call::of(request.uri().path()) else {
            let services = [envoy::SERVICE, health::SERVICE].join(" and ");
            let message = format!("there is no such method; here are {services}");
            return Err(Status::new(Code::Unimplemented, message));
        };
        Ok(match call {
            Call::Reflect => reflection::answer(request.into_body(), SHORT_BYTES),
            Call::ShouldRateLimit => {
                let asked = Asked::of(AskedAt::Grpc, &request, Some(SHOULD_RATE_LIMIT));
                let mut serving = self.settings.tracer.as_ref().map(|tracer| tracer.serve(asked));
                let answered = self.decided(request, serving.as_deref()).await;
                if let Some(serving) = &mut serving {
                    let code = answered.as_ref().map_or_else(|status| status.code, |_| Code::Ok);
                    serving.answered_grpc(code as u8);
                }
                Reply::one(answered?)
            }
            Call::Check => {
                let (message, _) = self.message(request, SHORT_BYTES).await?;
                Reply::one(self.health.check(&message.bytes)?)
            }
            Call::List => Reply::one(self.health.list()),
            Call::Watch => {
                let (message, _) = self.message(request, SHORT_BYTES).await?;
                self.health.watch(&message.bytes)?
            }
        })
    }

    /// The message of a call, and until when its caller waits.
    async fn message(
        &self,
        request: Request<Incoming>,
        max_bytes: usize,
    ) -> Result<(Whole, Option<Instant>), Status> {
        let timeout = timeout::of(request.headers())?;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let patience = self.settings.message_timeout;
        let patience = timeout.map_or(patience, |timeout| timeout.min(patience));
        let message = frame::read(request.into_body(), max_bytes, patience, &self.room).await?;
        Ok((message, deadline))
    }

    async fn decided(
        &self,
        request: Request<Incoming>,
        serving: Option<&Serving>,
    ) -> Result<Bytes, Status> {
        let (message, deadline) = self.message(request, self.settings.max_message_bytes).await?;
        let deciding = serving.and_then(Serving::decides);
        self.should_rate_limit(message, deadline, deciding).await
    }

    async fn should_rate_limit(
        &self,
        message: Whole,
        deadline: Option<Instant>,
        deciding: Option<Deciding>,
    ) -> Result<Bytes, Status> {
        let service = Arc::clone(&self.service);
        let mut decision = Box::pin(async move {
            let call = envoy::read(&message.bytes)
                .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
            // Never an answer with a code of its own: Envoy takes an unknown one for "passes".
            let decided = service.decide(&call).await;
            let decided =
                decided.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
            trace::decided(deciding, decided.decisions());
            let reply = frame::finish(envoy::write(&Answer::of(&decided), frame::HEAD_BYTES));
            Ok((reply, decided))
        });
        let Some(deadline) = deadline else { return decision.await.map(|(reply, _)| reply) };
        // A timer is set only if the decision does not come at once.
        if let Ok(decided) = tokio::time::timeout_at(deadline, &mut decision).await {
            return decided.map(|(reply, _)| reply);
        }
        let service = Arc::clone(&self.service);
        // What may have been asked of the store is heard to its end: only then it is known what to give back.
        tokio::spawn(async move {
            if let Ok((_, decided)) = decision.await {
                service.give_back(decided).await;
            }
        });
        Err(Status::new(Code::DeadlineExceeded, "not decided within the caller's grpc-timeout"))
    }
}

impl<S: Store + 'static, L: Store + 'static> Answers for Door<S, L> {
    type Body = Reply;

    async fn answer(&self, request: Request<Incoming>, _: &Caller) -> Response<Reply> {
        match unfit(&request) {
            Some(problem) => answer::problem(&problem),
            None => self.route(request).await.unwrap_or_else(Status::into_response),
        }
    }

    fn believes(&self, _: Peer) -> bool {
        false
    }
}

/// What keeps a request from being a call at all.
fn unfit<B>(request: &Request<B>) -> Option<Problem> {
    let media_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media_type = media_type.and_then(|text| text.split(|byte| *byte == b';').next());
    let (status, detail) = match media_type.map(<[u8]>::trim_ascii) {
        _ if request.version() < Version::HTTP_2 => (
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "this listener speaks gRPC over HTTP/2; for JSON ask the HTTP listener, POST /json",
        ),
        _ if request.method() != Method::POST => {
            (StatusCode::METHOD_NOT_ALLOWED, "gRPC calls are POST")
        }
        Some(b"application/grpc" | b"application/grpc+proto") => return None,
        _ => (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "this listener takes application/grpc; for JSON ask the HTTP listener, POST /json",
        ),
    };
    Some(Problem::new(status, detail))
}

impl<S, L> fmt::Debug for Door<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("settings", &self.settings).finish_non_exhaustive()
    }
}
