//! Client address resolution: examples, spoofing attempts and properties.

use http::HeaderValue;
use http::header::FORWARDED;
use proptest::prelude::*;

use super::*;

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "203.0.113.9";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn identity(from: ForwardingHeader) -> IpIdentity {
    let trusted_proxies = ["10.0.0.0/8", "2001:db8:1::/48"].map(|net| net.parse().unwrap());
    IpIdentity {
        trusted_proxies: trusted_proxies.to_vec(),
        forwarding_header: from,
        ..IpIdentity::default()
    }
}

fn header_lines(name: &HeaderName, lines: &[impl AsRef<[u8]>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_ref()).unwrap());
    }
    headers
}

/// Resolves the client of a TCP peer, which always has an address.
fn resolved_ip(peer: IpAddr, headers: &HeaderMap, trusted: &IpIdentity) -> IpAddr {
    client_ip(peer, headers, trusted).unwrap()
}

/// Resolves the client from `X-Forwarded-For`, sent by a trusted proxy.
fn x_forwarded_for_client(list: &[&str]) -> String {
    let headers = header_lines(&X_FORWARDED_FOR, list);
    resolved_ip(ip(PROXY), &headers, &identity(ForwardingHeader::XForwardedFor)).to_string()
}

#[test]
fn rightmost_untrusted_hop_is_the_client() {
    for (list, expected) in [
        (vec![], PROXY),
        (vec!["203.0.113.9"], CLIENT),
        (vec!["198.51.100.1, 203.0.113.9"], CLIENT),
        (vec!["203.0.113.9, 10.0.0.7"], CLIENT),
        (vec!["203.0.113.9:5678 ,\t[2001:db8:1::7]:443,10.2.3.4:1"], CLIENT),
        (vec!["198.51.100.1, 203.0.113.9, 10.0.0.7, ::ffff:10.0.0.8"], CLIENT),
        (vec!["10.0.0.9, 10.0.0.8, 10.0.0.7"], "10.0.0.9"),
        (vec!["2001:db8::1%eth0"], "2001:db8::1"),
        (vec!["::ffff:203.0.113.9"], CLIENT),
    ] {
        assert_eq!(x_forwarded_for_client(&list), expected, "{list:?}");
    }
}

#[test]
fn x_forwarded_for_lines_are_joined() {
    assert_eq!(x_forwarded_for_client(&["198.51.100.1", "203.0.113.9"]), CLIENT);
    assert_eq!(
        x_forwarded_for_client(&["198.51.100.1, 203.0.113.9", "10.0.0.7", "10.0.0.8"]),
        CLIENT
    );
    assert_eq!(
        x_forwarded_for_client(&["10.9.9.9", "198.51.100.1", "203.0.113.9, 10.0.0.7"]),
        CLIENT
    );
}

#[test]
fn hops_left_of_garbage_are_ignored() {
    for (list, expected) in [
        (vec!["unknown"], PROXY),
        (vec!["203.0.113.9, unknown"], PROXY),
        (vec!["203.0.113.9, unknown, 10.0.0.7"], "10.0.0.7"),
        (vec!["203.0.113.9, "], PROXY),
        (vec!["203.0.113.9,, 10.0.0.7"], "10.0.0.7"),
        (vec!["203.0.113.9", ""], PROXY),
        (vec!["203.0.113.9; 10.0.0.7"], PROXY),
        (vec!["203.0.113.9, 10.0.0.07"], PROXY),
        (vec!["203.0.113.9, unix:"], PROXY),
    ] {
        assert_eq!(x_forwarded_for_client(&list), expected, "{list:?}");
    }
}

#[test]
fn bypass_leftmost_entry_is_not_the_client() {
    assert_eq!(x_forwarded_for_client(&["1.1.1.1, 203.0.113.9"]), CLIENT);
    assert_eq!(
        x_forwarded_for_client(&["10.0.0.99, 203.0.113.9"]),
        CLIENT,
        "an internal-looking entry is no exception"
    );
}

#[test]
fn bypass_second_header_line_is_read() {
    assert_eq!(x_forwarded_for_client(&["1.1.1.1", "203.0.113.9"]), CLIENT);
    assert_eq!(x_forwarded_for_client(&["203.0.113.9", "10.0.0.7"]), CLIENT);
}

