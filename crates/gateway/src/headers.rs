//! Rewrites headers on the way through the gateway: removes hop-by-hop headers (RFC 9110 section
//! 7.6.1) and sets the forwarding headers.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::header::{CONNECTION, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE, VIA};
use smallvec::SmallVec;

use super::header_policy::{PassthroughHeader, is_dropped, is_hop_by_hop};
use tidegate_identity::RuleInputHeaders;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const VIA_TIDEGATE: HeaderValue = HeaderValue::from_static("1.1 tidegate");
const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");

/// The origin of a request, for its forwarding headers.
#[derive(Clone, Debug)]
pub(super) struct ForwardingContext<'a> {
    /// The client's address, if known.
    pub(super) client: Option<IpAddr>,
    /// The peer's address; `None` for a Unix socket.
    pub(super) peer: Option<IpAddr>,
    /// The peer's address as text.
    pub(super) peer_text: Option<HeaderValue>,
    /// Whether the peer's forwarding headers are trusted.
    pub(super) peer_is_trusted: bool,
    /// Whether the request arrived over TLS.
    pub(super) tls: bool,
    /// The requested host, if the request names one.
    pub(super) host: Option<HeaderValue>,
    /// The headers that the rules read.
    pub(super) rule_headers: &'a RuleInputHeaders,
    /// Headers that untrusted clients may send although the gateway drops them by default.
    pub(super) passthrough: &'a [PassthroughHeader],
}

/// Removes hop-by-hop headers.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let removed = matching_names(headers, |name| is_hop_by_hop(name.as_str()));
    remove_headers(headers, removed, |_| false);
}

/// Turns the headers of a client's request into those of the upstream request.
pub(super) fn rewrite_request_headers(headers: &mut HeaderMap, forwarding: &ForwardingContext<'_>) {
    let ForwardingContext { peer_is_trusted, rule_headers: read, passthrough: passed, .. } =
        *forwarding;
    // The gateway itself answers `Expect` when it starts to read the body.
    let removed = matching_names(headers, |name| {
        is_hop_by_hop(name.as_str())
            || matches!(name.as_str(), "te" | "expect")
            || (!peer_is_trusted && is_dropped(name, read, passed))
    });
    let trailers = removed.contains(&TE) && accepts_trailers(headers);
    remove_headers(headers, removed, |name| read.contains(name));
    if trailers {
        headers.insert(TE, TRAILERS);
    }
    headers.append(VIA, VIA_TIDEGATE);
    set_forwarding_headers(headers, forwarding);
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().any(|value| {
        let coding = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(b"trailers");
        value.as_bytes().split(|byte| *byte == b',').any(coding)
    })
}

/// A list of header names that is usually short.
type HeaderNameList = SmallVec<[HeaderName; 4]>;

/// The names of the headers that `wanted` selects. Most messages have few of them, so one pass over
/// all headers is cheaper than a lookup per name.
fn matching_names(headers: &HeaderMap, wanted: impl Fn(&HeaderName) -> bool) -> HeaderNameList {
    headers.keys().filter(|name| wanted(name)).cloned().collect()
}

/// Removes these headers, and the ones that `Connection` names unless `is_needed`.
fn remove_headers(
    headers: &mut HeaderMap,
    mut removed: HeaderNameList,
    is_needed: impl Fn(&HeaderName) -> bool,
) {
    if removed.contains(&CONNECTION) && !is_plain_keep_alive(headers) {
        let lines = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let names = lines.flat_map(|value| value.split(',')).map(str::trim);
        // By naming these, a client could hide them from the upstream.
        let names = names.filter_map(|name| name.parse().ok());
        let is_needed = |name: &HeaderName| {
            [HOST, FORWARDED, X_FORWARDED_FOR].contains(name) || is_needed(name)
        };
        removed.extend(names.filter(|name| !is_needed(name)));
    }
    for name in removed {
        headers.remove(name);
    }
}

/// Whether `Connection` names no header, which is the usual case.
fn is_plain_keep_alive(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONNECTION).iter();
    let first = lines.next().map(HeaderValue::as_bytes);
    lines.next().is_none() && matches!(first, Some(b"keep-alive" | b"close"))
}

/// Sets the `X-Forwarded-*` headers and `X-Real-IP`.
fn set_forwarding_headers(headers: &mut HeaderMap, forwarding: &ForwardingContext<'_>) {
    let ForwardingContext { client, peer, peer_text, tls, host, .. } = forwarding;
    // A Unix-socket peer has no address; appending a placeholder would make parsers of
    // X-Forwarded-For stop there.
    if let Some(peer) = peer_text {
        let chain = match forwarding.peer_is_trusted && headers.contains_key(X_FORWARDED_FOR) {
            true => extend_forwarded_for(headers, peer),
            false => peer.clone(),
        };
        headers.insert(X_FORWARDED_FOR, chain);
    }
    match (client, peer_text) {
        (Some(_), Some(text)) if client == peer => _ = headers.insert(X_REAL_IP, text.clone()),
        (Some(client), _) => _ = headers.insert(X_REAL_IP, ip_header_value(*client)),
        (None, _) => {}
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(if *tls { HTTPS } else { HTTP });
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
    }
}

