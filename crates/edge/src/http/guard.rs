//! Who may ask guarded questions: callers on this machine, and those with the token.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::answer;
use crate::problem::Problem;
use crate::{Peer, Token, bearer};

/// Why a caller is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no token that would help.
    NoToken,
    /// There is one, and the caller did not bring it.
    WrongToken,
    /// A page in a browser asks, which any site can make it do.
    Browser,
}

/// Admits callers that may ask for a decision: all but pages in a browser, because any site can
/// make one ask.
pub(crate) fn admit_program(headers: &HeaderMap, token: Option<&Token>) -> Result<(), Refusal> {
    match headers.contains_key(ORIGIN) && !brings(headers, token) {
        true => Err(Refusal::Browser),
        false => Ok(()),
    }
}

/// Admits callers on this machine that are no page in a browser, and those with the token.
pub(crate) fn admit(
    headers: &HeaderMap,
    caller: Peer,
    token: Option<&Token>,
) -> Result<(), Refusal> {
    match token {
        _ if brings(headers, token) => Ok(()),
        _ if caller.is_here() => admit_program(headers, token),
        Some(_) => Err(Refusal::WrongToken),
        None => Err(Refusal::NoToken),
    }
}

fn brings(headers: &HeaderMap, token: Option<&Token>) -> bool {
    token.zip(bearer(headers)).is_some_and(|(token, brought)| token.matches(brought))
}

impl Refusal {
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let (status, detail) = match self {
            Self::NoToken => (
                StatusCode::FORBIDDEN,
                "from another machine this endpoint needs a token: start tidegate with \
                 --admin-token-file FILE and send `Authorization: Bearer TOKEN`",
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "from another machine this endpoint needs `Authorization: Bearer TOKEN`",
            ),
            Self::Browser => (
                StatusCode::FORBIDDEN,
                "a page in a browser (Origin) needs `Authorization: Bearer TOKEN` here",
            ),
        };
        let mut response = answer::problem(&Problem::new(status, detail));
        if self == Self::WrongToken {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        // The body was not read.
        answer::close(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::header::AUTHORIZATION;

    use super::*;

    fn headers(list: &[(http::HeaderName, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn callers_from_elsewhere_need_the_token() {
        let token = Token::new("secret").unwrap();
        let away = Peer::Ip(IpAddr::from([192, 0, 2, 1]));
        let with = |value| headers(&[(AUTHORIZATION, value)]);
        assert_eq!(admit(&headers(&[]), away, None), Err(Refusal::NoToken));
        assert_eq!(admit(&with("Bearer secret"), away, None), Err(Refusal::NoToken));
        assert_eq!(admit(&headers(&[]), away, Some(&token)), Err(Refusal::WrongToken));
        for wrong in ["Bearer wrong", "Bearer ", "Bearer", "Basic secret", "secret", ""] {
            assert_eq!(
                admit(&with(wrong), away, Some(&token)),
                Err(Refusal::WrongToken),
                "{wrong}"
            );
        }
        assert_eq!(admit(&with("bearer  secret"), away, Some(&token)), Ok(()));
    }

    #[test]
    fn anyone_may_ask_for_a_decision_but_a_page_in_a_browser() {
        let token = Token::new("secret").unwrap();
        let page = (ORIGIN, "https://example.com");
        assert_eq!(admit_program(&headers(&[]), Some(&token)), Ok(()));
        for token in [None, Some(&token)] {
            let wrong = headers(&[page.clone(), (AUTHORIZATION, "Bearer wrong")]);
            assert_eq!(admit_program(&wrong, token), Err(Refusal::Browser));
        }
        let right = headers(&[page, (AUTHORIZATION, "Bearer secret")]);
        assert_eq!(admit_program(&right, Some(&token)), Ok(()));
    }

    #[test]
    fn callers_on_this_machine_need_none_unless_a_browser_speaks_for_them() {
        let token = Token::new("secret").unwrap();
        let addresses = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        let here = addresses.map(|here| Peer::Ip(here.parse().unwrap()));
        for here in here.into_iter().chain([Peer::Unix]) {
            assert_eq!(admit(&headers(&[]), here, None), Ok(()));
            let page = (ORIGIN, "https://example.com");
            assert_eq!(
                admit(&headers(std::slice::from_ref(&page)), here, None),
                Err(Refusal::Browser)
            );
            let both = headers(&[page, (AUTHORIZATION, "Bearer secret")]);
            assert_eq!(admit(&both, here, Some(&token)), Ok(()));
        }
    }
}
