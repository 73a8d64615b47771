//! Bytes to requests: the arguments of the next command, where they stand in what was read.
//!
//! Nothing is kept between calls and nothing is allocated for what is only announced: a request that
//! has not come to its end is looked at again from its beginning when there is more. So it means the
//! same however its bytes were split, and an error is the same as early as it can be told.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use smallvec::SmallVec;

use super::inline;
use tidegate_identity::MAX_FACTS;

/// The most arguments of a request: all facts that one may bring, its name and two options.
pub(super) const MAX_ARGS: usize = 1 + 2 * MAX_FACTS + 2 * 2;

/// The longest argument.
const MAX_BULK_BYTES: usize = 64 * 1024;

/// The longest request.
pub(super) const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// The longest request on a line.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// The longest line that announces a length; 64-bit numbers have up to twenty characters.
const MAX_LENGTH_LINE: usize = 24;

/// The arguments of a request, its name first. Empty where there is nothing to answer.
pub(super) type RespArgs<'a> = SmallVec<[Cow<'a, [u8]>; 8]>;

/// A request, and how many bytes it took.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RespRequest<'a> {
    pub(super) args: RespArgs<'a>,
    pub(super) length: usize,
}

/// Bytes after which nothing that follows can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    /// The number of arguments is none.
    ArrayLength,
    /// There are too many of them.
    TooManyArgs,
    /// An argument does not begin as one.
    NotBulk(u8),
    /// The length of an argument is none, or too large.
    BulkLength,
    /// An argument does not end where it should.
    BulkEnd,
    /// All arguments together are too long.
    TooLong,
    /// A line is too long.
    LineTooLong,
    /// A line has a quote that does not end.
    UnbalancedQuotes,
    /// This is a request of HTTP, which any page in a browser can send.
    Http,
}

/// The next request, if it has come to its end.
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
    // No arguments, or fewer than that: Redis passes over it.
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

/// The number on a line from `at` on, and where the line has ended.
fn parse_length(
    bytes: &[u8],
    at: usize,
    wrong: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let rest = &bytes[at..];
    // Most numbers have one or two digits, and are read as they are found.
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
    let whole = &bytes[..bytes.len().min(MAX_INLINE_BYTES)];
    let Some(end) = memchr(b'\n', whole) else {
        return if whole.len() < MAX_INLINE_BYTES {
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
                write!(f, "Protocol error: a request has at most {MAX_REQUEST_BYTES} bytes")
            }
            Self::LineTooLong => f.write_str("Protocol error: too big inline request"),
            Self::UnbalancedQuotes => f.write_str("Protocol error: unbalanced quotes in request"),
            Self::Http => f.write_str(
                "this listener speaks the Redis protocol; HTTP has another one (--http)",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
