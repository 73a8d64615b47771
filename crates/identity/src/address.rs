//! An address as proxies write it: bare, with a port, in brackets, in quotes, with a zone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address of an entry of `X-Forwarded-For` or of a header with one address.
pub(super) fn parse_hop_address(bytes: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(bytes).ok()?.trim_matches([' ', '\t']);
    let bare = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    parse_with_port(bare, is_port_number)
}

/// An address, perhaps with a port that `is_port` accepts. IPv6 needs no brackets here, an IPv4
/// address inside an IPv6 one is the IPv4 address, and a zone means nothing to others.
pub(super) fn parse_with_port(text: &str, is_port: fn(&str) -> bool) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let well_ended = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return well_ended.then(|| parse_ipv6(host)).flatten();
    }
    match text.split_once(':') {
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        Some((_, after)) if after.contains(':') => parse_ipv6(text),
        Some((host, port)) if is_port(port) => host.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        Some(_) => None,
    }
}

/// A port in digits; `parse` alone would take `+80`.
pub(super) fn is_port_number(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

fn parse_ipv6(text: &str) -> Option<IpAddr> {
    let host = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((host, _)) => host,
        None => text,
    };
    host.parse::<Ipv6Addr>().ok().map(|ip| IpAddr::from(ip).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_address_formats_are_parsed() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            (" \t192.0.2.1 ", "192.0.2.1"),
            ("192.0.2.1:5678", "192.0.2.1"),
            ("\"192.0.2.1:5678\"", "192.0.2.1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("\"[2001:db8::1]:443\"", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("::ffff:c000:201", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
        ] {
            assert_eq!(parse_hop_address(text.as_bytes()), expected.parse().ok(), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "unix:",
            "192.0.2",
            "192.0.2.1.",
            "192.0.2.01",
            "0xC0000201",
            "3221225985",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:+80",
            "192.0.2.1:65536",
            "192.0.2.1/8",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]443",
            "[2001:db8::1]:",
            "fe80::1%",
            "\"192.0.2.1",
            "192.0.2.1\"",
            "\"\"192.0.2.1\"\"",
            "1 92.0.2.1",
            "192.0.2.1 198.51.100.1",
            "localhost",
        ] {
            assert_eq!(parse_hop_address(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_hop_address(b"192.0.2.1\xff"), None);
    }
}
