//! Forward-auth: a proxy sends the headers of a request that it holds and asks whether it may pass.
//!
//! nginx, Traefik, Caddy, HAProxy and Envoy support this, each in its own dialect. The original
//! request is restored from the proxy's headers, and its facts are extracted as in the gateway.
//! Only trusted proxies may supply these headers. Contradicting headers are rejected: clients can
//! set every header that the proxy does not overwrite.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;
use tidegate_core::store::Store;
use tidegate_rules::{ApiKind, Rule};

use super::HttpApi;
use tidegate_identity::method;
use tidegate_identity::path;
use tidegate_response as respond;
use tidegate_telemetry::trace::{self, ServerSpan};
use tidegate_web::Peer;
use tidegate_web::problem::HttpError;

/// Path of the endpoint. Some proxies append the path of the original request (Envoy's
/// `path_prefix`).
pub(super) const PATH: &str = "/v1/forward-auth";

const METHOD_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
const TARGET_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-original-uri"),
];

/// Host of the original request; `Host` is often that of this API.
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The decision, for proxies whose configuration can only inspect headers.
const DECISION: HeaderName = HeaderName::from_static("x-ratelimit-decision");
const ALLOW: HeaderValue = HeaderValue::from_static("allow");
const DENY: HeaderValue = HeaderValue::from_static("deny");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl<S: Store, L: Store> HttpApi<S, L> {
    /// Decides the request that a proxy holds.
    pub(super) async fn forward_auth(
        &self,
        mut head: Parts,
        peer: Peer,
        span: Option<&ServerSpan>,
    ) -> Result<Response<Full<Bytes>>, HttpError> {
        let denied = denial_status(&head.uri)?;
        let rules = self.limiter.rules();
        let extractor = self.extractors.get_or_create(&rules)?;
        let trusted = extractor.trusts(peer);
        restore_original_request(&mut head, peer, trusted)?;
        let path = path::canonical(head.uri.path()).map_err(|why| bad_request(&why.to_string()))?;
        let mut facts = extractor.extract_facts(&head, &path, peer)?;
        facts.set_api(ApiKind::ForwardAuth);
        // The proxy keeps the body, so its length is unknown here.
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().request_cost(values, None)
        };
        let deciding = span.and_then(ServerSpan::start_decision);
        let decision =
            self.limiter.decide_no_queue_with_rules(Arc::clone(&rules), &facts, cost).await;
        trace::finish_decision(deciding, std::slice::from_ref(&decision));
        let settings = &self.settings.headers;
        let random = settings.jitter_seed(&decision, &facts);
        drop(facts);
        if decision.is_allowed() {
            // 200 rather than 204: Envoy accepts no other status.
            let mut response = Response::new(Full::default());
            respond::write_headers(&decision, settings, random, response.headers_mut());
            return Ok(with_decision_header(response, ALLOW));
        }
        // Without a content type, a gRPC client gets a plain HTTP refusal: proxies do not forward
        // the gRPC form.
        head.headers.remove(CONTENT_TYPE);
        let mut response = respond::refusal_response(&decision, &head.headers, settings, random);
        *response.status_mut() = denied;
        Ok(with_decision_header(response, DENY))
    }
}

/// Adds the decision header and forbids caching: some proxies cache responses, and a decision is
/// valid for one request only.
fn with_decision_header(
    mut response: Response<Full<Bytes>>,
    decision: HeaderValue,
) -> Response<Full<Bytes>> {
    response.headers_mut().insert(DECISION, decision);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Returns the status for refusals, which the query may set: nginx accepts only 401 and 403.
fn denial_status(uri: &Uri) -> Result<StatusCode, HttpError> {
    let query = uri.query().filter(|_| uri.path() == PATH).unwrap_or_default();
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("deny="));
    match (values.next(), values.next()) {
        (None | Some("429"), None) => Ok(StatusCode::TOO_MANY_REQUESTS),
        (Some("403"), None) => Ok(StatusCode::FORBIDDEN),
        _ => {
            Err(bad_request("invalid value; use deny=403 for nginx, or deny=429")
                .with_field("deny"))
        }
    }
}

/// Replaces the proxy's method and target by those of the original request.
fn restore_original_request(head: &mut Parts, peer: Peer, trusted: bool) -> Result<(), HttpError> {
    let is_present = |name: &HeaderName| head.headers.contains_key(name);
    if !trusted && METHOD_HEADERS.iter().chain(&TARGET_HEADERS).any(is_present) {
        let (what, example) = match peer {
            Peer::Ip(_) => ("add the proxy's address", "127.0.0.1/32"),
            Peer::Unix => ("add Unix sockets", "unix"),
        };
        let detail = format!(
            "this peer is not a trusted proxy; {what} in the rules, for instance \
             identity: {{ ip: {{ trusted_proxies: [{example}] }} }}"
        );
        let problem = HttpError::new(StatusCode::FORBIDDEN, detail);
        return Err(problem.with_field("identity.ip.trusted_proxies"));
    }
    let target = match consistent_value(&head.headers, &TARGET_HEADERS, parse_target)? {
        Some(target) => target,
        None => target_from_path(&head.uri)?,
    };
    method::normalize(&mut head.method);
    head.method = match consistent_value(&head.headers, &METHOD_HEADERS, parse_method)? {
        Some(method) => method,
        // HAProxy always sends HEAD, regardless of the original method.
        None if head.method == Method::HEAD => Method::GET,
        None => head.method.clone(),
    };
    head.uri = Uri::from(target);
    if let Some(host) = trusted.then(|| head.headers.get(FORWARDED_HOST)).flatten().cloned() {
        head.headers.insert(HOST, host);
    }
    Ok(())
}

/// Returns the target that follows the endpoint's path, or `/`.
fn target_from_path(uri: &Uri) -> Result<PathAndQuery, HttpError> {
    let own = uri.path_and_query().map_or("", PathAndQuery::as_str);
    match own.strip_prefix(PATH) {
        Some(rest) if rest.starts_with('/') => {
            parse_target(rest).ok_or_else(|| bad_request("invalid path after /v1/forward-auth"))
        }
        _ => Ok(PathAndQuery::from_static("/")),
    }
}

/// Returns the value that the given headers agree on, if any is present.
fn consistent_value<T: PartialEq>(
    headers: &HeaderMap,
    names: &[HeaderName],
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, HttpError> {
    let mut agreed = None;
    for name in names {
        for value in headers.get_all(name) {
            let parsed = value.to_str().ok().and_then(&read);
            let parsed =
                parsed.ok_or_else(|| bad_request("invalid value").with_field(name.as_str()))?;
            match &agreed {
                Some(known) if *known != parsed => {
                    let detail = "contradicts another header about the original request";
                    return Err(bad_request(detail).with_field(name.as_str()));
                }
                _ => agreed = Some(parsed),
            }
        }
    }
    Ok(agreed)
}

/// Parses a method and converts a standard method to upper case.
fn parse_method(text: &str) -> Option<Method> {
    let mut given = text.parse().ok()?;
    method::normalize(&mut given);
    Some(given)
}

/// Parses a path with its query, also from an absolute URL (`X-Original-URL`).
fn parse_target(text: &str) -> Option<PathAndQuery> {
    if text.starts_with('/') {
        return text.parse().ok();
    }
    let uri: Uri = text.parse().ok()?;
    uri.authority()?;
    uri.path_and_query().cloned()
}

fn bad_request(detail: &str) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, detail)
}
