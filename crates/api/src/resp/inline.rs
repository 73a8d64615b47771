//! Inline requests: one line of words with Redis' quotes and escapes, as typed in telnet.

use std::borrow::Cow;

use super::request_parser::{MAX_ARGS, ProtocolError, RespArgs};

/// Splits a line into words. Words without quotes are borrowed.
pub(super) fn split_words(line: &[u8]) -> Result<RespArgs<'_>, ProtocolError> {
    let mut words = RespArgs::new();
    let mut rest = line.trim_ascii_start();
    while let Some(first) = rest.first() {
        if words.len() == MAX_ARGS {
            return Err(ProtocolError::TooManyArgs);
        }
        let (word, after) = match first {
            b'"' => parse_double_quoted(&rest[1..])?,
            b'\'' => parse_single_quoted(&rest[1..])?,
            _ => parse_bare_word(rest)?,
        };
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

/// Parses a word up to the next space. A quote inside the word starts a quoted part, as in Redis.
fn parse_bare_word(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let stops = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | 0);
    let end = text.iter().position(stops).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let (more, rest) = match rest.first() {
        Some(b'"') => parse_double_quoted(&rest[1..])?,
        Some(b'\'') => parse_single_quoted(&rest[1..])?,
        // Redis parses the line as a C string, which a NUL byte ends.
        Some(0) => return Err(ProtocolError::UnbalancedQuotes),
        _ => return Ok((Cow::Borrowed(word), rest)),
    };
    Ok((Cow::Owned([word, &more].concat()), rest))
}

/// Parses up to the closing quote, which must be followed by a space or the end of the line.
fn parse_single_quoted(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        match text.get(at..) {
            Some([b'\\', b'\'', ..]) => {
                word.push(b'\'');
                at += 2;
            }
            Some([b'\'', ..]) => return check_word_end(Cow::Owned(word), &text[at + 1..]),
            Some([other, ..]) => {
                word.push(*other);
                at += 1;
            }
            Some([]) | None => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

fn parse_double_quoted(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), ProtocolError> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        let (byte, length) = match text.get(at..) {
            Some([b'\\', b'x', high, low, ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (16 * hex_digit(*high) + hex_digit(*low), 4)
            }
            Some([b'\\', escaped, ..]) => (unescape_byte(*escaped), 2),
            Some([b'"', ..]) => return check_word_end(Cow::Owned(word), &text[at + 1..]),
            Some([other, ..]) => (*other, 1),
            Some([]) | None => return Err(ProtocolError::UnbalancedQuotes),
        };
        word.push(byte);
        at += length;
    }
}

fn check_word_end<'a>(
    word: Cow<'a, [u8]>,
    rest: &'a [u8],
) -> Result<(Cow<'a, [u8]>, &'a [u8]), ProtocolError> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok((word, rest)),
    }
}

const fn unescape_byte(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

const fn hex_digit(hexadecimal: u8) -> u8 {
    match hexadecimal {
        b'0'..=b'9' => hexadecimal - b'0',
        _ => hexadecimal.to_ascii_lowercase() - b'a' + 10,
    }
}

/// Returns whether the first word of a line belongs to an HTTP request. A web page can make a
/// browser send such a request with commands in its body, so nothing after the first line is
/// parsed.
pub(super) fn is_http_start(word: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] = [
        b"GET", b"POST", b"PUT", b"HEAD", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE",
        b"PRI",
    ];
    word.eq_ignore_ascii_case(b"host:")
        || METHODS.iter().any(|method| word.eq_ignore_ascii_case(method))
}