#[test]
fn bypass_untrusted_peer_headers_are_ignored() {
    let mut headers = header_lines(&X_FORWARDED_FOR, &["1.1.1.1"]);
    headers.insert(FORWARDED, HeaderValue::from_static("for=1.1.1.1"));
    headers.insert("x-real-ip", HeaderValue::from_static("1.1.1.1"));
    let real = ForwardingHeader::Header("x-real-ip".to_owned());
    for from in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded, real] {
        let found = resolve_client(Peer::Ip(ip(CLIENT)), &headers, &identity(from.clone()));
        assert_eq!(found, ResolvedClient { ip: Some(ip(CLIENT)), peer_is_trusted: false });
        let no_proxy = IpIdentity { forwarding_header: from, ..IpIdentity::default() };
        assert_eq!(
            resolved_ip(ip(PROXY), &headers, &no_proxy),
            ip(PROXY),
            "no proxy is trusted by default"
        );
        assert_eq!(resolved_ip(ip("127.0.0.1"), &headers, &no_proxy), ip("127.0.0.1"));
    }
}

#[test]
fn bypass_unconfigured_forwarding_headers_are_ignored() {
    let others = ["forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"];
    let mut headers = header_lines(&X_FORWARDED_FOR, &[CLIENT]);
    for name in others {
        let value = if name == "forwarded" { "for=1.1.1.1" } else { "1.1.1.1" };
        headers.insert(name, HeaderValue::from_static(value));
    }
    let identity_of = |from| resolved_ip(ip(PROXY), &headers, &identity(from));
    assert_eq!(identity_of(ForwardingHeader::XForwardedFor), ip(CLIENT));
    headers = header_lines(&FORWARDED, &["for=203.0.113.9"]);
    headers.insert(X_FORWARDED_FOR, HeaderValue::from_static("1.1.1.1"));
    assert_eq!(
        resolved_ip(ip(PROXY), &headers, &identity(ForwardingHeader::Forwarded)),
        ip(CLIENT),
        "only the configured header is read"
    );
}

#[test]
fn repeated_single_address_header_is_ignored() {
    let real = identity(ForwardingHeader::Header("x-real-ip".to_owned()));
    let name = HeaderName::from_static("x-real-ip");
    for (values, expected) in [
        (vec![], PROXY),
        (vec![CLIENT], CLIENT),
        (vec!["10.0.0.7"], "10.0.0.7"),
        (vec!["[2001:db8::1]:443"], "2001:db8::1"),
        (vec!["1.1.1.1, 203.0.113.9"], PROXY),
        (vec!["1.1.1.1", "203.0.113.9"], PROXY),
        (vec!["unknown"], PROXY),
    ] {
        let headers = header_lines(&name, &values);
        assert_eq!(resolved_ip(ip(PROXY), &headers, &real), ip(expected), "{values:?}");
    }
}

#[test]
fn trusted_proxy_matches_ipv4_mapped_address() {
    let headers = header_lines(&X_FORWARDED_FOR, &[CLIENT]);
    let from = identity(ForwardingHeader::XForwardedFor);
    let found = resolve_client(Peer::Ip(ip("::ffff:10.0.0.1")), &headers, &from);
    assert_eq!(found, ResolvedClient { ip: Some(ip(CLIENT)), peer_is_trusted: true });
    assert_eq!(resolved_ip(ip("::ffff:192.0.2.1"), &headers, &from), ip("192.0.2.1"));
    assert_eq!(resolved_ip(ip("2001:db8:1::5"), &headers, &from), ip(CLIENT));
}

#[test]
fn unix_socket_client_comes_from_headers() {
    let trusted = IpIdentity { trusts_unix: true, ..identity(ForwardingHeader::XForwardedFor) };
    let headers = |list: &[&str]| header_lines(&X_FORWARDED_FOR, list);
    for (list, expected) in [
        (vec!["1.1.1.1, 203.0.113.9, 10.0.0.7"], Some(CLIENT)),
        (vec!["203.0.113.9, unix:"], None),
        (vec!["unix:"], None),
        (vec![], None),
    ] {
        let found = resolve_client(Peer::Unix, &headers(&list), &trusted);
        let ip = expected.map(ip);
        assert_eq!(found, ResolvedClient { ip, peer_is_trusted: true }, "{list:?}");
    }
    let untrusted = identity(ForwardingHeader::XForwardedFor);
    let found = resolve_client(Peer::Unix, &headers(&[CLIENT]), &untrusted);
    assert_eq!(
        found,
        ResolvedClient { ip: None, peer_is_trusted: false },
        "no proxy is trusted by default"
    );
}

