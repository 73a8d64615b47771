//! The secret that opens guarded endpoints to callers from elsewhere.

use std::fmt;
use std::hint::black_box;

use http::header::{AUTHORIZATION, HeaderMap};

/// A bearer token. It is compared in constant time and never printed.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// A token must say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyToken;

impl Token {
    /// A token, without the white space around it (files end with a newline).
    ///
    /// # Errors
    /// When nothing is left: an empty token would let everybody in.
    pub fn new(text: &str) -> Result<Self, EmptyToken> {
        match text.trim() {
            "" => Err(EmptyToken),
            text => Ok(Self(text.as_bytes().into())),
        }
    }

    /// Whether what a caller brings is the token. The time taken tells the caller's own length only.
    #[must_use]
    pub fn matches(&self, brought: &[u8]) -> bool {
        let expected = self.0.iter().cycle();
        let differing =
            brought.iter().zip(expected).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        black_box(differing) == 0 && brought.len() == self.0.len()
    }
}

/// What a caller brings as a token, if they do. The scheme is of any case (RFC 9110 section 11.1).
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Display for EmptyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the token is empty")
    }
}

impl std::error::Error for EmptyToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::new("  secret\n").unwrap();
        assert!(token.matches(b"secret"));
        for wrong in ["", "s", "secre", "secret2", "secretsecret", "Secret"] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::new(" \n").err(), Some(EmptyToken));
    }
}
