//! Canonical spelling of paths, so that no other spelling bypasses a rule.
//!
//! This is RFC 3986 section 6.2.2 without the steps that change the meaning: only unreserved
//! characters are decoded. Input that servers are known to interpret differently (encoded slashes,
//! backslashes, NUL) is refused rather than guessed at. The query and the fragment are not part of
//! the path.

use std::borrow::Cow;
use std::fmt;

use tidegate_web::percent::{decode_hex_octet, push_encoded};

/// Why a path has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The path does not begin with a slash.
    NotAbsolute,
    /// A `%` is not followed by two hexadecimal digits.
    BadEncoding,
    /// An encoded slash, `%2F`.
    EncodedSlash,
    /// A backslash, plain or encoded.
    Backslash,
    /// A control character such as NUL, plain or encoded.
    Control,
    /// The decoded bytes are not UTF-8.
    NotUtf8,
}

/// Returns the canonical form of a path: dot segments resolved, slashes merged, unreserved
/// characters decoded, all others outside RFC 3986's `pchar` encoded with upper-case digits.
///
/// Slashes are merged before dot segments are resolved, as nginx and file systems do: `/a//../b` is
/// `/b`. A path that is already canonical is not copied.
///
/// # Errors
/// If servers are known to interpret the path differently.
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
    let normalized = remove_dot_segments(&normalize_encoding(path.as_bytes())?);
    Ok(if normalized == path { Cow::Borrowed(path) } else { Cow::Owned(normalized) })
}

/// Fast path: whether the path is canonical without further checks.
fn is_plain(path: &[u8]) -> bool {
    path.iter().all(|byte| *byte == b'/' || is_pchar(*byte))
        && !path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// Normalizes the encoding of each character; leaves the segments as they are.
fn normalize_encoding(path: &[u8]) -> Result<String, PathError> {
    let mut encoded_path = String::with_capacity(path.len() + 16);
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
            _ if is_unreserved(byte) => encoded_path.push(char::from(byte)),
            _ if !encoded && (byte == b'/' || is_pchar(byte)) => {
                encoded_path.push(char::from(byte));
            }
            _ => push_encoded(&mut encoded_path, byte),
        }
    }
    let text = std::str::from_utf8(&decoded).map_err(|_| PathError::NotUtf8)?;
    // Control characters above ASCII are visible only after decoding.
    if text.chars().any(char::is_control) { Err(PathError::Control) } else { Ok(encoded_path) }
}

/// Merges slashes and resolves dot segments (RFC 3986 section 5.2.4).
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
            Self::NotAbsolute => "the path must begin with /",
            Self::BadEncoding => "a % in the path must be followed by two hexadecimal digits",
            Self::EncodedSlash => {
                "an encoded slash (%2F) is ambiguous: servers interpret it differently"
            }
            Self::Backslash => "a backslash is ambiguous: servers interpret it differently",
            Self::Control => "the path must not contain control characters",
            Self::NotUtf8 => "the decoded path must be valid UTF-8",
        })
    }
}

impl std::error::Error for PathError {}

#[cfg(test)]
mod tests;
