//! Reads a fact from its place in the request.
//!
//! Ambiguous input is refused, never guessed at: a key that is given twice, or a key that is not
//! text. The upstream might read another key than the one that is counted.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use super::jwt::JwtVerifier;
use super::{FactError, MAX_VALUE_BYTES, cookie, query};

/// The place of a fact in a request.
#[derive(Debug)]
pub(super) enum FactSource {
    Header(HeaderName),
    Query(String),
    Bearer,
    Cookie(String),
    Jwt(HeaderName, Box<JwtVerifier>),
}

impl FactSource {
    /// The header that contains the fact, if any.
    pub(super) fn header_name(&self) -> Option<HeaderName> {
        match self {
            Self::Header(name) | Self::Jwt(name, _) => Some(name.clone()),
            Self::Bearer => Some(AUTHORIZATION),
            Self::Cookie(_) => Some(COOKIE),
            Self::Query(_) => None,
        }
    }

    /// Reads the fact; `None` if it is missing or empty, or if its token cannot be verified.
    pub(super) fn read_fact<'a>(&self, head: &'a Parts) -> Result<Option<Cow<'a, str>>, FactError> {
        match self {
            Self::Header(name) => {
                parse_text(single_header(&head.headers, name)?.map(HeaderValue::as_bytes))
            }
            Self::Bearer => {
                parse_text(single_header(&head.headers, &AUTHORIZATION)?.and_then(bearer_token))
            }
            Self::Cookie(name) => parse_text(cookie::read_cookie(&head.headers, name)?),
            Self::Query(name) => {
                let found = query::read_parameter(head.uri.query().unwrap_or_default(), name)?;
                if let Some(value) = &found {
                    check_text(value)?;
                }
                Ok(found)
            }
            Self::Jwt(name, verifier) => {
                let token =
                    single_header(&head.headers, name)?.and_then(|value| jwt_token(name, value));
                match token {
                    Some(token) if token.len() > MAX_VALUE_BYTES => Err(FactError::LongValue),
                    token => {
                        Ok(token.and_then(|token| verifier.verify_claim(token)).map(Cow::Owned))
                    }
                }
            }
        }
    }
}

fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, FactError> {
    let mut lines = headers.get_all(name).into_iter();
    let line = lines.next();
    if lines.next().is_some() { Err(FactError::Repeated) } else { Ok(line) }
}

/// The token after `Bearer`; the scheme is case-insensitive (RFC 9110 section 11.1).
fn bearer_token(value: &HeaderValue) -> Option<&[u8]> {
    let value = value.as_bytes().trim_ascii_start();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// A signed token. `Authorization` requires the `Bearer` scheme; in other headers it is optional.
fn jwt_token<'a>(name: &HeaderName, value: &'a HeaderValue) -> Option<&'a [u8]> {
    let bare = (name != AUTHORIZATION).then_some(value.as_bytes());
    bearer_token(value).or(bare).map(<[u8]>::trim_ascii)
}

/// Trims whitespace, which HTTP/1 strips and HTTP/2 may carry, so that it cannot make another key.
fn parse_text(value: Option<&[u8]>) -> Result<Option<Cow<'_, str>>, FactError> {
    let value = value.unwrap_or_default().trim_ascii();
    let text = str::from_utf8(value).map_err(|_| FactError::NotText)?;
    check_text(text)?;
    Ok((!text.is_empty()).then_some(Cow::Borrowed(text)))
}

fn check_text(text: &str) -> Result<(), FactError> {
    if text.len() > MAX_VALUE_BYTES {
        return Err(FactError::LongValue);
    }
    if text.chars().any(char::is_control) { Err(FactError::NotText) } else { Ok(()) }
}
