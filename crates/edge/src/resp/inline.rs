//! Requests on a line, as people type them: words, with Redis' quotes and escapes.

use std::borrow::Cow;

use super::frame::{Args, MAX_ARGS, ProtocolError};

/// The words of a line. Those without escapes are not copied.
pub(super) fn split(line: &[u8]) -> Result<Args<'_>, ProtocolError> {
    let mut words = Args::new();
    let mut rest = line.trim_ascii_start();
    while let Some(first) = rest.first() {
        if words.len() == MAX_ARGS {
            return Err(ProtocolError::TooManyArgs);
        }
        let (word, after) = match first {
            b'"' => double_quoted(&rest[1..])?,
            b'\'' => single_quoted(&rest[1..])?,
            _ => bare(rest)?,
        };
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// A word up to the next space. A quote inside begins a quoted part, as in Redis.
fn bare(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let stops = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | 0);
    let end = text.iter().position(stops).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let (more, rest) = match rest.first() {
        Some(b'"') => double_quoted(&rest[1..])?,
        Some(b'\'') => single_quoted(&rest[1..])?,
        // It would end the line in Redis, which reads lines as C does.
        Some(0) => return Err(ProtocolError::Quotes),
        _ => return Ok((Cow::Borrowed(word), rest)),
    };
    Ok((Cow::Owned([word, &more].concat()), rest))
}

/// Up to the closing quote, which a space or the end must follow.
fn single_quoted(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        match text.get(at..) {
            Some([b'\\', b'\'', ..]) => {
                word.push(b'\'');
                at += 2;
            }
            Some([b'\'', ..]) => return ended(Cow::Owned(word), &text[at + 1..]),
            Some([other, ..]) => {
                word.push(*other);
                at += 1;
            }
            Some([]) | None => return Err(ProtocolError::Quotes),
        }
    }
}

fn double_quoted(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        let (byte, length) = match text.get(at..) {
            Some([b'\\', b'x', high, low, ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (16 * digit(*high) + digit(*low), 4)
            }
            Some([b'\\', escaped, ..]) => (unescaped(*escaped), 2),
            Some([b'"', ..]) => return ended(Cow::Owned(word), &text[at + 1..]),
            Some([other, ..]) => (*other, 1),
            Some([]) | None => return Err(ProtocolError::Quotes),
        };
        word.push(byte);
        at += length;
    }
}

fn ended<'a>(
    word: Cow<'a, [u8]>,
    rest: &'a [u8],
) -> Result<(Cow<'a, [u8]>, &'a [u8]), ProtocolError> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::Quotes),
        _ => Ok((word, rest)),
    }
}

const fn unescaped(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

const fn digit(hexadecimal: u8) -> u8 {
    match hexadecimal {
        b'0'..=b'9' => hexadecimal - b'0',
        _ => hexadecimal.to_ascii_lowercase() - b'a' + 10,
    }
}

/// Whether a line begins as one of HTTP does. Any page in a browser can make it send such a request,
/// with a body of the page's choice; so nothing after the first line is looked at.
pub(super) fn is_http(word: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] = [
        b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE",
        b"PRI",
    ];
    word.eq_ignore_ascii_case(b"host:")
        || METHODS.iter().any(|method| word.eq_ignore_ascii_case(method))
}
