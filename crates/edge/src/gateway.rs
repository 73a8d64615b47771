//! The gateway: a reverse proxy that asks the limiter before it passes a request on.
//!
//! Requests and answers go through piece by piece. What a request looks like when it is decided is
//! what the upstream gets: it is vetted once, at the beginning.

mod access;
mod address;
mod aftermath;
mod claims;
mod deadline;
mod failure;
mod forward;
mod forwarded_bytes;
mod headers;
mod health;
mod judge;
mod link;
mod outgoing;
mod passed;
mod patience;
mod progress;
mod proxy_watch;
mod queue;
mod request_id;
mod rereadable;
mod route;
mod server;
mod settings;
mod shelves;
mod trust;
mod tunnel;
mod upstream;
mod vet;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use tidegate_core::store::Store;
use tidegate_engine::{Decision, Limiter, NoLocal};
use tidegate_rules::Door;
use tokio::task::JoinSet;

use crate::extract::BadIdentity;
use crate::identity::Extractors;
use crate::listen::{Answers, Caller};
use crate::problem::Problem;
use crate::respond::HeaderSettings;
use crate::trace::{Asked, Serving, Tracer};
use crate::{Peer, Status, answer, method};
use access::Line;
use aftermath::Aftermath;
use forward::{Destination, Unanswered};
use headers::Forwarding;
use judge::{Admitted, Asker, Judged, at_once};
use outgoing::{BodyFault, Outgoing};
use proxy_watch::ProxyWatch;
use request_id::{RequestIds, X_REQUEST_ID};
use route::Routes;
use tunnel::Wanted;
use waiting::WaitingRoom;

pub use access::{Access, AccessLog};
pub use address::{Address, BadAddress};
pub use claims::{BadPassedHeader, PassedHeader};
pub use forward::HostHeader;
pub use health::Health;
pub(crate) use link::connect;
pub use passed::GatewayBody;
pub use route::Route;
pub use server::Timeouts;
pub use settings::{Settings, UpstreamSettings};
pub use trust::{BadTrust, Trust};
pub use upstream::Balance;

/// How often connections are looked at that nobody uses.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// A reverse proxy that asks a limiter.
pub struct Gateway<S, L = NoLocal> {
    limiter: Arc<Limiter<S, L>>,
    extractors: Extractors,
    headers: HeaderSettings,
    max_body_bytes: u64,
    passed_headers: Vec<PassedHeader>,
    refund_unreachable: bool,
    body_timeout: Duration,
    request_ids: RequestIds,
    waiting_room: WaitingRoom,
    proxy_watch: ProxyWatch,
    access_log: Option<AccessLog>,
    tracer: Option<Tracer>,
    routes: Routes,
    destinations: Vec<Destination>,
}

impl<S: Store + 'static, L: Store + 'static> Gateway<S, L> {
    /// A gateway that asks a limiter.
    ///
    /// # Errors
    /// When the rules in force cannot say who asks.
    pub fn new(
        limiter: Arc<Limiter<S, L>>,
        status: Arc<Status>,
        settings: Settings,
    ) -> Result<Self, BadIdentity> {
        Ok(Self {
            extractors: Extractors::starting_with(&limiter.rules())?,
            limiter,
            headers: settings.headers,
            max_body_bytes: settings.max_body_bytes,
            passed_headers: settings.passed_headers,
            refund_unreachable: settings.refund_unreachable,
            body_timeout: settings.body_timeout,
            request_ids: RequestIds::default(),
            proxy_watch: ProxyWatch::new(Arc::clone(&status)),
            waiting_room: WaitingRoom::new(settings.max_waiting, status, settings.drain_timeout),
            access_log: settings.access_log,
            tracer: settings.tracer,
            routes: Routes::new(settings.routes),
            destinations: settings
                .upstreams
                .into_iter()
                .map(|upstream| Destination::new(upstream, settings.threads))
                .collect(),
        })
    }

    /// Asks servers whether they are well and closes connections that nobody needs, for ever.
    pub async fn keep(&self) {
        let servers = || self.destinations.iter().flat_map(Destination::servers);
        let mut watches = JoinSet::new();
        for (server, health) in servers() {
            if let Some(health) = health {
                watches.spawn(health::watch(Arc::clone(server), health.clone()));
            }
        }
        loop {
            tokio::time::sleep(TIDY_EVERY).await;
            servers().for_each(|(server, _)| server.tidy());
            self.proxy_watch.take_sample(self.limiter.rules().serial());
        }
    }

