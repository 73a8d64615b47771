//! Forwards a request to the upstream of its route and returns the response.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::consistent_hash::{HashInput, RoutingKey};
use super::health_check::{self, UpstreamHealthCheck};
use super::request_body::UpstreamRequestBody;
use super::response_body::{GatewayBody, ProxiedBody};
use super::tunnel::{self, UpgradeRequest};
use super::upstream::Upstream;
use super::upstream_connection::Http1Connection;
use super::upstream_error::UpstreamError;
use super::upstream_server::{ServerLoadGuard, UpstreamResponse, UpstreamServer};
use super::{UpstreamSettings, headers};
use tidegate_net::listen::ConnectionInfo;
use tidegate_rules::{Facts, RuleSet};
use tidegate_web::problem::HttpError;

/// The maximum number of attempts. A request is retried only if nothing of it was sent.
const MAX_ATTEMPTS: usize = 3;

/// The value of the `Host` header that an upstream receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's `Host` header.
    #[default]
    Client,
    /// The host of the server's address.
    Server,
}

/// Why a request got no response from an upstream.
pub(super) struct ForwardError {
    pub(super) error: HttpError,
    /// Whether no server could be reached, so that nothing of the request was sent.
    pub(super) unreachable: bool,
}

/// An upstream with its `Host` and health check settings.
pub(super) struct RouteTarget {
    upstream: Upstream,
    host: HostHeader,
    health: Option<UpstreamHealthCheck>,
}

impl RouteTarget {
    pub(super) fn new(settings: UpstreamSettings, threads: usize) -> Self {
        let UpstreamSettings { servers, balance, timeouts, tls, host, health } = settings;
        let servers = servers.into_iter().map(|(address, weight)| {
            Arc::new(UpstreamServer::new(address, weight, timeouts, tls.clone(), threads))
        });
        Self { upstream: Upstream::new(servers.collect(), balance), host, health }
    }

    pub(super) fn servers(
        &self,
    ) -> impl Iterator<Item = (&Arc<UpstreamServer>, Option<&UpstreamHealthCheck>)> {
        self.upstream.servers.iter().map(|server| (server, self.health.as_ref()))
    }

    /// The hash of the value that requests to this upstream are distributed by, if they are hashed
    /// and the request has it.
    pub(super) fn routing_key(
        &self,
        rules: &RuleSet,
        facts: &Facts<'_>,
        headers: &HeaderMap,
    ) -> Option<RoutingKey> {
        match self.upstream.hash_input()? {
            HashInput::Fact(name) => rules.with_enriched_facts(facts, |facts| {
                facts.get(name).map(|value| RoutingKey::new(value.as_bytes()))
            }),
            HashInput::Header(name) => {
                headers.get(name).map(|value| RoutingKey::new(value.as_bytes()))
            }
        }
    }

    /// Sends a request to the selected server. Retries, on the same or on another server, only if
    /// nothing of the request was sent.
    #[expect(clippy::manual_async_fn, reason = "an `async fn` copies its arguments once more")]
    pub(super) fn send(
        &self,
        request: Request<UpstreamRequestBody>,
        key: Option<RoutingKey>,
    ) -> impl Future<Output = Result<Response<GatewayBody>, ForwardError>> + Send {
        async move {
            let mut request = Some(request);
            let mut unreachable = true;
            let mut tried: SmallVec<[&Arc<UpstreamServer>; MAX_ATTEMPTS]> = SmallVec::new();
            for tries in 1.. {
                let Some(server) = self.upstream.select_server(&tried, key) else { break };
                let in_flight = server.start_request();
                request.iter_mut().for_each(|request| self.set_host(request, server));
                let last_attempt = tries == MAX_ATTEMPTS;
                let why = match server.send(&mut request, last_attempt).await {
                    Ok(upstream_response) => return proxied_response(upstream_response, in_flight),
                    Err(why) => why,
                };
                if why.is_connect_failure() {
                    tried.push(server);
                    health_check::mark_unreachable(server, self.health.is_some());
                } else {
                    unreachable = false;
                }
                let last = last_attempt || tried.len() == self.upstream.servers.len();
                if last || request.is_none() {
                    return Err(ForwardError { error: why.to_http_error(server), unreachable });
                }
            }
            Err(ForwardError { error: no_server_error(), unreachable })
        }
    }

