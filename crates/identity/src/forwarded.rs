//! Parses the `Forwarded` header (RFC 7239) from the right.
//!
//! The list is also split from the right. Bytes that a client put at its left, such as an open
//! quote, must not change how the elements that proxies appended are read. Each element is then
//! parsed strictly; a malformed one yields no address.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;

use super::{address, is_token};

/// The most parameters in an element; RFC 7239 defines four.
const MAX_PARAMETERS: usize = 16;

/// The `for` addresses of all lines, from the right; `None` for an element without an address.
pub(super) fn forwarded_hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all(FORWARDED).into_iter().rev();
    lines.flat_map(|line| ForwardedElements { rest: Some(line.as_bytes()) }).map(parse_for_address)
}

/// The unparsed elements of a line, from the right.
struct ForwardedElements<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for ForwardedElements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut quoted = false;
        for at in (0..rest.len()).rev() {
            match rest[at] {
                b'"' if !is_escaped(&rest[..at]) => quoted = !quoted,
                b',' if !quoted => {
                    self.rest = Some(&rest[..at]);
                    return Some(&rest[at + 1..]);
                }
                _ => {}
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// Whether the next byte is escaped: an odd number of backslashes precedes it.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The `for` address of an element. Spaces around a semicolon are not in the RFC, but are harmless.
fn parse_for_address(element: &[u8]) -> Option<IpAddr> {
    let mut names: [&str; MAX_PARAMETERS] = [""; MAX_PARAMETERS];
    let (mut count, mut client) = (0, None);
    let mut rest = str::from_utf8(element).ok()?.trim_matches([' ', '\t']);
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches([' ', '\t']);
        let (value, after) = parse_value(after)?;
        let again = names[..count].iter().any(|known| known.eq_ignore_ascii_case(name));
        if !is_token(name) || again {
            return None;
        }
        *names.get_mut(count)? = name;
        count += 1;
        if name.eq_ignore_ascii_case("for") {
            client = Some(value);
        }
        let after = after.trim_start_matches([' ', '\t']);
        match after.strip_prefix(';') {
            Some(more) => rest = more,
            None if after.is_empty() => return parse_node(&client?),
            None => return None,
        }
    }
}

/// A parameter value.
struct ForwardedValue<'a> {
    text: Cow<'a, str>,
    quoted: bool,
}

/// Parses a value; returns it with the text after it.
fn parse_value(text: &str) -> Option<(ForwardedValue<'_>, &str)> {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (token, after) = text.split_at(end);
        let token = token.trim_end_matches([' ', '\t']);
        let value = ForwardedValue { text: token.into(), quoted: false };
        return is_token(token).then_some((value, after));
    };
    let mut unescaped: Option<String> = None;
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let text = unescaped.map_or(Cow::Borrowed(&inner[..at]), Cow::Owned);
                return Some((ForwardedValue { text, quoted: true }, &inner[at + 1..]));
            }
            '\\' => {
                let (_, escaped) = chars.next()?;
                unescaped.get_or_insert_with(|| inner[..at].to_owned()).push(escaped);
            }
            plain => {
                if let Some(text) = &mut unescaped {
                    text.push(plain);
                }
            }
        }
    }
    None
}

/// RFC 7239 section 6: an IPv6 address is in brackets and quotes, and a port may be an obfuscated
/// identifier. `unknown` and obfuscated nodes yield no address.
fn parse_node(value: &ForwardedValue<'_>) -> Option<IpAddr> {
    let bare_ipv6 = !value.text.starts_with('[') && value.text.matches(':').count() > 1;
    if bare_ipv6 || (value.text.contains(':') && !value.quoted) {
        return None;
    }
    address::parse_with_port(&value.text, is_port)
}

fn is_port(port: &str) -> bool {
    match port.strip_prefix('_') {
        Some(hidden) => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !hidden.is_empty() && hidden.bytes().all(allowed)
        }
        None => address::is_port_number(port),
    }
}

#[cfg(test)]
mod tests;
