//! Protocol upgrades, such as WebSockets. Only HTTP is forwarded until the upstream accepts the
//! upgrade with status 101 (CVE-2026-2833: another proxy opened the tunnel earlier).

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::request_body::UpstreamRequestBody;
use super::upstream_connection::{Http1Connection, UpstreamConnection};
use super::upstream_error::UpstreamError;
use super::upstream_server::UpstreamServer;
use tidegate_net::listen::TunnelFuture;

/// A requested upgrade: the protocol, and the client's connection once it is upgraded.
pub(super) struct UpgradeRequest {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl UpgradeRequest {
    /// The upgrade that a request asks for, if any. Upgrades to HTTP are not forwarded (RFC 9113
    /// has dropped `h2c`): the limiter would not see the requests inside the tunnel.
    pub(super) fn from_request(request: &mut Request<Incoming>) -> Option<Self> {
        if request.version() != Version::HTTP_11 || !requests_upgrade(request.headers()) {
            return None;
        }
        let protocol = request.headers().get(UPGRADE)?.clone();
        if offers_http(protocol.as_bytes()) {
            return None;
        }
        Some(Self { protocol, client: hyper::upgrade::on(request) })
    }

    /// Sends the request over a dedicated connection. If the upstream accepts, also returns the
    /// future that copies between both connections.
    pub(super) async fn send(
        self,
        server: &UpstreamServer,
        connection: Http1Connection,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<(Response<Incoming>, Option<TunnelFuture>), UpstreamError> {
        let Self { protocol, client } = self;
        request.headers_mut().insert(UPGRADE, protocol);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let mut sender = connection.into_upgradable_sender();
        let sending = sender.send_request(request);
        let mut response = match tokio::time::timeout(server.timeouts().response, sending).await {
            Ok(response) => response.map_err(UpstreamError::from_hyper)?,
            Err(_) => return Err(UpstreamError::ResponseTimeout),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok((response, None));
        }
        let upstream = hyper::upgrade::on(&mut response);
        Ok((response, Some(Box::pin(copy_tunnel(client, upstream)))))
    }
}

/// Opens a connection that supports upgrades.
pub(super) async fn dial_http1(server: &UpstreamServer) -> Result<Http1Connection, UpstreamError> {
    match server.dial().await? {
        UpstreamConnection::Http1(connection) => Ok(*connection),
        // Upgrades exist only in HTTP/1.1.
        UpstreamConnection::Http2(_) => Err(UpstreamError::UpgradeUnsupported),
    }
}

/// Restores the headers that announce the upgrade to the client.
pub(super) fn write_switching_headers(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
}

fn requests_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter();
    let mut words = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// Whether one of the offered protocols is a version of HTTP.
fn offers_http(offered: &[u8]) -> bool {
    offered.split(|byte| *byte == b',').any(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http"].iter().any(|http| name.eq_ignore_ascii_case(http))
    })
}

/// Copies bytes in both directions until both sides have closed.
async fn copy_tunnel(client: OnUpgrade, upstream: OnUpgrade) {
    let (client, upstream) = match tokio::join!(client, upstream) {
        (Ok(client), Ok(upstream)) => (client, upstream),
        (Err(error), _) | (_, Err(error)) => {
            return tracing::debug!(%error, "protocol upgrade failed");
        }
    };
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!(%error, "tunnel ended with an error");
    }
}
