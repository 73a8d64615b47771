//! Version 1: `PROXY TCP4 203.0.113.9 192.0.2.1 51234 443` and a line end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{ProxyHeaderError, ProxyParseStatus};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// Maximum line length in the specification, including the line end.
const MAX_LINE_BYTES: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<ProxyParseStatus, ProxyHeaderError> {
    let window = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < MAX_LINE_BYTES {
            Ok(ProxyParseStatus::Incomplete)
        } else {
            Err(ProxyHeaderError::TooLong)
        };
    };
    let line = window[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let source = line.and_then(parse_source).ok_or(ProxyHeaderError::Invalid)?;
    Ok(ProxyParseStatus::Complete { len: end + 1, source })
}

/// The client named by a line; `None` if the line is malformed.
fn parse_source(line: &str) -> Option<Option<SocketAddr>> {
    // Exactly one space between fields: `split` yields an empty field for a second one.
    let mut fields = line.split(' ').skip(1);
    let address = match fields.next()? {
        // The specification says to ignore the rest of the line.
        "UNKNOWN" => return Some(None),
        "TCP4" => parse_address_pair::<Ipv4Addr>(fields.next()?, fields.next()?)?,
        "TCP6" => parse_address_pair::<Ipv6Addr>(fields.next()?, fields.next()?)?,
        _ => return None,
    };
    let (from, _to) = (parse_port(fields.next()?)?, parse_port(fields.next()?)?);
    fields.next().is_none().then(|| Some(SocketAddr::new(address, from)))
}

/// The first of two addresses, if both are valid.
fn parse_address_pair<A: FromStr + Into<IpAddr>>(from: &str, to: &str) -> Option<IpAddr> {
    to.parse::<A>().ok()?;
    from.parse::<A>().ok().map(Into::into)
}

/// A decimal port without leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let well_formed = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| well_formed)
}
