//! Access control for the HTTP API: guarded endpoints are open to local callers and to callers with
//! the token.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;

use tidegate_web::http_response;
use tidegate_web::problem::HttpError;
use tidegate_web::{BearerToken, Peer, read_bearer_token};

/// Why a caller is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiAccessError {
    /// A token is required, but none is configured.
    TokenNotConfigured,
    /// The caller did not send the configured token.
    InvalidToken,
    /// The request comes from a web page, and any site can make a browser send one.
    BrowserOrigin,
}

/// Rejects requests from web pages unless they carry the token, because any site can make a browser
/// send one.
pub(crate) fn reject_browser_origin(
    headers: &HeaderMap,
    token: Option<&BearerToken>,
) -> Result<(), ApiAccessError> {
    match headers.contains_key(ORIGIN) && !has_valid_token(headers, token) {
        true => Err(ApiAccessError::BrowserOrigin),
        false => Ok(()),
    }
}

/// Accepts callers with the token, and local callers that are not web pages.
pub(crate) fn authorize(
    headers: &HeaderMap,
    caller: Peer,
    token: Option<&BearerToken>,
) -> Result<(), ApiAccessError> {
    match token {
        _ if has_valid_token(headers, token) => Ok(()),
        _ if caller.is_local() => reject_browser_origin(headers, token),
        Some(_) => Err(ApiAccessError::InvalidToken),
        None => Err(ApiAccessError::TokenNotConfigured),
    }
}

fn has_valid_token(headers: &HeaderMap, token: Option<&BearerToken>) -> bool {
    token.zip(read_bearer_token(headers)).is_some_and(|(token, received)| token.matches(received))
}

impl ApiAccessError {
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let (status, detail) = match self {
            Self::TokenNotConfigured => (
                StatusCode::FORBIDDEN,
                "callers from another machine need a token: start tidegate with \
                 --admin-token-file FILE and send `Authorization: Bearer TOKEN`",
            ),
            Self::InvalidToken => (
                StatusCode::UNAUTHORIZED,
                "callers from another machine must send `Authorization: Bearer TOKEN`",
            ),
            Self::BrowserOrigin => (
                StatusCode::FORBIDDEN,
                "requests from a web page (Origin) must send `Authorization: Bearer TOKEN`",
            ),
        };
        let mut response = http_response::problem(&HttpError::new(status, detail));
        if self == Self::InvalidToken {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        // The body was not read, so no other request can follow on this connection.
        http_response::set_connection_close(&mut response);
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
    fn remote_caller_needs_token() {
        let token = BearerToken::new("secret").unwrap();
        let remote = Peer::Ip(IpAddr::from([192, 0, 2, 1]));
        let headers_with = |value| headers(&[(AUTHORIZATION, value)]);
        assert_eq!(authorize(&headers(&[]), remote, None), Err(ApiAccessError::TokenNotConfigured));
        assert_eq!(
            authorize(&headers_with("Bearer secret"), remote, None),
            Err(ApiAccessError::TokenNotConfigured)
        );
        assert_eq!(
            authorize(&headers(&[]), remote, Some(&token)),
            Err(ApiAccessError::InvalidToken)
        );
        for wrong in ["Bearer wrong", "Bearer ", "Bearer", "Basic secret", "secret", ""] {
            assert_eq!(
                authorize(&headers_with(wrong), remote, Some(&token)),
                Err(ApiAccessError::InvalidToken),
                "{wrong}"
            );
        }
        assert_eq!(authorize(&headers_with("bearer  secret"), remote, Some(&token)), Ok(()));
    }

    #[test]
    fn browser_origin_without_token_is_refused() {
        let token = BearerToken::new("secret").unwrap();
        let page = (ORIGIN, "https://example.com");
        assert_eq!(reject_browser_origin(&headers(&[]), Some(&token)), Ok(()));
        for token in [None, Some(&token)] {
            let wrong = headers(&[page.clone(), (AUTHORIZATION, "Bearer wrong")]);
            assert_eq!(reject_browser_origin(&wrong, token), Err(ApiAccessError::BrowserOrigin));
        }
        let right = headers(&[page, (AUTHORIZATION, "Bearer secret")]);
        assert_eq!(reject_browser_origin(&right, Some(&token)), Ok(()));
    }

    #[test]
    fn local_caller_needs_no_token() {
        let token = BearerToken::new("secret").unwrap();
        let addresses = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        let local = addresses.map(|local| Peer::Ip(local.parse().unwrap()));
        for local in local.into_iter().chain([Peer::Unix]) {
            assert_eq!(authorize(&headers(&[]), local, None), Ok(()));
            let page = (ORIGIN, "https://example.com");
            assert_eq!(
                authorize(&headers(std::slice::from_ref(&page)), local, None),
                Err(ApiAccessError::BrowserOrigin)
            );
            let both = headers(&[page, (AUTHORIZATION, "Bearer secret")]);
            assert_eq!(authorize(&both, local, Some(&token)), Ok(()));
        }
    }
}
