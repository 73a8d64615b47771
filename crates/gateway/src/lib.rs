//! The gateway: a reverse proxy that checks each request against the rate limits before it forwards
//! the request.
//!
//! Requests and responses are streamed. A request is normalized once, at the start, so the rules
//! and the upstream see the same request.

mod access_log;
mod admission;
mod body_idle_timeout;
mod connection_pool;
mod consistent_hash;
mod forward;
mod header_policy;
mod headers;
mod health_check;
mod normalize;
mod proxy_detector;
mod request_body;
mod request_id;
mod response_body;
mod response_deadline;
mod retry_buffer;
mod route;
mod settings;
mod tunnel;
mod upload_progress;
mod upstream;
mod upstream_connection;
mod upstream_error;
mod upstream_server;

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, Limiter, NoFallback};
use tidegate_rules::ApiKind;
use tokio::task::JoinSet;

use access_log::AccessLogEntry;
use admission::{AdmissionOutcome, AdmittedRequest, IdentifiedClient, poll_immediate};
use forward::{ForwardError, RouteTarget};
use headers::ForwardingContext;
use proxy_detector::UntrustedProxyDetector;
use request_body::{RequestBodyError, UpstreamRequestBody};
use request_id::{RequestIdGenerator, X_REQUEST_ID};
use route::RouteTable;
use tidegate_identity::IdentityConfigError;
use tidegate_identity::extractor_cache::ExtractorCache;
use tidegate_identity::method;
use tidegate_net::listen::{ConnectionInfo, HttpHandler};
use tidegate_response::{DelayQueue, HeaderSettings, RequestCompletion};
use tidegate_telemetry::trace::{RequestAttributes, ServerSpan, Tracer};
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, ProcessStatus, http_response};
use tunnel::UpgradeRequest;

pub use access_log::{AccessLog, AccessRecord};
pub use consistent_hash::{HashInput, RoutingKey, rank_servers};
pub use forward::HostHeader;
pub use header_policy::{PassthroughHeader, PassthroughHeaderError};
pub use health_check::UpstreamHealthCheck;
pub use response_body::GatewayBody;
pub use route::{UpstreamRoute, find_upstream};
pub use settings::{Settings, UpstreamSettings};
pub use upstream::Balance;
pub use upstream_server::UpstreamTimeouts;

/// The interval between maintenance runs, which close idle connections.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// A reverse proxy with a rate limiter.
pub struct Gateway<S, L = NoFallback> {
    limiter: Arc<Limiter<S, L>>,
    extractors: ExtractorCache,
    headers: HeaderSettings,
    max_body_bytes: u64,
    passthrough_headers: Vec<PassthroughHeader>,
    refund_unreachable: bool,
    body_timeout: Duration,
    request_ids: RequestIdGenerator,
    delay_queue: DelayQueue,
    proxy_detector: UntrustedProxyDetector,
    access_log: Option<AccessLog>,
    tracer: Option<Tracer>,
    routes: RouteTable,
    targets: Vec<RouteTarget>,
}

impl<S: Store + 'static, L: Store + 'static> Gateway<S, L> {
    /// Creates a gateway that enforces the limiter's rules.
    ///
    /// # Errors
    /// If the `identity` section of the active rules cannot be used.
    pub fn new(
        limiter: Arc<Limiter<S, L>>,
        status: Arc<ProcessStatus>,
        settings: Settings,
    ) -> Result<Self, IdentityConfigError> {
        Ok(Self {
            extractors: ExtractorCache::with_rules(&limiter.rules())?,
            limiter,
            headers: settings.headers,
            max_body_bytes: settings.max_body_bytes,
            passthrough_headers: settings.passthrough_headers,
            refund_unreachable: settings.refund_unreachable,
            body_timeout: settings.body_timeout,
            request_ids: RequestIdGenerator::default(),
            proxy_detector: UntrustedProxyDetector::new(Arc::clone(&status)),
            delay_queue: DelayQueue::new(settings.max_waiting, status, settings.drain_timeout),
            access_log: settings.access_log,
            tracer: settings.tracer,
            routes: RouteTable::new(settings.routes),
            targets: settings
                .upstreams
                .into_iter()
                .map(|upstream| RouteTarget::new(upstream, settings.threads))
                .collect(),
        })
    }