    /// Passes a request on, if it may pass.
    ///
    /// Here and around it, what a task carries about is kept small, and copied seldom: it is in no near cache
    /// any more when the next request of a connection comes.
    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    fn pass(
        &self,
        mut request: Request<Incoming>,
        id: &HeaderValue,
        caller: &Caller,
        line: Option<&mut Line>,
        serving: Option<&Serving>,
    ) -> impl Future<Output = Result<Response<GatewayBody>, Problem>> + Send {
        async move {
            let wanted = Wanted::by(&mut request);
            let (mut head, body) = request.into_parts();
            let host = vet::vet(&mut head)?;
            if body.size_hint().lower() > self.max_body_bytes {
                return Err(BodyFault::TooLarge.problem());
            }
            let destination = self.destination(host.as_ref(), head.uri.path())?;
            let length = body.size_hint().exact();
            // What is decided in memory is decided at once, so that nothing of it is carried about.
            let judged = match S::IMMEDIATE {
                true => at_once(self.judge(&head, length, caller, line, serving))?,
                false => Box::pin(self.judge(&head, length, caller, line, serving)).await?,
            };
            let Admitted { asker, aftermath, notice, charged } = match judged {
                Judged::Admitted(admitted) => admitted,
                Judged::Refused(answer) => return Ok(*answer),
                Judged::Queued(decision, turn, asker) => {
                    // What is rare is boxed for the same reason.
                    let waiting = self.waiting_room.wait(&self.limiter, *decision, turn);
                    self.admit(Box::pin(waiting).await?, asker)
                }
            };
            self.forward_headers(&mut head.headers, host, &asker, caller);
            head.headers.insert(X_REQUEST_ID, id.clone());
            let calling = serving.and_then(|serving| serving.calls(&mut head.headers));
            head.version = Version::HTTP_11;
            let counted = || aftermath.as_deref().map(Aftermath::forwarded);
            let (most, patience) = (self.max_body_bytes, self.body_timeout);
            let body = Outgoing::new(body, most, patience, asker.read, counted);
            let request = Request::from_parts(head, body);
            let sent = match wanted {
                Some(wanted) => Box::pin(destination.change(request, wanted, caller)).await,
                None => destination.send(request).await,
            };
            if let Some(calling) = calling {
                let answer = sent.as_ref().ok();
                let server = answer.and_then(|answer| answer.body().server());
                calling.answered(server, answer.map(Response::status));
            }
            let mut response = match sent {
                Ok(mut response) => {
                    if let Some(aftermath) = aftermath {
                        attach(aftermath, &mut response, caller);
                    }
                    response
                }
                Err(Unanswered { problem, unreachable }) => {
                    if let Some(charged) = charged.filter(|_| unreachable) {
                        Box::pin(self.give_back(*charged, aftermath)).await;
                    }
                    answer::problem(&problem)
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
        asker: &Asker,
        caller: &Caller,
    ) {
        let forwarding = Forwarding {
            client: asker.client.ip,
            peer: caller.peer.ip(),
            peer_text: caller.address_text().cloned(),
            peer_is_trusted: asker.client.peer_is_trusted,
            tls: caller.tls,
            host,
            read: &asker.read,
            passed: &self.passed_headers,
        };
        headers::forward(headers, &forwarding);
    }

    /// Gives back what a request was charged of which nothing was sent. A task does it, also when
    /// the client goes away meanwhile.
    async fn give_back(&self, charged: Decision, aftermath: Option<Box<Aftermath>>) {
        let limiter = Arc::clone(&self.limiter);
        let given_back = tokio::spawn(async move {
            limiter.give_back(charged).await;
            if let Some(aftermath) = aftermath {
                aftermath.give_back().await;
            }
        });
        if let Err(error) = given_back.await {
            tracing::error!(%error, "a charge was not given back");
        }
    }

    fn destination(&self, host: Option<&HeaderValue>, path: &str) -> Result<&Destination, Problem> {
        let host = host.and_then(|host| host.to_str().ok());
        let found = self.routes.find(host, path);
        found.and_then(|at| self.destinations.get(at)).ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, "no route is for this host and path")
        })
    }
}

/// What is left to do is done when the answer has gone out, or the tunnel that it opens has ended.
fn attach(mut aftermath: Box<Aftermath>, response: &mut Response<GatewayBody>, caller: &Caller) {
    aftermath.answered(response.headers());
    match response.body_mut() {
        GatewayBody::Passed(passed) => passed.aftermath = Some(aftermath),
        GatewayBody::Own(_) => caller.after_tunnel(aftermath),
    }
}

impl<S: Store + 'static, L: Store + 'static> Answers for Gateway<S, L> {
    type Body = GatewayBody;

    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    fn answer(
        &self,
        mut request: Request<Incoming>,
        caller: &Caller,
    ) -> impl Future<Output = Response<GatewayBody>> + Send {
        async move {
            let respelt = method::respell(request.method_mut());
            let is_respelt_head = respelt && *request.method() == Method::HEAD;
            let id = self.request_ids.name(request.headers(), || self.believes(caller.peer));
            let begin = |log| Box::new(Line::begin(log, &request, caller.peer.ip()));
            let mut line = self.access_log.as_ref().map(begin);
            let begin = |tracer: &Tracer| tracer.serve(Asked::of(Door::Gateway, &request, None));
            let serving = self.tracer.as_ref().map(begin);
            let passed =
                self.pass(request, &id, caller, line.as_deref_mut(), serving.as_deref()).await;
            let mut response = passed.unwrap_or_else(|problem| answer::problem(&problem));
            response.headers_mut().insert(X_REQUEST_ID, id);
            if is_respelt_head {
                // To HTTP libraries `head` is not HEAD: a client would wait for a body of this
                // length.
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            if let Some(mut line) = line {
                line.answered(&response);
                response.body_mut().tell(line);
            }
            if let Some(mut serving) = serving {
                serving.answered(response.status());
                response.body_mut().end(serving);
            }
            response
        }
    }

    fn refuse(&self, problem: &Problem) -> Response<GatewayBody> {
        let mut response = answer::problem(problem);
        response.headers_mut().insert(X_REQUEST_ID, self.request_ids.new_name());
        response
    }

    fn believes(&self, peer: Peer) -> bool {
        let rules = self.limiter.rules();
        self.extractors.of(&rules).is_ok_and(|extractor| extractor.trusts(peer))
    }
}
