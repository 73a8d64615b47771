//! Forward-auth: a proxy asks, with the headers of a request that it holds, whether that may pass.
//!
//! nginx, Traefik, Caddy, HAProxy and Envoy do so, each in its own dialect. The request is put together
//! from what the proxy tells of it and then taken apart as the gateway would. Only trusted proxies are
//! heard, and never two who contradict each other: what a proxy does not set itself, its clients can.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;
use tidegate_core::store::Store;
use tidegate_rules::{Door as AskedAt, Rule};

use super::Door;
use crate::Peer;
use crate::method;
use crate::path;
use crate::problem::Problem;
use crate::respond;
use crate::trace::{self, Serving};

/// Where a proxy asks. What follows it is the path of the request, for those that put it there
/// (Envoy's `path_prefix`).
pub(super) const PATH: &str = "/v1/forward-auth";

const METHODS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
const TARGETS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-original-uri"),
];

/// The host of the request that the proxy holds; `Host` is often that of this API.
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What was decided, for proxies whose configuration can only look at headers.
const DECISION: HeaderName = HeaderName::from_static("x-ratelimit-decision");
const ALLOW: HeaderValue = HeaderValue::from_static("allow");
const DENY: HeaderValue = HeaderValue::from_static("deny");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl<S: Store, L: Store> Door<S, L> {
    /// Decides the request that a proxy holds.
    pub(super) async fn forward_auth(
        &self,
        mut head: Parts,
        peer: Peer,
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let denied = denied_status(&head.uri)?;
        let rules = self.limiter.rules();
        let extractor = self.extractors.of(&rules)?;
        let trusted = extractor.trusts(peer);
        rebuild(&mut head, peer, trusted)?;
        let path = path::canonical(head.uri.path()).map_err(|why| bad(&why.to_string()))?;
        let mut facts = extractor.facts(&head, &path, peer)?;
        facts.set_door(AskedAt::ForwardAuth);
        // The proxy keeps the body, and with it its length.
        let cost = |rule: &Rule| {
            let values =
                |name: &str| head.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
            rule.cost().of_request(values, None)
        };
        let deciding = serving.and_then(Serving::decides);
        let decision = self.limiter.decide_at_once_under(Arc::clone(&rules), &facts, cost).await;
        trace::decided(deciding, std::slice::from_ref(&decision));
        let settings = &self.settings.headers;
        let random = settings.draw(&decision, &facts);
        drop(facts);
        if decision.is_allowed() {
            // 200 and not 204: Envoy lets nothing else pass.
            let mut response = Response::new(Full::default());
            respond::headers(&decision, settings, random, response.headers_mut());
            return Ok(marked(response, ALLOW));
        }
        // A gRPC caller would be told in a form that a proxy does not pass on.
        head.headers.remove(CONTENT_TYPE);
        let mut response = respond::refusal(&decision, &head.headers, settings, random);
        *response.status_mut() = denied;
        Ok(marked(response, DENY))
    }
}

/// No decision is for two requests: some proxies keep answers.
fn marked(mut response: Response<Full<Bytes>>, decision: HeaderValue) -> Response<Full<Bytes>> {
    response.headers_mut().insert(DECISION, decision);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// The status of a refusal: nginx takes no other than 401 and 403.
fn denied_status(uri: &Uri) -> Result<StatusCode, Problem> {
    let query = uri.query().filter(|_| uri.path() == PATH).unwrap_or_default();
    let mut asked = query.split('&').filter_map(|pair| pair.strip_prefix("deny="));
    match (asked.next(), asked.next()) {
        (None | Some("429"), None) => Ok(StatusCode::TOO_MANY_REQUESTS),
        (Some("403"), None) => Ok(StatusCode::FORBIDDEN),
        _ => Err(bad("a refusal is 429, or 403 for nginx: write ?deny=403").with_field("deny")),
    }
}

/// Puts the method and target of the request that the proxy holds in place of the proxy's own.
fn rebuild(head: &mut Parts, peer: Peer, trusted: bool) -> Result<(), Problem> {
    let tells = |name: &HeaderName| head.headers.contains_key(name);
    if !trusted && METHODS.iter().chain(&TARGETS).any(tells) {
        let (what, example) = match peer {
            Peer::Ip(_) => ("name the proxy's address", "127.0.0.1/32"),
            Peer::Unix => ("name unix sockets", "unix"),
        };
        let detail = format!(
            "whoever asks is not trusted to speak for others; {what} in the rules, for instance \
             identity: {{ ip: {{ trusted_proxies: [{example}] }} }}"
        );
        let problem = Problem::new(StatusCode::FORBIDDEN, detail);
        return Err(problem.with_field("identity.ip.trusted_proxies"));
    }
    let target = match agreed(&head.headers, &TARGETS, target)? {
        Some(target) => target,
        None => own_target(&head.uri)?,
    };
    method::respell(&mut head.method);
    head.method = match agreed(&head.headers, &METHODS, standard_method)? {
        Some(method) => method,
        // HAProxy asks with HEAD whatever it holds.
        None if head.method == Method::HEAD => Method::GET,
        None => head.method.clone(),
    };
    head.uri = Uri::from(target);
    if let Some(host) = trusted.then(|| head.headers.get(FORWARDED_HOST)).flatten().cloned() {
        head.headers.insert(HOST, host);
    }
    Ok(())
}

/// What follows our own path.
fn own_target(uri: &Uri) -> Result<PathAndQuery, Problem> {
    let own = uri.path_and_query().map_or("", PathAndQuery::as_str);
    match own.strip_prefix(PATH) {
        Some(rest) if rest.starts_with('/') => target(rest).ok_or_else(|| bad("no target")),
        _ => Ok(PathAndQuery::from_static("/")),
    }
}

/// What one or several headers say with one voice.
fn agreed<T: PartialEq>(
    headers: &HeaderMap,
    names: &[HeaderName],
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let mut agreed = None;
    for name in names {
        for value in headers.get_all(name) {
            let said = value.to_str().ok().and_then(&read);
            let said = said.ok_or_else(|| bad("it cannot be read").with_field(name.as_str()))?;
            match &agreed {
                Some(known) if *known != said => {
                    let detail = "headers contradict each other on the request that is asked about";
                    return Err(bad(detail).with_field(name.as_str()));
                }
                _ => agreed = Some(said),
            }
        }
    }
    Ok(agreed)
}

/// A method, a standard one in upper case.
fn standard_method(text: &str) -> Option<Method> {
    let mut given = text.parse().ok()?;
    method::respell(&mut given);
    Some(given)
}

/// A path with its query, also of a whole address (`X-Original-URL`).
fn target(text: &str) -> Option<PathAndQuery> {
    if text.starts_with('/') {
        return text.parse().ok();
    }
    let uri: Uri = text.parse().ok()?;
    uri.authority()?;
    uri.path_and_query().cloned()
}

fn bad(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}
