//! Version 1: `PROXY TCP4 203.0.113.9 192.0.2.1 51234 443` and a line end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Malformed, Parsed};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// The longest line that the specification allows, its end included.
const MAX_BYTES: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let window = &bytes[..bytes.len().min(MAX_BYTES)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() < MAX_BYTES {
            Ok(Parsed::Incomplete)
        } else {
            Err(Malformed::TooLong)
        };
    };
    let line = window[..end].strip_suffix(b"\r").and_then(|line| str::from_utf8(line).ok());
    let source = line.and_then(source).ok_or(Malformed::Invalid)?;
    Ok(Parsed::Complete { len: end + 1, source })
}

/// Whom a line names; nothing for a line that breaks the rules.
fn source(line: &str) -> Option<Option<SocketAddr>> {
    // One space between fields, no more: `split` would give an empty one.
    let mut fields = line.split(' ').skip(1);
    let address = match fields.next()? {
        // What follows is to be ignored, whatever it is.
        "UNKNOWN" => return Some(None),
        "TCP4" => both::<Ipv4Addr>(fields.next()?, fields.next()?)?,
        "TCP6" => both::<Ipv6Addr>(fields.next()?, fields.next()?)?,
        _ => return None,
    };
    let (from, _to) = (port(fields.next()?)?, port(fields.next()?)?);
    fields.next().is_none().then(|| Some(SocketAddr::new(address, from)))
}

/// The first of two addresses, if both are.
fn both<A: FromStr + Into<IpAddr>>(from: &str, to: &str) -> Option<IpAddr> {
    to.parse::<A>().ok()?;
    from.parse::<A>().ok().map(Into::into)
}

/// Digits without a leading zero.
fn port(text: &str) -> Option<u16> {
    let well_formed = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| well_formed)
}
