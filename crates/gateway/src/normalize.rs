//! What of a request is accepted at all: one host, a target of reasonable length, one spelling of its
//! path. What is accepted is what is matched, keyed and forwarded.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode, Uri, Version};

use tidegate_identity::path;
use tidegate_web::problem::HttpError;

/// The longest target of a request.
pub(super) const MAX_TARGET_BYTES: usize = 8 * 1024;

/// Checks the head of a request and puts it into the form in which it goes on: the target is an
/// absolute path in its canonical spelling with the query as it came, and `RequestHost` says for whom. That is returned
/// too; only HTTP/1.0 does without.
pub(super) fn normalize_head(head: &mut Parts) -> Result<Option<HeaderValue>, HttpError> {
    let bad = |detail: &str| HttpError::new(StatusCode::BAD_REQUEST, detail);
    if head.method == Method::CONNECT {
        let detail = "this is no forward proxy: CONNECT is not served";
        return Err(HttpError::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    }
    // Over HTTP/1.1 this was refused before; over HTTP/2 equal lengths come as far as here.
    if head.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(bad("there are several Content-Length headers"));
    }
    let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str);
    if target.len() > MAX_TARGET_BYTES {
        let detail = format!("the target has more than {MAX_TARGET_BYTES} bytes");
        return Err(HttpError::new(StatusCode::URI_TOO_LONG, detail));
    }
    let canonical = path::canonical(head.uri.path()).map_err(|why| bad(&why.to_string()))?;
    let respelt = match canonical {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(with_query(path, head.uri.query())?),
    };
    let host = request_host(head)?;
    if head.uri.authority().is_some() || respelt.is_some() {
        let target = match respelt {
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

/// Where a request says for whom it is.
enum RequestHost {
    /// In its header.
    Header(HeaderValue),
    /// Only in its target.
    Target(HeaderValue),
    None,
}

fn with_query(path: String, query: Option<&str>) -> Result<PathAndQuery, HttpError> {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    PathAndQuery::try_from(target)
        .map_err(|_| HttpError::new(StatusCode::BAD_REQUEST, "the target is no path"))
}

/// For whom the request is. hyper lets pass what servers are known to disagree on: no host, several, and one
/// that contradicts the target (RFC 9112 section 3.2).
fn request_host(head: &Parts) -> Result<RequestHost, HttpError> {
    let bad = |detail: &str| Err(HttpError::new(StatusCode::BAD_REQUEST, detail));
    let mut said = head.headers.get_all(HOST).iter();
    match (said.next(), said.next(), head.uri.authority()) {
        (_, Some(_), _) => bad("there are several Host headers"),
        (Some(host), None, None) if is_valid_host(host.as_bytes()) => {
            Ok(RequestHost::Header(host.clone()))
        }
        (Some(host), None, Some(authority))
            if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Ok(RequestHost::Header(host.clone()))
        }
        (Some(_), None, Some(_)) => bad("Host and the target name different hosts"),
        (Some(_), None, None) => bad("Host names no host"),
        (None, _, Some(authority)) if is_valid_host(authority.as_str().as_bytes()) => {
            let host = HeaderValue::from_str(authority.as_str());
            host.map(RequestHost::Target).or(bad("the target names no host"))
        }
        (None, _, Some(_)) => bad("the target names no host"),
        // HTTP/1.0 does without.
        (None, _, None) if head.version < Version::HTTP_11 => Ok(RequestHost::None),
        (None, _, None) => bad("there is no Host header"),
    }
}

/// A host and perhaps a port (RFC 3986 section 3.2.2): no user, and nothing that ends it early.
fn is_valid_host(text: &[u8]) -> bool {
    let may_be = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(byte);
    !text.is_empty() && text.iter().all(may_be)
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
            let told = normalized(Request::get(target).header(HOST, "example.com"));
            assert_eq!(told, Ok((expected.to_owned(), Some("example.com".to_owned()))), "{target}");
        }
        let told = normalized(Request::get("http://example.com:8080/x").version(Version::HTTP_2));
        assert_eq!(told, Ok(("/x".to_owned(), Some("example.com:8080".to_owned()))));
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
