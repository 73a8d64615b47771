//! Parses requests. The arguments of a command are borrowed from the read buffer.
//!
//! The parser keeps no state between calls: an incomplete request is parsed again from its start
//! when more bytes have arrived. The result therefore does not depend on how the bytes were split.
//! Declared lengths allocate no memory, and errors are reported as early as possible.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use smallvec::SmallVec;

use super::inline;
use tidegate_identity::MAX_FACTS;

/// Maximum number of arguments: the command's name, the maximum number of facts, and two options.
pub(super) const MAX_ARGS: usize = 1 + 2 * MAX_FACTS + 2 * 2;

/// Maximum length of an argument.
const MAX_BULK_BYTES: usize = 64 * 1024;

/// Maximum length of a request.
pub(super) const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// Maximum length of an inline request.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Maximum length of a line that declares a length. A 64-bit number has up to 20 characters.
const MAX_LENGTH_LINE: usize = 24;

/// The arguments of a request, starting with the command's name. An empty request gets no reply.
pub(super) type RespArgs<'a> = SmallVec<[Cow<'a, [u8]>; 8]>;

/// A request and its length in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RespRequest<'a> {
    pub(super) args: RespArgs<'a>,
    pub(super) length: usize,
}

/// An error after which the rest of the stream cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    /// The declared number of arguments is not a number.
    ArrayLength,
    /// There are too many arguments.
    TooManyArgs,
    /// An argument does not start with `$`.
    NotBulk(u8),
    /// The declared length of an argument is not a number, negative or too large.
    BulkLength,
    /// An argument is not followed by CRLF.
    BulkEnd,
    /// The request is too long.
    TooLong,
    /// An inline request is too long.
    LineTooLong,
    /// An inline request has an unbalanced quote.
    UnbalancedQuotes,
    /// The bytes are an HTTP request, which any web page can make a browser send.
    Http,
}

/// Parses the next request; `None` if it is still incomplete.
pub(super) fn next_request(bytes: &[u8]) -> Result<Option<RespRequest<'_>>, ProtocolError> {
    match bytes.first() {
        None => Ok(None),
        Some(b'*') => parse_multibulk(bytes),
        Some(_) => parse_inline(bytes),
    }
}

fn parse_multibulk(bytes: &[u8]) -> Result<Option<RespRequest<'_>>, ProtocolError> {
    let Some((count, mut at)) = parse_length(bytes, 1, ProtocolError::ArrayLength)? else {
        return Ok(None);
    };
    let mut args = RespArgs::new();
    // Redis ignores a request with zero or a negative number of arguments.
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_ARGS {
        return Err(ProtocolError::TooManyArgs);
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NotBulk(*other)),
        }
        let Some((length, start)) = parse_length(bytes, at + 1, ProtocolError::BulkLength)? else {
            return Ok(None);
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if length > MAX_BULK_BYTES {
            return Err(ProtocolError::BulkLength);
        }
        let end = start + length;
        if end > MAX_REQUEST_BYTES {
            return Err(ProtocolError::TooLong);
        }
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::BulkEnd),
            None if bytes.get(end).is_some_and(|byte| *byte != b'\r') => {
                return Err(ProtocolError::BulkEnd);
            }
            None => return Ok(None),
        }
        args.push(Cow::Borrowed(&bytes[start..end]));
        at = end + 2;
    }
    Ok(Some(RespRequest { args, length: at }))
}

/// Parses the number on the line that starts at `at`. Also returns the start of the next line.
fn parse_length(
    bytes: &[u8],
    at: usize,
    wrong: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let rest = &bytes[at..];
    // Most numbers have one or two digits, so parse without searching for the line end first.
    let mut number: i64 = 0;
    for (i, byte) in rest.iter().take(MAX_LENGTH_LINE).enumerate() {
        match byte {
            b'0'..=b'9' => {
                number = number
                    .checked_mul(10)
                    .and_then(|number| number.checked_add(i64::from(byte - b'0')))
                    .ok_or(wrong)?;
            }
            b'-' if i == 0 => {}
            b'\r' => {
                let negative = rest[0] == b'-';
                if i == usize::from(negative) {
                    return Err(wrong);
                }
                let number = if negative { -number } else { number };
                return match rest.get(i + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, at + i + 2))),
                    Some(_) => Err(wrong),
                };
            }
            _ => return Err(wrong),
        }
    }
    if rest.len() < MAX_LENGTH_LINE { Ok(None) } else { Err(wrong) }
}

fn parse_inline(bytes: &[u8]) -> Result<Option<RespRequest<'_>>, ProtocolError> {
    let window = &bytes[..bytes.len().min(MAX_INLINE_BYTES)];
    let Some(end) = memchr(b'\n', window) else {
        return if window.len() < MAX_INLINE_BYTES {
            Ok(None)
        } else {
            Err(ProtocolError::LineTooLong)
        };
    };
    let text = &bytes[..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let args = inline::split_words(text)?;
    if args.first().is_some_and(|first| inline::is_http_start(first)) {
        return Err(ProtocolError::Http);
    }
    Ok(Some(RespRequest { args, length: end + 1 }))
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArrayLength => f.write_str("Protocol error: invalid multibulk length"),
            Self::TooManyArgs => {
                write!(f, "Protocol error: invalid multibulk length, more than {MAX_ARGS}")
            }
            Self::NotBulk(found) => {
                write!(f, "Protocol error: expected '$', got '{}'", found.escape_ascii())
            }
            Self::BulkLength => write!(
                f,
                "Protocol error: invalid bulk length; an argument has 0 to {MAX_BULK_BYTES} bytes"
            ),
            Self::BulkEnd => f.write_str("Protocol error: expected CRLF after an argument"),
            Self::TooLong => {
                write!(f, "Protocol error: the request is longer than {MAX_REQUEST_BYTES} bytes")
            }
            Self::LineTooLong => f.write_str("Protocol error: too big inline request"),
            Self::UnbalancedQuotes => f.write_str("Protocol error: unbalanced quotes in request"),
            Self::Http => f.write_str(
                "this listener speaks the Redis protocol; send HTTP to the listener set by --http",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
