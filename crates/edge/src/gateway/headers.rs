//! What changes in the headers on the way: those for one hop stay behind (RFC 9110 section 7.6.1), and
//! who forwards for whom is said.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::header::{
    CONNECTION, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");
const X_REWRITE_URL: HeaderName = HeaderName::from_static("x-rewrite-url");

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const VIA_US: HeaderValue = HeaderValue::from_static("1.1 tidegate");
const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");

/// For one hop, whether or not `Connection` names them.
const HOP_BY_HOP: [HeaderName; 7] = [
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// What clients without a trusted proxy before them may not claim.
const CLAIMS: [HeaderName; 8] = [
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_PROTO,
    X_FORWARDED_HOST,
    X_FORWARDED_PORT,
    X_REAL_IP,
    // Some frameworks route by them (PROTOCOLS.md 5.5).
    X_ORIGINAL_URL,
    X_REWRITE_URL,
];

/// For whom a request is forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarding {
    /// The client, as far as it is known.
    pub(super) client: IpAddr,
    /// Who sent it to us.
    pub(super) peer: IpAddr,
    /// Whether the peer is believed about those before it.
    pub(super) peer_is_trusted: bool,
    /// Whether it came over TLS.
    pub(super) tls: bool,
}

/// Takes out what is for one hop only.
pub(super) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: SmallVec<[HeaderName; 4]> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            // Nobody may take these away from the next server by naming them here.
            .filter(|name| ![HOST, FORWARDED, X_FORWARDED_FOR].contains(name))
            .collect();
        headers.remove(CONNECTION);
        for name in named {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Makes the headers of a request those that go on to the next server.
pub(super) fn forward(headers: &mut HeaderMap, forwarding: &Forwarding) {
    let trailers = headers.get_all(TE).iter().any(|value| {
        let coding = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(b"trailers");
        value.as_bytes().split(|byte| *byte == b',').any(coding)
    });
    strip(headers);
    headers.remove(TE);
    if trailers {
        headers.insert(TE, TRAILERS);
    }
    // Answered by us when the body is asked for.
    headers.remove(EXPECT);
    headers.append(VIA, VIA_US);
    claim(headers, forwarding);
}

/// Says who forwards for whom. What an untrusted peer claims is not passed on.
fn claim(headers: &mut HeaderMap, forwarding: &Forwarding) {
    let Forwarding { client, peer, peer_is_trusted, tls } = *forwarding;
    if !peer_is_trusted {
        for name in CLAIMS {
            headers.remove(name);
        }
    }
    let mut chain = BytesMut::with_capacity(64);
    for line in headers.get_all(X_FORWARDED_FOR) {
        chain.put_slice(line.as_bytes());
        chain.put_slice(b", ");
    }
    write_ip(&mut chain, peer);
    insert(headers, X_FORWARDED_FOR, chain);
    let mut real = BytesMut::with_capacity(40);
    write_ip(&mut real, client);
    insert(headers, X_REAL_IP, real);
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, if tls { HTTPS } else { HTTP });
    }
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

fn write_ip(text: &mut BytesMut, ip: IpAddr) {
    // Writing into memory does not fail.
    let _ = write!(text, "{ip}");
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: BytesMut) {
    // Values of headers and addresses are values of headers.
    if let Ok(value) = HeaderValue::from_maybe_shared(text.freeze()) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
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

    fn told(headers: &HeaderMap) -> Vec<(&str, &str)> {
        let mut told: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        told.sort_unstable();
        told
    }

    fn forwarding(peer_is_trusted: bool) -> Forwarding {
        let ip = |text: &str| text.parse().unwrap();
        Forwarding { client: ip("203.0.113.7"), peer: ip("10.0.0.1"), peer_is_trusted, tls: true }
    }

    #[test]
    fn headers_for_one_hop_stay_behind() {
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
        strip(&mut map);
        assert_eq!(told(&map), [("host", "a"), ("x-stays", "1")]);
    }

    #[test]
    fn an_untrusted_peer_claims_nothing() {
        let mut map = headers(&[
            ("host", "a"),
            ("te", "gzip, Trailers"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "ftp"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("x-original-url", "/admin"),
        ]);
        forward(&mut map, &forwarding(false));
        let expected = [
            ("host", "a"),
            ("te", "trailers"),
            ("via", "1.1 tidegate"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "a"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.7"),
        ];
        assert_eq!(told(&map), expected);
    }

    #[test]
    fn what_a_trusted_proxy_says_is_continued() {
        let mut map = headers(&[
            ("host", "internal"),
            ("x-forwarded-for", "9.9.9.9"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "public"),
            ("via", "1.0 fred"),
        ]);
        forward(&mut map, &forwarding(true));
        let expected = [
            ("host", "internal"),
            ("via", "1.0 fred"),
            ("via", "1.1 tidegate"),
            ("x-forwarded-for", "9.9.9.9, 203.0.113.7, 10.0.0.1"),
            ("x-forwarded-host", "public"),
            ("x-forwarded-proto", "http"),
            ("x-real-ip", "203.0.113.7"),
        ];
        assert_eq!(told(&map), expected);
    }
}
