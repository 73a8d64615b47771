//! The spelling of paths and hosts in rules.
//!
//! Requests have canonical paths and hosts (`tidegate_identity`). A rule with another spelling
//! would limit no request, so it is an error that shows the canonical spelling.

use crate::diagnostic::FieldError;

/// Checks that requests can have this path. Placeholders and globs are kept as they are. Redundant
/// slashes are allowed, because patterns ignore empty segments.
pub(crate) fn require_canonical_path(text: &str) -> Result<(), FieldError> {
    let wrong = |message: &str| FieldError::new(message).with_found(text);
    let (mut spelled, mut decoded) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let encoded = first == b'%';
        let byte = if encoded { decode_octet(after) } else { Some(first) };
        let byte = byte.ok_or_else(|| {
            wrong("a `%` in a path needs two hexadecimal digits").with_hint("`%25` for a `%`")
        })?;
        rest = if encoded { &after[2..] } else { after };
        decoded.push(byte);
        match byte {
            b'?' | b'#' if !encoded => {
                return Err(
                    wrong("a path has no query and no fragment").with_hint("the path alone")
                );
            }
            b'/' if encoded => {
                return Err(wrong("requests with an encoded slash are refused").with_hint("`/`"));
            }
            b'\\' | 0..0x20 | 0x7F => {
                let message = "requests with backslashes or control characters are refused";
                return Err(wrong(message).with_hint("the path without them"));
            }
            _ if is_unreserved(byte) || (!encoded && is_kept(byte)) => {
                spelled.push(char::from(byte));
            }
            _ => spelled.push_str(&format!("%{byte:02X}")),
        }
    }
    // Control characters above ASCII are visible only after decoding.
    let decoded = std::str::from_utf8(&decoded).ok();
    if decoded.is_none_or(|path| path.chars().any(char::is_control)) {
        let message = "requests with a path that is not UTF-8 text are refused";
        return Err(wrong(message).with_hint("the path in UTF-8"));
    }
    if spelled.split('/').any(|segment| matches!(segment, "." | "..")) {
        let message = "dot segments are resolved before rules are matched";
        return Err(wrong(message).with_hint("the path without `.` and `..`"));
    }
    require_spelling(text, &spelled, "paths are compared in canonical form")
}

/// Checks that requests can have this host: in lower case, without port and trailing dot.
pub(crate) fn require_canonical_host(text: &str) -> Result<(), FieldError> {
    let lower = text.to_ascii_lowercase();
    // The colons inside the brackets of an IPv6 address do not begin a port.
    let end = lower.rfind(']').map_or(0, |bracket| bracket + 1);
    let name = lower[end..].find(':').map_or(&*lower, |colon| &lower[..end + colon]);
    let name = name.strip_suffix('.').unwrap_or(name);
    require_spelling(text, name, "hosts are compared in lower case, without port")
}

fn require_spelling(text: &str, spelled: &str, message: &str) -> Result<(), FieldError> {
    if text == spelled {
        return Ok(());
    }
    Err(FieldError::new(message).with_found(text).with_hint(format!("`{spelled}`")))
}

/// Decodes the two hexadecimal digits after a `%`.
fn decode_octet(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// The characters that a canonical path never encodes (RFC 3986 section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Other characters that a canonical path may contain, and the syntax of patterns.
fn is_kept(byte: u8) -> bool {
    b"/!$&'()*+,;=:@{}".contains(&byte)
}
