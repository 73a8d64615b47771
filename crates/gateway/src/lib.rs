//! The gateway: a reverse proxy that asks the limiter before it passes a request on.
//!
//! Requests and answers go through piece by piece. What a request looks like when it is decided is
//! what the upstream gets: it is vetted once, at the beginning.

mod access_log;
mod admission;
mod completion;
mod delay_queue;
mod forward;
mod forwarded_bytes;
mod header_policy;
mod headers;
mod health_check;
mod idle_pool;
mod idle_timeout;
mod normalize;
mod pacing_queue;
mod proxy_detector;
mod replay_body;
mod request_body;
mod request_id;
mod response_body;
mod response_deadline;
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
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, Limiter, NoFallback};
use tidegate_rules::ApiKind;
use tokio::task::JoinSet;

use access_log::AccessLogEntry;
use admission::{AdmissionOutcome, AdmittedRequest, IdentifiedClient, poll_immediate};
use completion::RequestCompletion;
use delay_queue::DelayQueue;
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
use tidegate_response::HeaderSettings;
use tidegate_telemetry::trace::{RequestAttributes, ServerSpan, Tracer};
use tidegate_web::problem::HttpError;
use tidegate_web::{Peer, ProcessStatus, http_response};
use tunnel::UpgradeRequest;

pub use access_log::{AccessLog, AccessRecord};
pub use forward::HostHeader;
pub use header_policy::{PassthroughHeader, PassthroughHeaderError};
pub use health_check::UpstreamHealthCheck;
pub use response_body::GatewayBody;
pub use route::UpstreamRoute;
pub use settings::{Settings, UpstreamSettings};
pub use upstream::Balance;
pub use upstream_server::UpstreamTimeouts;

/// How often connections are looked at that nobody uses.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(5);

/// A reverse proxy that asks a limiter.
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
    /// A gateway that asks a limiter.
    ///
    /// # Errors
    /// When the rules in force cannot say who asks.
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

    /// Asks servers whether they are well and closes connections that nobody needs, for ever.
    pub async fn run_maintenance(&self) {
        let servers = || self.targets.iter().flat_map(RouteTarget::servers);
        let mut watches = JoinSet::new();
        for (server, health) in servers() {
            if let Some(health) = health {
                watches.spawn(health_check::run_health_checks(Arc::clone(server), health.clone()));
            }
        }
        loop {
            tokio::time::sleep(MAINTENANCE_INTERVAL).await;
            servers().for_each(|(server, _)| server.evict_idle());
            self.proxy_detector.start_sample(self.limiter.rules().serial());
        }
    }

    /// Passes a request on, if it may pass.
    ///
    /// Here and around it, what a task carries about is kept small, and copied seldom: it is in no near cache
    /// any more when the next request of a connection comes.
    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    fn proxy_request(
        &self,
        mut request: Request<Incoming>,
        id: &HeaderValue,
        caller: &ConnectionInfo,
        line: Option<&mut AccessLogEntry>,
        serving: Option<&ServerSpan>,
    ) -> impl Future<Output = Result<Response<GatewayBody>, HttpError>> + Send {
        async move {
            let wanted = UpgradeRequest::from_request(&mut request);
            let (mut head, body) = request.into_parts();
            let host = normalize::normalize_head(&mut head)?;
            if body.size_hint().lower() > self.max_body_bytes {
                return Err(RequestBodyError::TooLarge.to_http_error());
            }
            let destination = self.find_target(host.as_ref(), head.uri.path())?;
            let length = body.size_hint().exact();
            // What is decided in memory is decided at once, so that nothing of it is carried about.
            let judged = match S::IMMEDIATE {
                true => poll_immediate(self.decide_request(&head, length, caller, line, serving))?,
                false => {
                    Box::pin(self.decide_request(&head, length, caller, line, serving)).await?
                }
            };
            let AdmittedRequest {
                identity: asker,
                completion: aftermath,
                pending_headers: notice,
                refundable: charged,
            } = match judged {
                AdmissionOutcome::Admitted(admitted) => admitted,
                AdmissionOutcome::Refused(answer) => return Ok(*answer),
                AdmissionOutcome::Queued(decision, turn, asker) => {
                    // What is rare is boxed for the same reason.
                    let waiting = self.delay_queue.wait(&self.limiter, *decision, turn);
                    self.admit(Box::pin(waiting).await?, asker)
                }
            };
            self.forward_headers(&mut head.headers, host, &asker, caller);
            head.headers.insert(X_REQUEST_ID, id.clone());
            let calling = serving.and_then(|serving| serving.start_upstream(&mut head.headers));
            head.version = Version::HTTP_11;
            let counted = || aftermath.as_deref().map(RequestCompletion::forwarded_bytes);
            let (most, patience) = (self.max_body_bytes, self.body_timeout);
            let body = UpstreamRequestBody::new(body, most, patience, asker.rule_headers, counted);
            let request = Request::from_parts(head, body);
            let sent = match wanted {
                Some(wanted) => Box::pin(destination.send_upgrade(request, wanted, caller)).await,
                None => destination.send(request).await,
            };
            if let Some(calling) = calling {
                let answer = sent.as_ref().ok();
                let server = answer.and_then(|answer| answer.body().server());
                calling.finish(server, answer.map(Response::status));
            }
            let mut response = match sent {
                Ok(mut response) => {
                    if let Some(aftermath) = aftermath {
                        attach_completion(aftermath, &mut response, caller);
                    }
                    response
                }
                Err(ForwardError { error: problem, unreachable }) => {
                    if let Some(charged) = charged.filter(|_| unreachable) {
                        Box::pin(self.refund(*charged, aftermath)).await;
                    }
                    http_response::problem(&problem)
                }
            };
            if let Some(notice) = notice {
                notice.write(&self.headers, response.headers_mut());
            }
            Ok(response)
        }
    }

    /// Makes the headers of a request those that go on to the upstream.
    fn forward_headers(
        &self,
        headers: &mut HeaderMap,
        host: Option<HeaderValue>,
        asker: &IdentifiedClient,
        caller: &ConnectionInfo,
    ) {
        let forwarding = ForwardingContext {
            client: asker.client.ip,
            peer: caller.peer.ip(),
            peer_text: caller.address_text().cloned(),
            peer_is_trusted: asker.client.peer_is_trusted,
            tls: caller.tls,
            host,
            rule_headers: &asker.rule_headers,
            passthrough: &self.passthrough_headers,
        };
        headers::rewrite_request_headers(headers, &forwarding);
    }

    /// Gives back what a request was charged of which nothing was sent. A task does it, also when
    /// the client goes away meanwhile.
    async fn refund(&self, charged: Decision, aftermath: Option<Box<RequestCompletion>>) {
        let limiter = Arc::clone(&self.limiter);
        let given_back = tokio::spawn(async move {
            limiter.refund_decision(charged).await;
            if let Some(aftermath) = aftermath {
                aftermath.refund().await;
            }
        });
        if let Err(error) = given_back.await {
            tracing::error!(%error, "a charge was not given back");
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
            HttpError::new(StatusCode::NOT_FOUND, "no route is for this host and path")
        })
    }
}

