//! The gateway: a reverse proxy that asks the limiter before it passes a request on.
//!
//! Requests and answers go through piece by piece. What a request looks like when it is decided is
//! what the upstream gets: it is vetted once, at the beginning.

mod access;
mod address;
mod aftermath;
mod deadline;
mod failure;
mod forward;
mod headers;
mod health;
mod link;
mod outgoing;
mod passed;
mod patience;
mod progress;
mod queue;
mod request_id;
mod rereadable;
mod route;
mod server;
mod shelves;
mod trust;
mod tunnel;
mod upstream;
mod vet;
mod waiting;

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_LENGTH, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use tidegate_core::store::Store;
use tidegate_engine::{Decision, Limiter, NoLocal, Turn};
use tidegate_rules::{Door, Facts, Rule};
use tokio::task::JoinSet;

use crate::extract::{BadIdentity, Client};
use crate::identity::Extractors;
use crate::listen::{Answers, Caller};
use crate::problem::Problem;
use crate::respond::{self, HeaderSettings, Notice};
use crate::trace::{self, Asked, Serving, Tracer};
use crate::{Peer, Status, answer, method};
use access::Line;
use aftermath::Aftermath;
use forward::Destination;
use headers::Forwarding;
use outgoing::{BodyFault, Outgoing};
use request_id::{RequestIds, X_REQUEST_ID};
use route::Routes;
use tunnel::Wanted;
use waiting::WaitingRoom;

pub use access::{Access, AccessLog};
pub use address::{Address, BadAddress};
pub use forward::HostHeader;
pub use health::Health;
pub(crate) use link::connect;
pub use passed::GatewayBody;
pub use route::Route;
pub use server::Timeouts;
pub use trust::{BadTrust, Trust};
pub use upstream::Balance;

/// How often connections are looked at that nobody uses.
const TIDY_EVERY: Duration = Duration::from_secs(5);

const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

/// How the gateway behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How rate-limit headers are written.
    pub headers: HeaderSettings,
    /// The longest body of a request.
    pub max_body_bytes: u64,
    /// How long a client may take for the next piece of a body.
    pub body_timeout: Duration,
    /// The most requests that wait their turn at once.
    pub max_waiting: usize,
    /// How long requests have to finish after the stop.
    pub drain_timeout: Duration,
    /// How many threads connections stay on ([`Crew`](crate::listen::Crew)); one where they are moved between threads.
    pub threads: usize,
    /// Who hears what became of each request.
    pub access_log: Option<AccessLog>,
    /// Who tells what becomes of requests as traces.
    pub tracer: Option<Tracer>,
    /// Where requests go.
    pub routes: Vec<Route>,
    /// What the routes lead to.
    pub upstreams: Vec<UpstreamSettings>,
}

/// Servers that answer the same requests.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Where they are, and how much each takes compared with the others.
    pub servers: Vec<(Address, u32)>,
    /// Which of them gets the next request.
    pub balance: Balance,
    /// How long each may take.
    pub timeouts: Timeouts,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// What `Host` says to them.
    pub host: HostHeader,
    /// How they are asked whether they are well, if they are.
    pub health: Option<Health>,
}

/// What was decided of a request. What is large in it is boxed: it is handed on at every step.
enum Judged {
    Admitted(Admitted),
    /// It is admitted, and is to wait its turn.
    Queued(Box<Decision>, Turn, Client),
    /// The answer to it.
    Refused(Box<Response<GatewayBody>>),
}

/// What is left of a decision by which a request passes.
struct Admitted {
    client: Client,
    aftermath: Option<Box<Aftermath>>,
    notice: Option<Notice>,
}

