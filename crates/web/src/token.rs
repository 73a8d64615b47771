//! Bearer tokens, which give remote callers access to protected endpoints.

use std::fmt;
use std::hint::black_box;

use http::header::{AUTHORIZATION, HeaderMap};

/// A bearer token. It is compared in constant time and never printed.
#[derive(Clone)]
pub struct BearerToken(Box<[u8]>);

/// The token is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyTokenError;

impl BearerToken {
    /// Creates a token; surrounding white space is removed (files end with a newline).
    ///
    /// # Errors
    /// When nothing is left: an empty token would admit every caller.
    pub fn new(text: &str) -> Result<Self, EmptyTokenError> {
        match text.trim() {
            "" => Err(EmptyTokenError),
            text => Ok(Self(text.as_bytes().into())),
        }
    }

    /// Whether a caller's token matches. The time taken depends only on the length of the caller's
    /// token.
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        let expected = self.0.iter().cycle();
        let differing =
            presented.iter().zip(expected).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        black_box(differing) == 0 && presented.len() == self.0.len()
    }
}

/// The bearer token of a request, if any. The scheme is case-insensitive (RFC 9110 section 11.1).
#[must_use]
pub fn read_bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

impl fmt::Display for EmptyTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the token is empty")
    }
}

impl std::error::Error for EmptyTokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = BearerToken::new("  secret\n").unwrap();
        assert!(token.matches(b"secret"));
        for wrong in ["", "s", "secre", "secret2", "secretsecret", "Secret"] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "BearerToken(..)");
        assert_eq!(BearerToken::new(" \n").err(), Some(EmptyTokenError));
    }
}
