//! One spelling for every path, so that no other spelling slips past a rule.
//!
//! RFC 3986 section 6.2.2 without the parts that change meaning: only unreserved characters are
//! decoded. What servers are known to read in two ways (encoded slashes, backslashes, NUL) is
//! refused rather than guessed at. Queries and fragments are no part of a path.

use std::borrow::Cow;
use std::fmt;

use tidegate_web::percent::{decode_hex_octet, push_encoded};

/// Why a path has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with a slash.
    NotAbsolute,
    /// A `%` without two hexadecimal digits after it.
    BadEncoding,
    /// A slash in disguise, `%2F`.
    EncodedSlash,
    /// A backslash, plain or encoded.
    Backslash,
    /// A control character, plain or encoded; NUL is one.
    Control,
    /// Its decoded bytes are not UTF-8.
    NotUtf8,
}

/// The canonical form of a path: dot segments resolved, slashes merged, unreserved characters
/// decoded, all others outside RFC 3986's `pchar` encoded with upper-case digits.
///
/// Slashes are merged before dot segments are resolved, as nginx and file systems do: `/a//../b` is
/// `/b`. A path that is canonical already is not copied.
///
/// # Errors
/// Where servers are known to disagree on what a path means.
///
/// ```
/// use tidegate_identity::path::{PathError, canonical};
///
/// assert_eq!(canonical("/api//v1/./x/../%7euser?q=1").as_deref(), Ok("/api/v1/~user"));
/// assert_eq!(canonical("/api%2Fadmin"), Err(PathError::EncodedSlash));
/// ```
pub fn canonical(given: &str) -> Result<Cow<'_, str>, PathError> {
    let end = given.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(given.len());
    let path = &given[..end];
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_plain(path.as_bytes()) {
        return Ok(Cow::Borrowed(path));
    }
    let respelt = remove_dot_segments(&normalize_encoding(path.as_bytes())?);
    Ok(if respelt == path { Cow::Borrowed(path) } else { Cow::Owned(respelt) })
}

/// Whether nothing about a path needs a second look.
fn is_plain(path: &[u8]) -> bool {
    path.iter().all(|byte| *byte == b'/' || is_pchar(*byte))
        && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// Each character in its one spelling; segments are left as they are.
fn normalize_encoding(path: &[u8]) -> Result<String, PathError> {
    let mut spelt = String::with_capacity(path.len() + 16);
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let (byte, encoded) = match first {
            b'%' => (decode_hex_octet(after).ok_or(PathError::BadEncoding)?, true),
            plain => (*plain, false),
        };
        rest = if encoded { &after[2..] } else { after };
        decoded.push(byte);
        match byte {
            b'/' if encoded => return Err(PathError::EncodedSlash),
            b'\\' => return Err(PathError::Backslash),
            0..0x20 | 0x7F => return Err(PathError::Control),
            _ if is_unreserved(byte) => spelt.push(char::from(byte)),
            _ if !encoded && (byte == b'/' || is_pchar(byte)) => spelt.push(char::from(byte)),
            _ => push_encoded(&mut spelt, byte),
        }
    }
    let text = std::str::from_utf8(&decoded).map_err(|_| PathError::NotUtf8)?;
    // Those above ASCII are found only once their bytes are put together.
    if text.chars().any(char::is_control) { Err(PathError::Control) } else { Ok(spelt) }
}

/// Slashes merged and dot segments resolved (RFC 3986 section 5.2.4).
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut open = false;
    for segment in path.split('/') {
        open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    let mut resolved = String::with_capacity(path.len());
    for segment in &kept {
        resolved.push('/');
        resolved.push_str(segment);
    }
    if open || kept.is_empty() {
        resolved.push('/');
    }
    resolved
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@')
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "a path begins with /",
            Self::BadEncoding => "a % in a path is followed by two hexadecimal digits",
            Self::EncodedSlash => {
                "an encoded slash (%2F) means different paths to different servers"
            }
            Self::Backslash => "a backslash means different paths to different servers",
            Self::Control => "a path holds no control characters",
            Self::NotUtf8 => "a path is UTF-8 once it is decoded",
        })
    }
}

impl std::error::Error for PathError {}

#[cfg(test)]
mod tests;
