//! Sends a request on to the upstream that its route leads to, and takes the answer back.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::failure::Failure;
use super::health::{self, Health};
use super::link::Http1;
use super::outgoing::Outgoing;
use super::passed::{GatewayBody, Passed};
use super::server::{Answered, InFlight, Server};
use super::tunnel::{self, Wanted};
use super::upstream::Upstream;
use super::{UpstreamSettings, headers};
use crate::listen::Caller;
use crate::problem::Problem;

/// How often a request is sent at most; again only where surely nothing of it was.
const MAX_TRIES: usize = 3;

/// What `Host` says to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// What the client said.
    #[default]
    Client,
    /// The server's own name.
    Server,
}

/// Why a request was not answered.
pub(super) struct Unanswered {
    pub(super) problem: Problem,
    /// Whether no server could be reached, so that nothing of the request was sent.
    pub(super) unreachable: bool,
}

/// An upstream with what is said to it.
pub(super) struct Destination {
    upstream: Upstream,
    host: HostHeader,
    health: Option<Health>,
}

impl Destination {
    pub(super) fn new(settings: UpstreamSettings, threads: usize) -> Self {
        let UpstreamSettings { servers, balance, timeouts, trust, host, health } = settings;
        let servers = servers.into_iter().map(|(address, weight)| {
            Arc::new(Server::new(address, weight, timeouts, trust.clone(), threads))
        });
        Self { upstream: Upstream::new(servers.collect(), balance), host, health }
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = (&Arc<Server>, Option<&Health>)> {
        self.upstream.servers.iter().map(|server| (server, self.health.as_ref()))
    }

    /// Sends a request to the server whose turn it is, and again or to another if surely nothing was
    /// sent: then the request is still there.
    #[expect(clippy::manual_async_fn, reason = "what an `async fn` is given is copied once more")]
    pub(super) fn send(
        &self,
        request: Request<Outgoing>,
    ) -> impl Future<Output = Result<Response<GatewayBody>, Unanswered>> + Send {
        async move {
            let mut request = Some(request);
            let mut unreachable = true;
            let mut tried: SmallVec<[&Arc<Server>; MAX_TRIES]> = SmallVec::new();
            for tries in 1.. {
                let Some(server) = self.upstream.choose(&tried) else { break };
                let in_flight = server.occupy();
                request.iter_mut().for_each(|request| self.address_to(request, server));
                let why = match server.send(&mut request).await {
                    Ok(answered) => return passed(answered, in_flight),
                    Err(why) => why,
                };
                if why.is_connecting() {
                    tried.push(server);
                    health::unreachable(server, self.health.is_some());
                } else {
                    unreachable = false;
                }
                let last = tries == MAX_TRIES || tried.len() == self.upstream.servers.len();
                if last || request.is_none() {
                    return Err(Unanswered { problem: why.problem(server), unreachable });
                }
            }
            Err(Unanswered { problem: no_server(), unreachable })
        }
    }

    /// Sends a request that wants to change the protocol of its connection.
    pub(super) async fn change(
        &self,
        mut request: Request<Outgoing>,
        wanted: Wanted,
        caller: &Caller,
    ) -> Result<Response<GatewayBody>, Unanswered> {
        let unreachable = |problem| Unanswered { problem, unreachable: true };
        let (server, link) = self.dial().await.map_err(unreachable)?;
        let in_flight = server.occupy();
        self.address_to(&mut request, server);
        let sent = wanted.send(server, link, request).await;
        let (response, tunnel) = sent.map_err(|why| reached(&why, server))?;
        sensible(&response, true).map_err(|why| reached(&why, server))?;
        Ok(changed(response, tunnel, in_flight, caller))
    }

    /// A connection to the server whose turn it is, or to the next that is there.
    async fn dial(&self) -> Result<(&Arc<Server>, Http1), Problem> {
        let mut tried: SmallVec<[&Arc<Server>; MAX_TRIES]> = SmallVec::new();
        loop {
            let server = self.upstream.choose(&tried).ok_or_else(no_server)?;
            let why = match tunnel::dial(server).await {
                Ok(link) => return Ok((server, link)),
                Err(why) => why,
            };
            if why.is_connecting() {
                tried.push(server);
                health::unreachable(server, self.health.is_some());
            }
            let most = MAX_TRIES.min(self.upstream.servers.len());
            if !why.is_connecting() || tried.len() == most {
                return Err(why.problem(server));
            }
        }
    }

    /// Says to whom a request is.
    fn address_to(&self, request: &mut Request<Outgoing>, server: &Server) {
        let headers = request.headers_mut();
        if self.host == HostHeader::Server || !headers.contains_key(HOST) {
            headers.insert(HOST, HeaderValue::clone(server.host()));
        }
    }
}

/// An upstream's answer on its way to the client.
fn passed(answered: Answered, in_flight: InFlight) -> Result<Response<GatewayBody>, Unanswered> {
    let Answered { mut response, link } = answered;
    sensible(&response, false).map_err(|why| reached(&why, in_flight.server()))?;
    headers::strip(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(|body| GatewayBody::Passed(Box::new(Passed::new(body, link, in_flight)))))
}

/// A failure after which it is not known what the server did.
fn reached(why: &Failure, server: &Server) -> Unanswered {
    Unanswered { problem: why.problem(server), unreachable: false }
}

/// Whether an answer can be passed on. hyper lets some through that it cannot: a change of protocol
/// that the client did not ask for, a length beside chunks (RFC 9112 section 6.3), and a length
/// that is said twice.
fn sensible(response: &Response<Incoming>, may_change: bool) -> Result<(), Failure> {
    let headers = response.headers();
    if response.status().is_informational() && !may_change {
        Err(Failure::Nonsense("it changes the protocol unasked"))
    } else if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        Err(Failure::Nonsense("it says in two ways where it ends"))
    } else if !is_one_length(headers) {
        Err(Failure::Nonsense("it says its length twice"))
    } else {
        Ok(())
    }
}

/// Whether there is at most one length, and it is one number.
fn is_one_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    lengths.next().is_none_or(|length| length.iter().all(u8::is_ascii_digit))
        && lengths.next().is_none()
}

/// The answer to a request that wanted to change the protocol, whether or not the upstream agreed.
fn changed(
    response: Response<Incoming>,
    tunnel: Option<crate::listen::Tunnel>,
    in_flight: InFlight,
    caller: &Caller,
) -> Response<GatewayBody> {
    let (mut head, body) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::strip(&mut head.headers);
    let Some(tunnel) = tunnel else {
        let body = Passed::new(body, None, in_flight);
        return Response::from_parts(head, GatewayBody::Passed(Box::new(body)));
    };
    tunnel::agree(&mut head.headers, protocol);
    caller.tunnel(Box::pin(async move {
        tunnel.await;
        drop(in_flight);
    }));
    Response::from_parts(head, GatewayBody::from(bytes::Bytes::new()))
}

fn no_server() -> Problem {
    Problem::new(StatusCode::BAD_GATEWAY, "no upstream can be reached")
}