    /// Runs health checks and closes expired idle connections until dropped.
    pub async fn run_maintenance(&self) {
        let servers = || self.targets.iter().flat_map(RouteTarget::servers);
        let mut health_checks = JoinSet::new();
        for (server, health) in servers() {
            if let Some(health) = health {
                health_checks
                    .spawn(health_check::run_health_checks(Arc::clone(server), health.clone()));
            }
        }
        loop {
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
            servers().for_each(|(server, _)| server.evict_idle());
            self.proxy_detector.start_sample(self.limiter.rules().serial());
        }
    }

    /// Forwards a request if the limiter admits it.
    ///
    /// The future is kept small and is moved rarely: by the next request on the same connection,
    /// its memory has left the nearest CPU caches.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies its arguments once more")]
    fn proxy_request(
        &self,
        mut request: Request<Incoming>,
        id: &HeaderValue,
        connection: &ConnectionInfo,
        log_entry: Option<&mut AccessLogEntry>,
        span: Option<&ServerSpan>,
    ) -> impl Future<Output = Result<Response<GatewayBody>, HttpError>> + Send {
        async move {
            let upgrade = UpgradeRequest::from_request(&mut request);
            let (mut head, body) = request.into_parts();
            let host = normalize::normalize_head(&mut head)?;
            if body.size_hint().lower() > self.max_body_bytes {
                return Err(RequestBodyError::TooLarge.to_http_error());
            }
            let target = self.find_target(host.as_ref(), head.uri.path())?;
            let length = body.size_hint().exact();
            // An in-memory store decides immediately, so the decision needs no state in this
            // future.
            let outcome = match S::IMMEDIATE {
                true => poll_immediate(
                    self.decide_request(&head, target, length, connection, log_entry, span),
                )?,
                false => {
                    Box::pin(
                        self.decide_request(&head, target, length, connection, log_entry, span),
                    )
                    .await?
                }
            };
            let AdmittedRequest { identity: identified, completion, pending_headers, refundable } =
                match outcome {
                    AdmissionOutcome::Admitted(admitted) => admitted,
                    AdmissionOutcome::Refused(response) => return Ok(*response),
                    AdmissionOutcome::Queued(decision, delay, identified) => {
                        // Rare, so it is boxed to keep this future small.
                        let waiting = self.delay_queue.wait(&self.limiter, *decision, delay);
                        self.admit(Box::pin(waiting).await?, identified)
                    }
                };
            self.forward_headers(&mut head.headers, host, &identified, connection);
            head.headers.insert(X_REQUEST_ID, id.clone());
            let routing_key = identified.routing_key;
            let upstream_span = span.and_then(|span| span.start_upstream(&mut head.headers));
            head.version = Version::HTTP_11;
            let counted = || completion.as_deref().map(RequestCompletion::forwarded_bytes);
            let (max_bytes, idle_timeout) = (self.max_body_bytes, self.body_timeout);
            let body = UpstreamRequestBody::new(
                body,
                max_bytes,
                idle_timeout,
                identified.rule_headers,
                counted,
            );
            let request = Request::from_parts(head, body);
            let sent = match upgrade {
                Some(upgrade) => {
                    Box::pin(target.send_upgrade(request, upgrade, routing_key, connection)).await
                }
                None => target.send(request, routing_key).await,
            };
            if let Some(upstream_span) = upstream_span {
                let response = sent.as_ref().ok();
                let server = response.and_then(|response| response.body().server());
                upstream_span.finish(server, response.map(Response::status));
            }
            let mut response = match sent {
                Ok(mut response) => {
                    if let Some(completion) = completion {
                        attach_completion(completion, &mut response, connection);
                    }
                    response
                }
                Err(ForwardError { error: problem, unreachable }) => {
                    if let Some(refundable) = refundable.filter(|_| unreachable) {
                        Box::pin(self.refund(*refundable, completion)).await;
                    }
                    http_response::problem(&problem)
                }
            };
            if let Some(pending_headers) = pending_headers {
                pending_headers.write(&self.headers, response.headers_mut());
            }
            Ok(response)
        }
    }