/// What is left to do is done when the answer has gone out, or the tunnel that it opens has ended.
fn attach_completion(
    mut aftermath: Box<RequestCompletion>,
    response: &mut Response<GatewayBody>,
    caller: &ConnectionInfo,
) {
    aftermath.record_response_headers(response.headers());
    match response.body_mut() {
        GatewayBody::Proxied(passed) => passed.completion = Some(aftermath),
        GatewayBody::Local(_) => caller.hold_until_tunnel_ends(aftermath),
    }
}

impl<S: Store + 'static, L: Store + 'static> HttpHandler for Gateway<S, L> {
    type Body = GatewayBody;

    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    fn handle(
        &self,
        mut request: Request<Incoming>,
        caller: &ConnectionInfo,
    ) -> impl Future<Output = Response<GatewayBody>> + Send {
        async move {
            let respelt = method::normalize(request.method_mut());
            let is_respelt_head = respelt && *request.method() == Method::HEAD;
            let id =
                self.request_ids.assign_id(request.headers(), || self.trusts_peer(caller.peer));
            let begin = |log| {
                let peer = caller.peer.ip().map(|ip| self.limiter.rules().client_name(ip));
                Box::new(AccessLogEntry::start(log, &request, peer))
            };
            let mut line = self.access_log.as_ref().map(begin);
            let begin = |tracer: &Tracer| {
                tracer.start_server_span(RequestAttributes::from_request(
                    ApiKind::Gateway,
                    &request,
                    None,
                ))
            };
            let serving = self.tracer.as_ref().map(begin);
            let passed = self
                .proxy_request(request, &id, caller, line.as_deref_mut(), serving.as_deref())
                .await;
            let mut response = passed.unwrap_or_else(|problem| http_response::problem(&problem));
            response.headers_mut().insert(X_REQUEST_ID, id);
            if is_respelt_head {
                // To HTTP libraries `head` is not HEAD: a client would wait for a body of this
                // length.
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            if let Some(mut line) = line {
                line.record_response(&response);
                response.body_mut().attach_access_entry(line);
            }
            if let Some(mut serving) = serving {
                serving.set_http_status(response.status());
                response.body_mut().attach_span(serving);
            }
            response
        }
    }

    fn reject(&self, problem: &HttpError) -> Response<GatewayBody> {
        let mut response = http_response::problem(problem);
        response.headers_mut().insert(X_REQUEST_ID, self.request_ids.new_id());
        response
    }

    fn trusts_peer(&self, peer: Peer) -> bool {
        let rules = self.limiter.rules();
        self.extractors.get_or_create(&rules).is_ok_and(|extractor| extractor.trusts(peer))
    }
}
