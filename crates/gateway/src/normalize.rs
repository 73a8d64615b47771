//! Validates and normalizes the head of a request: one host, a target of limited length, one
//! canonical path. Rules match and key by the normalized request, and the upstream receives it.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode, Uri, Version};

use tidegate_identity::path;
use tidegate_web::problem::HttpError;

/// The maximum length of a request target, in bytes.
pub(super) const MAX_TARGET_BYTES: usize = 8 * 1024;

/// Validates the head of a request and normalizes it for forwarding: the target becomes an absolute
/// path in canonical form with the query unchanged, and the `Host` header is set. Returns the host;
/// only an HTTP/1.0 request may have none.
pub(super) fn normalize_head(head: &mut Parts) -> Result<Option<HeaderValue>, HttpError> {
    let bad = |detail: &str| HttpError::new(StatusCode::BAD_REQUEST, detail);
    if head.method == Method::CONNECT {
        let detail = "CONNECT is not supported: this is not a forward proxy";
        return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    }
    // hyper rejects repeated lengths over HTTP/1.1, but accepts equal ones over HTTP/2.
    if head.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(bad("repeated Content-Length header"));
    }
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target.len() > MAX_TARGET_BYTES {
        let detail = format!("the request target is longer than {MAX_TARGET_BYTES} bytes");
        return Err(HttpError::new(StatusCode::URI_TOO_LONG, detail));
    }
    let canonical = path::canonical(head.uri.path()).map_err(|why| bad(&why.to_string()))?;
    let canonical_target = match canonical {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(with_query(path, head.uri.query())?),
    };
    let host = request_host(head)?;
    if head.uri.authority().is_some() || canonical_target.is_some() {
        let target = match canonical_target {
            Some(target) => target,
            None => head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
        };
        head.uri = Uri::from(target);
    }
    Ok(match host {
        RequestHost::Header(host) => Some(host),
        RequestHost::Target(host) => {
            head.headers.insert(HOST, host.clone());
            Some(host)
        }
        RequestHost::None => None,
    })
}

/// Where a request names its host.
enum RequestHost {
    /// In the `Host` header.
    Header(HeaderValue),
    /// Only in the request target.
    Target(HeaderValue),
    None,
}

fn with_query(path: String, query: Option<&str>) -> Result<PathAndQuery, HttpError> {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    PathAndQuery::try_from(target).map_err(|_| {
        HttpError::new(StatusCode::BAD_REQUEST, "the request target is not a valid path")
    })
}

/// Finds the host of a request. hyper accepts requests that servers are known to interpret
/// differently: without a host, with several, or with one that contradicts the target (RFC 9112
/// section 3.2).
fn request_host(head: &Parts) -> Result<RequestHost, HttpError> {
    let bad = |detail: &str| Err(HttpError::new(StatusCode::BAD_REQUEST, detail));
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next(), head.uri.authority()) {
        (_, Some(_), _) => bad("repeated Host header"),
        (Some(host), None, None) if is_valid_host(host.as_bytes()) => {
            Ok(RequestHost::Header(host.clone()))
        }
        (Some(host), None, Some(authority))
            if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Ok(RequestHost::Header(host.clone()))
        }
        (Some(_), None, Some(_)) => {
            bad("the Host header and the request target name different hosts")
        }
        (Some(_), None, None) => bad("the Host header is not a valid host"),
        (None, _, Some(authority)) if is_valid_host(authority.as_str().as_bytes()) => {
            let host = HeaderValue::from_str(authority.as_str());
            host.map(RequestHost::Target).or(bad("the request target has no valid host"))
        }
        (None, _, Some(_)) => bad("the request target has no valid host"),
        // HTTP/1.0 requires no host.
        (None, _, None) if head.version < Version::HTTP_11 => Ok(RequestHost::None),
        (None, _, None) => bad("missing Host header"),
    }
}

/// A host with an optional port (RFC 3986 section 3.2.2), without user information or delimiters
/// that would end it early.
fn is_valid_host(text: &[u8]) -> bool {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(byte);
    !text.is_empty() && text.iter().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn normalized(head: http::request::Builder) -> Result<(String, Option<String>), u16> {
        let (mut head, ()) = head.body(()).unwrap().into_parts();
        normalize_head(&mut head).map_err(|problem| problem.status.as_u16())?;
        let host = head.headers.get(HOST).map(|host| host.to_str().unwrap().to_owned());
        Ok((head.uri.to_string(), host))
    }

    #[test]
    fn target_and_host_are_normalized() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/../b//c?x=/../&y=%2f", "/b/c?x=/../&y=%2f"),
            ("/%61?%61", "/a?%61"),
            ("http://Example.com", "/"),
            ("http://example.com/%7ea/.?q", "/~a/?q"),
        ] {
            let result = normalized(Request::get(target).header(HOST, "example.com"));
            assert_eq!(
                result,
                Ok((expected.to_owned(), Some("example.com".to_owned()))),
                "{target}"
            );
        }
        let result = normalized(Request::get("http://example.com:8080/x").version(Version::HTTP_2));
        assert_eq!(result, Ok(("/x".to_owned(), Some("example.com:8080".to_owned()))));
        assert_eq!(
            normalized(Request::get("/").version(Version::HTTP_10)),
            Ok(("/".to_owned(), None)),
            "HTTP/1.0 needs no host"
        );
    }

    #[test]
    fn ambiguous_requests_are_rejected() {
        let with = |target: &str, hosts: &[&str]| {
            let request = Request::get(target);
            normalized(hosts.iter().fold(request, |request, host| request.header(HOST, *host)))
        };
        for (target, hosts) in [
            ("/", &[][..]),
            ("/", &["a", "a"]),
            ("/", &["a", "b"]),
            ("/", &[""]),
            ("/", &["a b"]),
            ("/", &["user@a"]),
            ("/", &["a/b"]),
            ("/", &["a?b"]),
            ("/", &["a#b"]),
            ("http://a/", &["b"]),
            ("http://a/", &["a:80"]),
            ("http://u@a/", &[]),
            ("/a%2fb", &["a"]),
            ("/a%00", &["a"]),
            ("/%5c..", &["a"]),
        ] {
            assert_eq!(with(target, hosts), Err(400), "{target} {hosts:?}");
        }
        assert_eq!(normalized(Request::connect("a:443")), Err(405));
        let length = |request: http::request::Builder| request.header(CONTENT_LENGTH, "2");
        assert_eq!(normalized(length(length(Request::post("http://a/")))), Err(400));
        assert!(normalized(length(Request::post("http://a/"))).is_ok());
        assert_eq!(normalized(Request::options("*").header(HOST, "a")), Err(400));
        let long = format!("/{}", "a".repeat(MAX_TARGET_BYTES));
        assert_eq!(with(&long, &["a"]), Err(414));
    }
}