    /// Sends a request that asks for a protocol upgrade.
    pub(super) async fn send_upgrade(
        &self,
        mut request: Request<UpstreamRequestBody>,
        upgrade: UpgradeRequest,
        key: Option<RoutingKey>,
        client_connection: &ConnectionInfo,
    ) -> Result<Response<GatewayBody>, ForwardError> {
        let unreachable = |problem| ForwardError { error: problem, unreachable: true };
        let (server, connection) = self.dial_upgradable(key).await.map_err(unreachable)?;
        let in_flight = server.start_request();
        self.set_host(&mut request, server);
        let sent = upgrade.send(server, connection, request).await;
        let (response, tunnel) = sent.map_err(|why| failed_after_send(&why, server))?;
        validate_response(&response, true).map_err(|why| failed_after_send(&why, server))?;
        Ok(upgrade_response(response, tunnel, in_flight, client_connection))
    }

    /// Opens a connection to the selected server, or to the next one that can be reached.
    async fn dial_upgradable(
        &self,
        key: Option<RoutingKey>,
    ) -> Result<(&Arc<UpstreamServer>, Http1Connection), HttpError> {
        let mut tried: SmallVec<[&Arc<UpstreamServer>; MAX_ATTEMPTS]> = SmallVec::new();
        loop {
            let server = self.upstream.select_server(&tried, key).ok_or_else(no_server_error)?;
            let why = match tunnel::dial_http1(server).await {
                Ok(connection) => return Ok((server, connection)),
                Err(why) => why,
            };
            if why.is_connect_failure() {
                tried.push(server);
                health_check::mark_unreachable(server, self.health.is_some());
            }
            let max_attempts = MAX_ATTEMPTS.min(self.upstream.servers.len());
            if !why.is_connect_failure() || tried.len() == max_attempts {
                return Err(why.to_http_error(server));
            }
        }
    }

    /// Sets the `Host` header if the upstream gets the server's own, or if the request has none.
    fn set_host(&self, request: &mut Request<UpstreamRequestBody>, server: &UpstreamServer) {
        let headers = request.headers_mut();
        if self.host == HostHeader::Server || !headers.contains_key(HOST) {
            headers.insert(HOST, HeaderValue::clone(server.host()));
        }
    }
}

/// Turns an upstream's response into one for the client.
fn proxied_response(
    upstream_response: UpstreamResponse,
    in_flight: ServerLoadGuard,
) -> Result<Response<GatewayBody>, ForwardError> {
    let UpstreamResponse { mut response, connection } = upstream_response;
    validate_response(&response, false)
        .map_err(|why| failed_after_send(&why, in_flight.server()))?;
    headers::strip_hop_by_hop(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response
        .map(|body| GatewayBody::Proxied(Box::new(ProxiedBody::new(body, connection, in_flight)))))
}

/// A failure after which it is unknown whether the server processed the request.
fn failed_after_send(why: &UpstreamError, server: &UpstreamServer) -> ForwardError {
    ForwardError { error: why.to_http_error(server), unreachable: false }
}

/// Whether a response can be forwarded. hyper accepts some that cannot: an unrequested protocol
/// switch, Content-Length together with chunks (RFC 9112 section 6.3), and a repeated
/// Content-Length.
fn validate_response(response: &Response<Incoming>, may_switch: bool) -> Result<(), UpstreamError> {
    let headers = response.headers();
    if response.status().is_informational() && !may_switch {
        Err(UpstreamError::InvalidResponse("unrequested protocol switch"))
    } else if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        Err(UpstreamError::InvalidResponse("both Transfer-Encoding and Content-Length"))
    } else if !has_single_length(headers) {
        Err(UpstreamError::InvalidResponse("repeated or malformed Content-Length"))
    } else {
        Ok(())
    }
}

/// Whether there is at most one Content-Length, and it is one number.
fn has_single_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    lengths.next().is_none_or(|length| length.iter().all(u8::is_ascii_digit))
        && lengths.next().is_none()
}

/// The response to an upgrade request, whether or not the upstream accepted the upgrade.
fn upgrade_response(
    response: Response<Incoming>,
    tunnel: Option<tidegate_net::listen::TunnelFuture>,
    in_flight: ServerLoadGuard,
    client_connection: &ConnectionInfo,
) -> Response<GatewayBody> {
    let (mut head, body) = response.into_parts();
    let protocol = head.headers.get(UPGRADE).cloned();
    headers::strip_hop_by_hop(&mut head.headers);
    let Some(tunnel) = tunnel else {
        let body = ProxiedBody::new(body, None, in_flight);
        return Response::from_parts(head, GatewayBody::Proxied(Box::new(body)));
    };
    tunnel::write_switching_headers(&mut head.headers, protocol);
    client_connection.set_tunnel(Box::pin(async move {
        tunnel.await;
        drop(in_flight);
    }));
    Response::from_parts(head, GatewayBody::from(bytes::Bytes::new()))
}

fn no_server_error() -> HttpError {
    HttpError::new(StatusCode::BAD_GATEWAY, "no upstream server can be reached")
}