/// Bytes that are valid in a header, often ones that are significant to the parsers.
fn header_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "[0-9.:,\\[\\]\" =;%a-f\\\\]{0,6}".prop_map(String::into_bytes),
        prop_oneof![
            Just("203.0.113.9"),
            Just("10.0.0.7"),
            Just("for="),
            Just("for=\"[2001:db8::1]:80\""),
            Just("unknown"),
            Just(", "),
        ]
        .prop_map(|text: &str| text.as_bytes().to_vec()),
        prop::collection::vec(prop_oneof![Just(b'\t'), 0x20..0x7F_u8, 0x80..=0xFF_u8], 0..4),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn any_forwarded_by() -> impl Strategy<Value = ForwardingHeader> {
    prop_oneof![
        Just(ForwardingHeader::XForwardedFor),
        Just(ForwardingHeader::Forwarded),
        Just(ForwardingHeader::Header("x-real-ip".to_owned())),
    ]
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof![
        Just(X_FORWARDED_FOR),
        Just(FORWARDED),
        Just(HeaderName::from_static("x-real-ip"))
    ];
    prop::collection::vec((name, header_bytes()), 0..5).prop_map(|list| {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        headers
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Also with arbitrary bytes in the headers.
    #[test]
    fn other_forwarding_headers_never_change_the_client(
        headers in any_headers(),
        from in any_forwarded_by(),
    ) {
        let configured = match &from {
            ForwardingHeader::XForwardedFor => "x-forwarded-for",
            ForwardingHeader::Forwarded => "forwarded",
            ForwardingHeader::Header(name) => name,
        };
        let lines: Vec<&HeaderValue> = headers.get_all(configured).iter().collect();
        let alone = header_lines(&HeaderName::try_from(configured).unwrap(), &lines);
        let trusted = identity(from.clone());
        let client = resolved_ip(ip(PROXY), &headers, &trusted);
        prop_assert_eq!(client, resolved_ip(ip(PROXY), &alone, &trusted));
        prop_assert_eq!(client, client.to_canonical());
    }

    #[test]
    fn untrusted_headers_never_change_the_client(
        headers in any_headers(),
        from in any_forwarded_by(),
        peer in any::<IpAddr>(),
    ) {
        let trusted = identity(from);
        prop_assume!(!trusted.trusts(peer));
        prop_assert_eq!(resolved_ip(peer, &headers, &trusted), peer.to_canonical());
    }

    /// The client may send any bytes on any number of lines. The proxy appends the address it saw
    /// on the right, on the last line or on a new one.
    #[test]
    fn forged_hops_never_change_the_client(
        before in prop::collection::vec(header_bytes(), 0..3),
        own_line in any::<bool>(),
        hops in prop::collection::vec(0_u8..255, 0..3),
        client in prop_oneof![Just("203.0.113.9"), Just("2001:db8::9")],
    ) {
        for (name, from) in [
            (X_FORWARDED_FOR, ForwardingHeader::XForwardedFor),
            (FORWARDED, ForwardingHeader::Forwarded),
        ] {
            let entry = |ip: &str| match name == FORWARDED {
                true if ip.contains(':') => format!("for=\"[{ip}]\";proto=https"),
                true => format!("for={ip}"),
                false => ip.to_owned(),
            };
            let mut added = entry(client);
            hops.iter().for_each(|hop| added += &format!(", {}", entry(&format!("10.0.0.{hop}"))));
            let mut written = before.clone();
            match written.last_mut() {
                Some(last) if !own_line => {
                    last.extend_from_slice(b", ");
                    last.extend_from_slice(added.as_bytes());
                }
                _ => written.push(added.into_bytes()),
            }
            let headers = header_lines(&name, &written);
            prop_assert_eq!(resolved_ip(ip(PROXY), &headers, &identity(from)), ip(client));
        }
    }
}
