//! Who may administer: on this machine everybody unless there is a token, and with one only who brings it.
//!
//! A browser on this machine is made to ask by any page that it shows. So a request must name this machine
//! as its host (a page whose name was moved to our address does not), and one with an origin must come from
//! a page of our own.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::Authority;
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_edge::problem::Problem;
use tidegate_edge::{Peer, Token, answer, bearer};

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: probes.
    Open,
    /// To read.
    Read,
    /// To change something.
    Write,
}

/// Who is admitted.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Opens everything.
    pub write: Option<Token>,
    /// Opens what changes nothing.
    pub read: Option<Token>,
}

/// Why somebody is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Token(Access),
    ReadOnly,
    Host,
    Origin,
    Elsewhere,
}

impl Guard {
    pub(super) fn admit(&self, head: &Parts, access: Access, caller: Peer) -> Result<(), Refusal> {
        if access == Access::Open {
            return Ok(());
        }
        let host = host(head).ok_or(Refusal::Host)?;
        if let Some(origin) = head.headers.get(ORIGIN) {
            let own = |scheme: &str| origin.as_bytes() == format!("{scheme}://{host}").as_bytes();
            if !own("http") && !own("https") {
                return Err(Refusal::Origin);
            }
        }
        let brought = bearer(&head.headers);
        let opens = |token: &Option<Token>| {
            token.as_ref().zip(brought).is_some_and(|(token, brought)| token.matches(brought))
        };
        match (opens(&self.write), opens(&self.read), access) {
            (true, _, _) | (_, true, Access::Read) => Ok(()),
            (_, true, _) => Err(Refusal::ReadOnly),
            _ if self.write.is_some() => Err(Refusal::Token(access)),
            // A token to read alone leaves changes to this machine.
            _ if self.read.is_some() && access == Access::Read => Err(Refusal::Token(access)),
            _ if !caller.is_here() => Err(Refusal::Elsewhere),
            _ if caller != Peer::Unix && !names_this_machine(&host) => Err(Refusal::Host),
            _ => Ok(()),
        }
    }
}

fn host(head: &Parts) -> Option<Authority> {
    let said = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    said.map_or_else(|| head.uri.authority().cloned(), |host| host.parse().ok())
}

/// An address, or the one name that no resolver can be made to lie about.
fn names_this_machine(host: &Authority) -> bool {
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

impl Refusal {
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let (status, detail) = match self {
            Self::Token(Access::Write) => {
                (StatusCode::UNAUTHORIZED, "changes need `Authorization: Bearer TOKEN` here")
            }
            Self::Token(_) => {
                (StatusCode::UNAUTHORIZED, "this needs `Authorization: Bearer TOKEN` here")
            }
            Self::ReadOnly => {
                (StatusCode::FORBIDDEN, "this token is for reading; changes need the other one")
            }
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this is answered to requests for 127.0.0.1, [::1] or localhost; others need a token",
            ),
            Self::Origin => {
                (StatusCode::FORBIDDEN, "a page of another site (Origin) is not answered")
            }
            Self::Elsewhere => (
                StatusCode::FORBIDDEN,
                "from another machine this needs a token: start tidegate with --admin-token-file FILE \
                 and send `Authorization: Bearer TOKEN`",
            ),
        };
        let mut response = answer::problem(&Problem::new(status, detail));
        if let Self::Token(_) = self {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The body was not read.
        answer::close(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn asked(list: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in list {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:8084");
    const LOCAL: Peer = Peer::Ip(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const AWAY: Peer = Peer::Ip(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));

    fn guard(write: Option<&str>, read: Option<&str>) -> Guard {
        let token = |text: Option<&str>| text.map(|text| Token::new(text).unwrap());
        Guard { write: token(write), read: token(read) }
    }

    #[test]
    fn without_a_token_this_machine_may_and_nobody_else() {
        let guard = guard(None, None);
        let ask = |head: &[(&str, &str)], from| guard.admit(&asked(head), Access::Write, from);
        for host in ["127.0.0.1:8084", "localhost", "[::1]:8084", "LOCALHOST:1"] {
            assert_eq!(ask(&[("host", host)], LOCAL), Ok(()), "{host}");
        }
        assert_eq!(ask(&[HERE], AWAY), Err(Refusal::Elsewhere));
        for host in ["evil.example:8084", "127.0.0.1.evil.example", "192.0.2.7", ""] {
            assert_eq!(ask(&[("host", host)], LOCAL), Err(Refusal::Host), "{host}");
        }
        assert_eq!(ask(&[], LOCAL), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_others_are_not_answered_whatever_they_bring() {
        let guard = guard(Some("write"), None);
        let ask = |origin| {
            let head = [HERE, ("origin", origin), ("authorization", "Bearer write")];
            guard.admit(&asked(&head), Access::Read, LOCAL)
        };
        assert_eq!(ask("http://127.0.0.1:8084"), Ok(()));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80", "file://"] {
            assert_eq!(ask(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn a_token_is_asked_of_everybody_and_one_to_read_does_not_write() {
        let guard = guard(Some("write"), Some("read"));
        let ask = |bearer: &str, access| {
            let head = [("host", "rules.example"), ("authorization", bearer)];
            guard.admit(&asked(&head), access, AWAY)
        };
        use Access::{Open, Read, Write};
        assert_eq!(guard.admit(&asked(&[HERE]), Read, LOCAL), Err(Refusal::Token(Read)));
        assert_eq!(guard.admit(&asked(&[]), Open, AWAY), Ok(()));
        assert_eq!(ask("Bearer write", Write), Ok(()));
        assert_eq!(ask("Bearer write", Read), Ok(()));
        assert_eq!(ask("Bearer read", Read), Ok(()));
        assert_eq!(ask("Bearer read", Write), Err(Refusal::ReadOnly));
        assert_eq!(ask("Bearer wrong", Write), Err(Refusal::Token(Write)));
    }
}