/// The list that a trusted proxy sent, with the proxy's own address appended.
fn extend_forwarded_for(headers: &HeaderMap, peer: &HeaderValue) -> HeaderValue {
    let mut chain = BytesMut::with_capacity(64);
    for line in headers.get_all(X_FORWARDED_FOR) {
        chain.put_slice(line.as_bytes());
        chain.put_slice(b", ");
    }
    chain.put_slice(peer.as_bytes());
    // Cannot fail: it is made of valid header values.
    HeaderValue::from_maybe_shared(chain.freeze()).unwrap_or_else(|_| peer.clone())
}

/// An address as a header value.
fn ip_header_value(ip: IpAddr) -> HeaderValue {
    // Cannot fail: digits, dots and colons are valid in a header.
    HeaderValue::try_from(ip.to_string()).unwrap_or(HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
        list.iter().map(pair).collect::<Vec<(HeaderName, HeaderValue)>>().into_iter().fold(
            HeaderMap::new(),
            |mut map, (name, value)| {
                map.append(name, value);
                map
            },
        )
    }

    fn sorted_pairs(headers: &HeaderMap) -> Vec<(&str, &str)> {
        let mut pairs: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        pairs.sort_unstable();
        pairs
    }

    fn forwarding(peer_is_trusted: bool, host: &'static str) -> ForwardingContext<'static> {
        static READ: LazyLock<RuleInputHeaders> =
            LazyLock::new(|| [HeaderName::from_static("x-api-key")].into_iter().collect());
        let ip = |text: &str| text.parse().unwrap();
        let (client, peer) = (ip("203.0.113.7"), ip("10.0.0.1"));
        let (client, peer, peer_text) = (Some(client), Some(peer), Some(ip_header_value(peer)));
        let host = Some(HeaderValue::from_static(host));
        let (read, passed) = (&*READ, &[]);
        ForwardingContext {
            client,
            peer,
            peer_text,
            peer_is_trusted,
            tls: true,
            host,
            rule_headers: read,
            passthrough: passed,
        }
    }

    #[test]
    fn hop_by_hop_headers_are_stripped() {
        let mut map = headers(&[
            ("connection", "close, X-Hop"),
            ("connection", "keep-alive, host"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAA"),
            ("host", "a"),
            ("x-stays", "1"),
        ]);
        strip_hop_by_hop(&mut map);
        assert_eq!(sorted_pairs(&map), [("host", "a"), ("x-stays", "1")]);
    }

    #[test]
    fn untrusted_forwarding_headers_are_replaced() {
        let mut map = headers(&[
            ("host", "a"),
            ("te", "gzip, Trailers"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "ftp"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("x-original-url", "/admin"),
            ("x-http-method-override", "DELETE"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x_api_key", "theirs"),
        ]);
        rewrite_request_headers(&mut map, &forwarding(false, "a"));
        let expected = [
            ("host", "a"),
            ("te", "trailers"),
            ("via", "1.1 tidegate"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "a"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.7"),
        ];
        assert_eq!(sorted_pairs(&map), expected);
    }

    #[test]
    fn connection_cannot_remove_rule_headers() {
        let mut map = headers(&[
            ("connection", "close, X-API-Key, X-Hop"),
            ("x-api-key", "mine"),
            ("x-hop", "1"),
        ]);
        rewrite_request_headers(&mut map, &forwarding(false, "a"));
        assert_eq!(map.get("x-api-key").unwrap(), "mine");
        assert_eq!(map.get("x-hop"), None);
    }

    #[test]
    fn trusted_forwarding_chain_is_extended() {
        let mut map = headers(&[
            ("host", "internal"),
            ("x-forwarded-for", "9.9.9.9"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "public"),
            ("via", "1.0 fred"),
            ("x-http-method-override", "DELETE"),
            ("x_forwarded_for", "1.1.1.1"),
        ]);
        rewrite_request_headers(&mut map, &forwarding(true, "internal"));
        let expected = [
            ("host", "internal"),
            ("via", "1.0 fred"),
            ("via", "1.1 tidegate"),
            ("x-forwarded-for", "9.9.9.9, 203.0.113.7, 10.0.0.1"),
            ("x-forwarded-host", "public"),
            ("x-forwarded-proto", "http"),
            ("x-http-method-override", "DELETE"),
            ("x-real-ip", "203.0.113.7"),
            ("x_forwarded_for", "1.1.1.1"),
        ];
        assert_eq!(sorted_pairs(&map), expected);
    }
}
