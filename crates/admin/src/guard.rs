//! Authorizes callers of the admin API. Without a configured token, only callers on this machine
//! have access; with one, every caller must present it.
//!
//! Any web page can make a browser on this machine send requests here. So the `Host` header must
//! name this machine, which stops DNS rebinding, and an `Origin` header must name this server.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::Authority;
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_web::problem::HttpError;
use tidegate_web::{BearerToken, Peer, http_response, read_bearer_token};

/// The access that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAccess {
    /// None, for example for probes.
    Open,
    /// Read access.
    Read,
    /// Write access.
    Write,
}

/// The tokens that grant access.
#[derive(Clone, Debug, Default)]
pub struct AdminGuard {
    /// Grants read and write access.
    pub write: Option<BearerToken>,
    /// Grants read access.
    pub read: Option<BearerToken>,
}

/// Why a request is not authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminAccessError {
    InvalidToken(AdminAccess),
    ReadOnlyToken,
    UntrustedHost,
    ForeignOrigin,
    RemotePeer,
}

impl AdminGuard {
    pub(super) fn admit(
        &self,
        head: &Parts,
        access: AdminAccess,
        caller: Peer,
    ) -> Result<(), AdminAccessError> {
        if access == AdminAccess::Open {
            return Ok(());
        }
        let host = request_host(head).ok_or(AdminAccessError::UntrustedHost)?;
        if let Some(origin) = head.headers.get(ORIGIN) {
            let is_ours =
                |scheme: &str| origin.as_bytes() == format!("{scheme}://{host}").as_bytes();
            if !is_ours("http") && !is_ours("https") {
                return Err(AdminAccessError::ForeignOrigin);
            }
        }
        let sent = read_bearer_token(&head.headers);
        let matches = |token: &Option<BearerToken>| {
            token.as_ref().zip(sent).is_some_and(|(token, sent)| token.matches(sent))
        };
        match (matches(&self.write), matches(&self.read), access) {
            (true, _, _) | (_, true, AdminAccess::Read) => Ok(()),
            (_, true, _) => Err(AdminAccessError::ReadOnlyToken),
            _ if self.write.is_some() => Err(AdminAccessError::InvalidToken(access)),
            // With only a read token configured, local callers can still write without a token.
            _ if self.read.is_some() && access == AdminAccess::Read => {
                Err(AdminAccessError::InvalidToken(access))
            }
            _ if !caller.is_local() => Err(AdminAccessError::RemotePeer),
            _ if caller != Peer::Unix && !is_loopback_host(&host) => {
                Err(AdminAccessError::UntrustedHost)
            }
            _ => Ok(()),
        }
    }
}

fn request_host(head: &Parts) -> Option<Authority> {
    let header = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    header.map_or_else(|| head.uri.authority().cloned(), |host| host.parse().ok())
}

/// A loopback address, or `localhost`: the only name that DNS rebinding cannot redirect.
fn is_loopback_host(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

impl AdminAccessError {
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let (status, detail) = match self {
            Self::InvalidToken(AdminAccess::Write) => {
                (StatusCode::UNAUTHORIZED, "changes need `Authorization: Bearer TOKEN`")
            }
            Self::InvalidToken(_) => {
                (StatusCode::UNAUTHORIZED, "this needs `Authorization: Bearer TOKEN`")
            }
            Self::ReadOnlyToken => {
                (StatusCode::FORBIDDEN, "this token is read-only; changes need the admin token")
            }
            Self::UntrustedHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "without a token, the Host header must be 127.0.0.1, [::1] or localhost",
            ),
            Self::ForeignOrigin => {
                (StatusCode::FORBIDDEN, "cross-origin requests are refused: Origin is another site")
            }
            Self::RemotePeer => (
                StatusCode::FORBIDDEN,
                "requests from another machine need a token: start tidegate with --admin-token-file \
                 FILE and send `Authorization: Bearer TOKEN`",
            ),
        };
        let mut response = http_response::problem(&HttpError::new(status, detail));
        if let Self::InvalidToken(_) = self {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The connection cannot be reused: the request body was not read.
        http_response::set_connection_close(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn request_head(list: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in list {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const LOCAL_HOST_HEADER: (&str, &str) = ("host", "127.0.0.1:8084");
    const LOCAL: Peer = Peer::Ip(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const REMOTE: Peer = Peer::Ip(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));

    fn guard(write: Option<&str>, read: Option<&str>) -> AdminGuard {
        let token = |text: Option<&str>| text.map(|text| BearerToken::new(text).unwrap());
        AdminGuard { write: token(write), read: token(read) }
    }

    #[test]
    fn untokened_guard_admits_only_loopback() {
        let guard = guard(None, None);
        let admit = |head: &[(&str, &str)], from| {
            guard.admit(&request_head(head), AdminAccess::Write, from)
        };
        for host in ["127.0.0.1:8084", "localhost", "[::1]:8084", "LOCALHOST:1"] {
            assert_eq!(admit(&[("host", host)], LOCAL), Ok(()), "{host}");
        }
        assert_eq!(admit(&[LOCAL_HOST_HEADER], REMOTE), Err(AdminAccessError::RemotePeer));
        for host in ["evil.example:8084", "127.0.0.1.evil.example", "192.0.2.7", ""] {
            assert_eq!(
                admit(&[("host", host)], LOCAL),
                Err(AdminAccessError::UntrustedHost),
                "{host}"
            );
        }
        assert_eq!(admit(&[], LOCAL), Err(AdminAccessError::UntrustedHost));
    }

    #[test]
    fn foreign_origin_is_refused_despite_token() {
        let guard = guard(Some("write"), None);
        let admit = |origin| {
            let head = [LOCAL_HOST_HEADER, ("origin", origin), ("authorization", "Bearer write")];
            guard.admit(&request_head(&head), AdminAccess::Read, LOCAL)
        };
        assert_eq!(admit("http://127.0.0.1:8084"), Ok(()));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80", "file://"] {
            assert_eq!(admit(origin), Err(AdminAccessError::ForeignOrigin), "{origin}");
        }
    }

    #[test]
    fn read_token_reads_but_never_writes() {
        let guard = guard(Some("write"), Some("read"));
        let admit = |bearer: &str, access| {
            let head = [("host", "rules.example"), ("authorization", bearer)];
            guard.admit(&request_head(&head), access, REMOTE)
        };
        use AdminAccess::{Open, Read, Write};
        assert_eq!(
            guard.admit(&request_head(&[LOCAL_HOST_HEADER]), Read, LOCAL),
            Err(AdminAccessError::InvalidToken(Read))
        );
        assert_eq!(guard.admit(&request_head(&[]), Open, REMOTE), Ok(()));
        assert_eq!(admit("Bearer write", Write), Ok(()));
        assert_eq!(admit("Bearer write", Read), Ok(()));
        assert_eq!(admit("Bearer read", Read), Ok(()));
        assert_eq!(admit("Bearer read", Write), Err(AdminAccessError::ReadOnlyToken));
        assert_eq!(admit("Bearer wrong", Write), Err(AdminAccessError::InvalidToken(Write)));
    }
}
