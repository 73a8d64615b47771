//! Turns the properties of a request into [`Facts`], the input of the rules. This module defines
//! which facts are valid, whichever API they come through. [`Extractor`] reads facts from the HTTP
//! requests that the gateway forwards.
//!
//! Nothing is looked up or derived here: the rules add the tier of a subject and the endpoint
//! pattern.

mod address;
mod client_address;
mod cookie;
mod extractor;
pub mod extractor_cache;
mod fact_source;
mod forwarded;
mod host;
mod jwt;
pub mod method;
pub mod path;
mod query;
mod rule_input_headers;
mod trusted_proxies;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use tidegate_rules::Facts;

use crate::path::PathError;
pub use client_address::{ResolvedClient, client_ip};
pub use extractor::{Extractor, IdentityConfigError};
pub use jwt::JwtKeyError;
pub use rule_input_headers::RuleInputHeaders;

/// The maximum number of facts in a request.
pub const MAX_FACTS: usize = 64;
/// The maximum length of a fact's name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The maximum length of a fact's value, in bytes.
pub const MAX_VALUE_BYTES: usize = 8 * 1024;

/// Why a fact is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactError {
    /// The request has more than [`MAX_FACTS`] facts.
    TooMany,
    /// The name is empty.
    EmptyName,
    /// The name is longer than [`MAX_NAME_BYTES`].
    LongName,
    /// The fact is given more than once.
    Repeated,
    /// The value is longer than [`MAX_VALUE_BYTES`].
    LongValue,
    /// The value of `ip` is not an IP address.
    NotAnAddress,
    /// The value of `method` is not an HTTP token.
    NotAMethod,
    /// The value of `path` has no canonical form.
    Path(PathError),
    /// A `%` in the query is not followed by two hexadecimal digits.
    BadEncoding,
    /// The value is not UTF-8, or contains control characters.
    NotText,
}

/// An invalid fact, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFactError {
    /// The fact's name.
    pub name: String,
    /// Why the fact is invalid.
    pub why: FactError,
}

/// Builds facts from pairs of names and values, for example from a command line.
///
/// # Errors
/// Returns the first invalid fact.
///
/// ```
/// let facts = tidegate_identity::facts_from_pairs([("ip", "192.0.2.7"), ("path", "/a/../b")])?;
/// assert_eq!(facts.get("path"), Some("/b"));
/// # Ok::<(), tidegate_identity::InvalidFactError>(())
/// ```
pub fn facts_from_pairs<'a, N, V>(
    pairs: impl IntoIterator<Item = (N, V)>,
) -> Result<Facts<'a>, InvalidFactError>
where
    N: Into<Cow<'a, str>>,
    V: Into<Cow<'a, str>>,
{
    let mut facts = Facts::new();
    for (name, given) in pairs {
        let name = name.into();
        let checked = check_fact_count(&facts)
            .and_then(|()| check_fact_name(&name, &facts))
            .and_then(|()| canonicalize_value(&name, given.into()));
        match checked {
            Ok(value) => facts.push(name, value),
            Err(why) => return Err(InvalidFactError { name: name.into_owned(), why }),
        }
    }
    Ok(facts)
}

/// Checks that another fact can be added to `known`.
pub fn check_fact_count(known: &Facts<'_>) -> Result<(), FactError> {
    if known.len() < MAX_FACTS { Ok(()) } else { Err(FactError::TooMany) }
}

/// Checks that a fact with this name can be added to `known`.
pub fn check_fact_name(name: &str, known: &Facts<'_>) -> Result<(), FactError> {
    match name {
        "" => Err(FactError::EmptyName),
        _ if name.len() > MAX_NAME_BYTES => Err(FactError::LongName),
        _ if known.get(name).is_some() => Err(FactError::Repeated),
        _ => Ok(()),
    }
}

