//! Connections that change their protocol, such as WebSockets. Nothing but HTTP passes before the
//! upstream has agreed with 101 (CVE-2026-2833: others tunnelled earlier).

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::failure::Failure;
use super::link::{Dialled, Http1};
use super::outgoing::Outgoing;
use super::server::Server;
use crate::listen::Tunnel;

/// The protocol that a request wants to change to, and the connection when it has.
pub(super) struct Wanted {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Wanted {
    /// What a request wants, if anything. HTTP itself is not offered on (RFC 9113 has dropped `h2c`):
    /// requests inside the tunnel would be counted by nobody.
    pub(super) fn by(request: &mut Request<Incoming>) -> Option<Self> {
        if request.version() != Version::HTTP_11 || !asks(request.headers()) {
            return None;
        }
        let protocol = request.headers().get(UPGRADE)?.clone();
        if leads_to_http(protocol.as_bytes()) {
            return None;
        }
        Some(Self { protocol, client: hyper::upgrade::on(request) })
    }

    /// Sends the request over a connection of its own. If the upstream agrees, what is to be done with
    /// both connections is returned too.
    pub(super) async fn send(
        self,
        server: &Server,
        link: Http1,
        mut request: Request<Outgoing>,
    ) -> Result<(Response<Incoming>, Option<Tunnel>), Failure> {
        let Self { protocol, client } = self;
        request.headers_mut().insert(UPGRADE, protocol);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let mut sender = link.with_upgrades();
        let sending = sender.send_request(request);
        let mut response = match tokio::time::timeout(server.timeouts().response, sending).await {
            Ok(answer) => answer.map_err(Failure::of)?,
            Err(_) => return Err(Failure::ResponseTimeout),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok((response, None));
        }
        let upstream = hyper::upgrade::on(&mut response);
        Ok((response, Some(Box::pin(carry(client, upstream)))))
    }
}

/// A connection whose protocol can be changed.
pub(super) async fn dial(server: &Server) -> Result<Http1, Failure> {
    match server.dial().await? {
        Dialled::Http1(link) => Ok(*link),
        // The protocol of upgrades is HTTP/1.1.
        Dialled::Http2(_) => Err(Failure::NoUpgrade),
    }
}

/// Puts back what says to the client that the protocol changes.
pub(super) fn agree(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
}

fn asks(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CONNECTION).iter();
    let mut words = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

/// Whether a version of HTTP is among the protocols on offer.
fn leads_to_http(offered: &[u8]) -> bool {
    offered.split(|byte| *byte == b',').any(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http"].iter().any(|http| name.eq_ignore_ascii_case(http))
    })
}

/// Carries bytes both ways until both sides have closed.
async fn carry(client: OnUpgrade, upstream: OnUpgrade) {
    let (client, upstream) = match tokio::join!(client, upstream) {
        (Ok(client), Ok(upstream)) => (client, upstream),
        (Err(error), _) | (_, Err(error)) => {
            return tracing::debug!(%error, "the protocol was not changed");
        }
    };
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!(%error, "a tunnel ended early");
    }
}
