//! Decides which headers are dropped from untrusted clients, and which trailers from all clients.
//!
//! An upstream trusts these headers because its proxy sets them: the origin of a request, overrides
//! of the method or path in the request line, and identity headers that the rules believe only from
//! a proxy. Rules count by the request line.

use std::fmt;
use std::str::FromStr;

use http::header::{HeaderMap, HeaderName};

use tidegate_identity::RuleInputHeaders;

/// A header that untrusted clients may send although the gateway drops it by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassthroughHeader(HeaderName);

/// Why a header cannot be a passthrough header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassthroughHeaderError {
    /// Not a valid header name.
    InvalidName,
    /// The gateway sets it, or it is hop-by-hop.
    Reserved,
}

impl FromStr for PassthroughHeader {
    type Err = PassthroughHeaderError;

    fn from_str(text: &str) -> Result<Self, PassthroughHeaderError> {
        let name: HeaderName = text.parse().map_err(|_| PassthroughHeaderError::InvalidName)?;
        match is_hop_by_hop(name.as_str()) || is_forwarding_header(name.as_str()) {
            true => Err(PassthroughHeaderError::Reserved),
            false => Ok(Self(name)),
        }
    }
}

/// Whether a header is hop-by-hop even if `Connection` does not name it.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// Whether the gateway drops this header from an untrusted client.
pub(super) fn is_dropped(
    name: &HeaderName,
    read: &RuleInputHeaders,
    passed: &[PassthroughHeader],
) -> bool {
    let claims_identity = read.is_proxy_only(name) && !is_client_header(name.as_str());
    (is_proxy_only_header(name.as_str()) || is_underscore_variant(name, read) || claims_identity)
        && !passed.iter().any(|PassthroughHeader(passed)| passed == name)
}

/// Removes trailers that would be dropped or trusted as headers: some servers merge trailers into
/// headers.
pub(super) fn strip_trailers(trailers: &mut HeaderMap, read: &RuleInputHeaders) {
    let is_unsafe = |name: &&HeaderName| {
        let text = name.as_str();
        is_hop_by_hop(text)
            || is_proxy_only_header(text)
            || is_forbidden_trailer(text)
            || read.contains(name)
            || is_underscore_variant(name, read)
    };
    let removed: Vec<HeaderName> = trailers.keys().filter(is_unsafe).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// Headers that any client sends for the upstream, whether or not a rule reads them.
fn is_client_header(name: &str) -> bool {
    let prefixes = ["accept", "content-", "if-", "sec-"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "origin" | "range" | "referer" | "user-agent")
        || is_forbidden_trailer(name)
}

/// Headers that report where a request comes from. The gateway sets most of them.
fn is_forwarding_header(name: &str) -> bool {
    matches!(
        name,
        "forwarded"
            | "x-forwarded-for"
            | "x-forwarded-proto"
            | "x-forwarded-host"
            | "x-forwarded-port"
            | "x-real-ip"
    )
}

/// Headers that override the method or path of the request line; some frameworks route by them.
fn is_override_header(name: &str) -> bool {
    matches!(
        name,
        "x-http-method-override"
            | "x-http-method"
            | "x-method-override"
            | "x-forwarded-method"
            | "x-original-method"
            | "x-original-url"
            | "x-original-uri"
            | "x-rewrite-url"
            | "x-forwarded-uri"
            | "x-forwarded-path"
            | "x-forwarded-prefix"
    )
}

fn is_proxy_only_header(name: &str) -> bool {
    is_forwarding_header(name) || is_override_header(name)
}

/// Whether the name is a variant of a protected header: many servers map `x-real-ip` and
/// `x_real_ip` to one variable.
fn is_underscore_variant(name: &HeaderName, read: &RuleInputHeaders) -> bool {
    let text = name.as_str();
    let dashed = || text.replace('_', "-");
    let is_known = |name: String| is_proxy_only_header(&name) || is_hop_by_hop(&name);
    (text.contains('_') && is_known(dashed())) || read.contains_underscore_variant(name)
}

/// Fields that are not allowed in trailers (RFC 9110 section 6.5.1), or that the gateway changes as
/// headers.
fn is_forbidden_trailer(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "cache-control"
            | "content-encoding"
            | "content-length"
            | "content-range"
            | "content-type"
            | "cookie"
            | "expect"
            | "host"
            | "max-forwards"
            | "set-cookie"
            | "te"
            | "trailer"
            | "via"
            | "x-request-id"
    )
}

impl fmt::Display for PassthroughHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidName => "not a valid header name",
            Self::Reserved => "reserved: the gateway sets or removes this header itself",
        })
    }
}

impl std::error::Error for PassthroughHeaderError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_headers() -> RuleInputHeaders {
        ["x-api-key", "x_tenant"].into_iter().map(HeaderName::from_static).collect()
    }

    fn dropped(name: &'static str, passed: &[PassthroughHeader]) -> bool {
        is_dropped(&HeaderName::from_static(name), &rule_headers(), passed)
    }

    #[test]
    fn proxy_headers_and_underscore_variants_are_dropped() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-forwarded_for",
            "x_real_ip",
            "x-http-method-override",
            "x_http_method_override",
            "x-http-method",
            "x-method-override",
            "x-original-uri",
            "x-forwarded-uri",
            "x-forwarded-path",
            "x-forwarded-prefix",
            "transfer_encoding",
            "x_api_key",
            "x-api_key",
            "x-tenant",
        ] {
            assert!(dropped(name, &[]), "{name}");
        }
        for name in ["x-api-key", "x_tenant", "x_mine", "x-api-keys", "accept", "cookie"] {
            assert!(!dropped(name, &[]), "{name}");
        }
    }

    #[test]
    fn identity_headers_of_proxies_are_dropped() {
        let read = |name| {
            let read: RuleInputHeaders = [].into_iter().collect();
            let name = HeaderName::from_static(name);
            is_dropped(&name, &read.with_proxy_headers([name.clone()]), &[])
        };
        for name in ["x-user-id", "x-tier", "tenant"] {
            assert!(read(name), "{name}");
        }
        for name in ["authorization", "cookie", "user-agent", "accept-language", "content-type"] {
            assert!(!read(name), "{name}");
        }
    }

    #[test]
    fn passthrough_headers_exclude_forwarding_headers() {
        let passed = |name: &str| name.parse::<PassthroughHeader>();
        let list = [passed("X-HTTP-Method-Override").unwrap(), passed("x_api_key").unwrap()];
        assert!(!dropped("x-http-method-override", &list) && !dropped("x_api_key", &list));
        assert!(dropped("x_http_method_override", &list), "only the exact spelling is passed");
        for name in ["X-Forwarded-For", "forwarded", "x-real-ip", "connection"] {
            assert_eq!(passed(name), Err(PassthroughHeaderError::Reserved), "{name}");
        }
        assert_eq!(passed("no name"), Err(PassthroughHeaderError::InvalidName));
    }

    #[test]
    fn unsafe_trailers_are_stripped() {
        let names = [
            "x-forwarded-for",
            "x_real_ip",
            "x-api-key",
            "x_api_key",
            "authorization",
            "host",
            "x-http-method-override",
            "connection",
            "x-request-id",
            "x-checksum",
            "grpc-status",
        ];
        let pair = |name| (HeaderName::from_static(name), http::HeaderValue::from_static("1"));
        let mut trailers: HeaderMap = names.into_iter().map(pair).collect();
        strip_trailers(&mut trailers, &rule_headers());
        let mut left: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["grpc-status", "x-checksum"]);
    }
}