/// Returns the value in the form that rules match and key by: a method in upper case, a path or a
/// host in its canonical form, any other value as given.
pub fn canonicalize_value<'a>(name: &str, given: Cow<'a, str>) -> Result<Cow<'a, str>, FactError> {
    if given.len() > MAX_VALUE_BYTES {
        return Err(FactError::LongValue);
    }
    match name {
        "ip" if given.parse::<IpAddr>().is_err() => Err(FactError::NotAnAddress),
        "method" if !is_token(&given) => Err(FactError::NotAMethod),
        "method" => Ok(method::canonical(given)),
        "endpoint" => Ok(method::canonical_endpoint(given)),
        "host" => Ok(host::canonical(given)),
        "path" => match given {
            Cow::Borrowed(given) => path::canonical(given),
            Cow::Owned(given) => path::canonical(&given).map(|path| path.into_owned().into()),
        }
        .map_err(FactError::Path),
        _ => Ok(given),
    }
}

/// Whether `text` is a token (RFC 9110 section 5.6.2).
fn is_token(text: &str) -> bool {
    let tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(tchar)
}

impl fmt::Display for FactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "a request may have at most {MAX_FACTS} facts"),
            Self::EmptyName => f.write_str("the fact has no name"),
            Self::LongName => write!(f, "a fact name may have at most {MAX_NAME_BYTES} bytes"),
            Self::Repeated => f.write_str("the fact is given more than once"),
            Self::LongValue => write!(f, "a fact value may have at most {MAX_VALUE_BYTES} bytes"),
            Self::NotAnAddress => f.write_str("not an IPv4 or IPv6 address"),
            Self::NotAMethod => f.write_str("not a valid HTTP method"),
            Self::Path(why) => why.fmt(f),
            Self::BadEncoding => f.write_str("a % must be followed by two hexadecimal digits"),
            Self::NotText => f.write_str("not UTF-8, or contains control characters"),
        }
    }
}

impl fmt::Display for InvalidFactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for FactError {}
impl std::error::Error for InvalidFactError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact_error(pairs: &[(&str, &str)]) -> (String, FactError) {
        let bad = facts_from_pairs(pairs.iter().copied()).unwrap_err();
        (bad.name, bad.why)
    }

    #[test]
    fn request_line_and_host_are_canonicalized() {
        let given = [
            ("ip", "::1"),
            ("method", "get"),
            ("path", "/a//b?q"),
            ("host", "A.example.:80"),
            ("endpoint", "get /caf\u{e9}"),
            ("x", "\u{0}"),
        ];
        let facts = facts_from_pairs(given).unwrap();
        let kept = [
            ("ip", "::1"),
            ("method", "GET"),
            ("path", "/a/b"),
            ("host", "a.example"),
            ("endpoint", "GET /caf%C3%A9"),
            ("x", "\u{0}"),
        ];
        assert_eq!(facts.iter().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn invalid_fact_error_names_the_fact() {
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        for (name, value, why) in [
            ("ip", "203.0.113", FactError::NotAnAddress),
            ("ip", "fe80::1%eth0", FactError::NotAnAddress),
            ("method", "", FactError::NotAMethod),
            ("method", "GET /", FactError::NotAMethod),
            ("path", "x", FactError::Path(PathError::NotAbsolute)),
            ("", "x", FactError::EmptyName),
            (&long[..MAX_NAME_BYTES + 1], "x", FactError::LongName),
            ("x", &long, FactError::LongValue),
        ] {
            assert_eq!(fact_error(&[(name, value)]), (name.to_owned(), why));
        }
        assert_eq!(fact_error(&[("a", "1"), ("a", "1")]), ("a".to_owned(), FactError::Repeated));
    }

    #[test]
    fn more_than_64_facts_are_refused() {
        let named = |count: usize| (0..count).map(|n| (n.to_string(), "x"));
        assert_eq!(facts_from_pairs(named(MAX_FACTS)).map(|facts| facts.len()), Ok(MAX_FACTS));
        assert_eq!(facts_from_pairs(named(MAX_FACTS + 1)).unwrap_err().why, FactError::TooMany);
    }
}
