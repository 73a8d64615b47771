//! Connections that change their protocol, such as WebSockets. Nothing but HTTP passes before the
//! upstream has agreed with 101 (CVE-2026-2833: others tunnelled earlier).

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::link::Dialled;
use super::outgoing::Outgoing;
use super::server::{Failed, Failure, Server};
use crate::listen::Tunnel;

/// The protocol that a request wants to change to, and the connection when it has.
pub(super) struct Wanted {
    protocol: HeaderValue,
    client: OnUpgrade,
}

impl Wanted {
    /// What a request wants, if anything. `Upgrade: h2c` is not offered on (RFC 9113 has dropped it).
    pub(super) fn by(request: &mut Request<Incoming>) -> Option<Self> {
        if request.version() != Version::HTTP_11 || !asks(request.headers()) {
            return None;
        }
        let protocol = request.headers().get(UPGRADE)?.clone();
        if protocol.as_bytes().eq_ignore_ascii_case(b"h2c") {
            return None;
        }
        Some(Self { protocol, client: hyper::upgrade::on(request) })
    }

    /// Sends the request over a connection of its own. If the upstream agrees, what is to be done with
    /// both connections is returned too.
    pub(super) async fn send(
        self,
        server: &Server,
        mut request: Request<Outgoing>,
    ) -> Result<(Response<Incoming>, Option<Tunnel>), Failed> {
        let Self { protocol, client } = self;
        request.headers_mut().insert(UPGRADE, protocol);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let link = match server.dial().await {
            Ok(Dialled::Http1(link)) => *link,
            // The protocol of upgrades is HTTP/1.1.
            Ok(Dialled::Http2(_)) => {
                return Err(Failed { why: Failure::NoUpgrade, unsent: None });
            }
            Err(why) => return Err(Failed { why, unsent: Some(Box::new(request)) }),
        };
        let mut sender = link.with_upgrades();
        let sending = sender.send_request(request);
        let mut response = match tokio::time::timeout(server.timeouts().response, sending).await {
            Ok(answer) => {
                answer.map_err(|error| Failed { why: Failure::of(error), unsent: None })?
            }
            Err(_) => return Err(Failed { why: Failure::ResponseTimeout, unsent: None }),
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok((response, None));
        }
        let upstream = hyper::upgrade::on(&mut response);
        Ok((response, Some(Box::pin(carry(client, upstream)))))
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