/// A reverse proxy that asks a limiter.
pub struct Gateway<S, L = NoLocal> {
    limiter: Arc<Limiter<S, L>>,
    extractors: Extractors,
    headers: HeaderSettings,
    max_body_bytes: u64,
    body_timeout: Duration,
    request_ids: RequestIds,
    waiting_room: WaitingRoom,
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
            body_timeout: settings.body_timeout,
            request_ids: RequestIds::default(),
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
        }
    }

    /// Decides a request, by what is known of who asks.
    async fn judge(
        &self,
        head: &Parts,
        length: Option<u64>,
        caller: &Caller,
        line: Option<&mut Line>,
        serving: Option<&Serving>,
    ) -> Result<Judged, Problem> {
        let rules = self.limiter.rules();
        let extractor = self.extractors.of(&rules)?;
        let client = extractor.client(head, caller.peer);
        if let Some(line) = line {
            line.client(client.ip);
        }
        let mut facts = Facts::new();
        facts.set_door(Door::Gateway);
        extractor.tell(head, head.uri.path(), client, &mut facts)?;
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().of_request(values, length)
        };
        let deciding = serving.and_then(Serving::decides);
        let mut decision = pin!(self.limiter.decide_under(Arc::clone(&rules), &facts, cost)).await;
        trace::decided(deciding, slice::from_ref(&decision));
        if !decision.is_allowed() {
            let random = self.headers.draw(&decision, &facts);
            return Ok(Judged::Refused(Box::new(self.refuse(&decision, random, head))));
        }
        Ok(match decision.turn() {
            Some(turn) => Judged::Queued(Box::new(decision), turn, client),
            None => Judged::Admitted(self.admit(&mut decision, client)),
        })
    }

    fn admit(&self, decision: &mut Decision, client: Client) -> Admitted {
        let aftermath = Aftermath::of(&self.limiter, decision);
        Admitted { client, aftermath, notice: Notice::of(decision, &self.headers) }
    }

    /// Passes a request on, if it may pass.
    ///
    /// Here and around it, what a task carries about is kept small, and copied seldom: it is in no near cache
    /// any more when the next request of a connection comes.
    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    fn pass(
        &self,
        mut request: Request<Incoming>,
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
            let Admitted { client, aftermath, notice } = match judged {
                Judged::Admitted(admitted) => admitted,
                Judged::Refused(answer) => return Ok(*answer),
                Judged::Queued(decision, turn, client) => {
                    // What is rare is boxed for the same reason.
                    let waiting = self.waiting_room.wait(&self.limiter, *decision, turn);
                    self.admit(&mut Box::pin(waiting).await?, client)
                }
            };
            let forwarding = Forwarding {
                client: client.ip,
                peer: caller.peer.ip(),
                peer_text: caller.address_text().cloned(),
                peer_is_trusted: client.peer_is_trusted,
                tls: caller.tls,
                host,
            };
            headers::forward(&mut head.headers, &forwarding);
            let name = self.request_ids.name(&mut head.headers, forwarding.peer_is_trusted);
            let calling = serving.and_then(|serving| serving.calls(&mut head.headers));
            head.version = Version::HTTP_11;
            let counted = || aftermath.as_deref().map(Aftermath::received);
            let body = Outgoing::new(body, self.max_body_bytes, self.body_timeout, counted);
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
            let mut response = sent?;
            if let Some(aftermath) = aftermath {
                attach(aftermath, &mut response, caller);
            }
            response.headers_mut().insert(X_REQUEST_ID, name);
            if let Some(notice) = notice {
                notice.write(&self.headers, response.headers_mut());
            }
            Ok(response)
        }
    }

    fn destination(&self, host: Option<&HeaderValue>, path: &str) -> Result<&Destination, Problem> {
        let host = host.and_then(|host| host.to_str().ok());
        let found = self.routes.find(host, path);
        found.and_then(|at| self.destinations.get(at)).ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, "no route is for this host and path")
        })
    }

    fn refuse(&self, decision: &Decision, random: u64, head: &Parts) -> Response<GatewayBody> {
        let mut response = respond::refusal(decision, &head.headers, &self.headers, random);
        if self.headers.expose && head.headers.contains_key(ORIGIN) {
            // The upstream, which knows its origins, is not asked; a refusal is no secret.
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        }
        response.map(GatewayBody::Own)
    }
}

/// What a future gives that is ready when first polled.
fn at_once<T>(future: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(given) => given,
        Poll::Pending => {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the store lets nobody wait"))
        }
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
            let begin = |log| Box::new(Line::begin(log, &request, caller.peer.ip()));
            let mut line = self.access_log.as_ref().map(begin);
            let begin = |tracer: &Tracer| tracer.serve(Asked::of(Door::Gateway, &request, None));
            let serving = self.tracer.as_ref().map(begin);
            let passed = self.pass(request, caller, line.as_deref_mut(), serving.as_deref()).await;
            let mut response = passed.unwrap_or_else(|problem| answer::problem(&problem));
            if is_respelt_head {
                // To HTTP libraries `head` is not HEAD: the client would wait for a body of this length.
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

    fn believes(&self, peer: Peer) -> bool {
        let rules = self.limiter.rules();
        self.extractors.of(&rules).is_ok_and(|extractor| extractor.trusts(peer))
    }
}