    /// Turns the headers of a client's request into those of the upstream request.
    fn forward_headers(
        &self,
        headers: &mut HeaderMap,
        host: Option<HeaderValue>,
        identified: &IdentifiedClient,
        connection: &ConnectionInfo,
    ) {
        let forwarding = ForwardingContext {
            client: identified.client.ip,
            peer: connection.peer.ip(),
            peer_text: connection.address_text().cloned(),
            peer_is_trusted: identified.client.peer_is_trusted,
            tls: connection.tls,
            host,
            rule_headers: &identified.rule_headers,
            passthrough: &self.passthrough_headers,
        };
        headers::rewrite_request_headers(headers, &forwarding);
    }

    /// Refunds the charges of a request of which nothing was sent. Runs in a task, so it completes
    /// even if the client disconnects.
    async fn refund(&self, refundable: Decision, completion: Option<Box<RequestCompletion>>) {
        let limiter = Arc::clone(&self.limiter);
        let refunded = tokio::spawn(async move {
            limiter.refund_decision(refundable).await;
            if let Some(completion) = completion {
                completion.refund().await;
            }
        });
        if let Err(error) = refunded.await {
            tracing::error!(%error, "failed to refund a charge");
        }
    }

    fn find_target(
        &self,
        host: Option<&HeaderValue>,
        path: &str,
    ) -> Result<&RouteTarget, HttpError> {
        let host = host.and_then(|host| host.to_str().ok());
        let found = self.routes.find(host, path);
        found.and_then(|at| self.targets.get(at)).ok_or_else(|| {
            HttpError::new(StatusCode::NOT_FOUND, "no route matches this host and path")
        })
    }
}

/// Completes the request when the response has been sent, or when the tunnel that it opens ends.
fn attach_completion(
    mut completion: Box<RequestCompletion>,
    response: &mut Response<GatewayBody>,
    connection: &ConnectionInfo,
) {
    completion.record_response_headers(response.headers());
    match response.body_mut() {
        GatewayBody::Proxied(proxied) => proxied.completion = Some(completion),
        GatewayBody::Local(_) => connection.hold_until_tunnel_ends(completion),
    }
}

impl<S: Store + 'static, L: Store + 'static> HttpHandler for Gateway<S, L> {
    type Body = GatewayBody;

    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies its arguments once more")]
    fn handle(
        &self,
        mut request: Request<Incoming>,
        connection: &ConnectionInfo,
    ) -> impl Future<Output = Response<GatewayBody>> + Send {
        async move {
            let normalized = method::normalize(request.method_mut());
            let is_normalized_head = normalized && *request.method() == Method::HEAD;
            let id =
                self.request_ids.assign_id(request.headers(), || self.trusts_peer(connection.peer));
            let begin = |log| {
                let peer = connection.peer.ip().map(|ip| self.limiter.rules().client_name(ip));
                Box::new(AccessLogEntry::start(log, &request, peer))
            };
            let mut log_entry = self.access_log.as_ref().map(begin);
            let begin = |tracer: &Tracer| {
                tracer.start_server_span(RequestAttributes::from_request(
                    ApiKind::Gateway,
                    &request,
                    None,
                ))
            };
            let span = self.tracer.as_ref().map(begin);
            let result = self
                .proxy_request(request, &id, connection, log_entry.as_deref_mut(), span.as_deref())
                .await;
            let mut response = result.unwrap_or_else(|problem| http_response::problem(&problem));
            response.headers_mut().insert(X_REQUEST_ID, id);
            if is_normalized_head {
                // HTTP libraries do not treat `head` as HEAD: a client would wait for a body of
                // this length.
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            if let Some(mut log_entry) = log_entry {
                log_entry.record_response(&response);
                response.body_mut().attach_access_entry(log_entry);
            }
            if let Some(mut span) = span {
                span.set_http_status(response.status());
                response.body_mut().attach_span(span);
            }
            response
        }
    }

    fn reject(&self, problem: &HttpError) -> Response<GatewayBody> {
        let mut response = http_response::problem(problem);
        response.headers_mut().insert(X_REQUEST_ID, self.request_ids.new_id());
        response
    }

    fn new_request_id(&self) -> Option<(HeaderName, HeaderValue)> {
        Some((X_REQUEST_ID, self.request_ids.new_id()))
    }

    fn trusts_peer(&self, peer: Peer) -> bool {
        let rules = self.limiter.rules();
        self.extractors.get_or_create(&rules).is_ok_and(|extractor| extractor.trusts(peer))
    }
}
