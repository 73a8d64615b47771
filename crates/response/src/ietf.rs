//! The pair of draft-ietf-httpapi-ratelimit-headers-11, `RateLimit-Policy` and `RateLimit`. Names
//! and letters are not settled (an open change has `a` for `r` and `w` for `t`): a newer draft is a
//! change in this file.

use http::header::HeaderName;
use tidegate_core::policy::Policy;

use super::header_writer::{HeaderWriter, write_digits};
use super::summary::ReportedCounter;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// The largest Integer of RFC 9651.
const MAX_INTEGER: u64 = 999_999_999_999_999;

pub(super) fn write(counted: &ReportedCounter<'_>, lines: &mut HeaderWriter<'_>) {
    let name = counted.rule.id();
    let policy = |text: &mut Vec<u8>| {
        let policy =
            StructuredItem::start_string(text, name).with_integer(b'q', counted.numbers.limit);
        if counted.rule.limit().policy().is_some_and(Policy::is_concurrency) {
            // What is in use at once has no window.
            policy.write_word("qu", "concurrent-requests");
        } else if let Some(secs) = counted.window_secs() {
            policy.with_integer(b'w', secs);
        }
    };
    match counted.rule_key {
        Some(which) => lines.put_cached(POLICY, (which, counted.numbers.limit), policy),
        None => lines.put_text(POLICY, policy),
    }
    lines.put_text(STATE, |text| {
        let state =
            StructuredItem::start_string(text, name).with_integer(b'r', counted.numbers.remaining);
        if let Some(secs) = counted.effective_secs() {
            state.with_integer(b't', secs);
        }
    });
}

/// A member of a List of RFC 9651: a String with Integers for parameters.
struct StructuredItem<'t>(&'t mut Vec<u8>);

impl<'t> StructuredItem<'t> {
    fn start_string(item: &'t mut Vec<u8>, text: &str) -> Self {
        item.push(b'"');
        let escaped = |byte: &u8| matches!(byte, b'"' | b'\\');
        match text.as_bytes().iter().any(escaped) {
            false => item.extend_from_slice(text.as_bytes()),
            true => {
                for byte in text.as_bytes() {
                    if escaped(byte) {
                        item.push(b'\\');
                    }
                    item.push(*byte);
                }
            }
        }
        item.push(b'"');
        Self(item)
    }

    /// A String that needs no escape.
    fn write_word(self, name: &str, word: &str) {
        self.0.extend_from_slice(format!(";{name}=\"{word}\"").as_bytes());
    }

    fn with_integer(self, name: u8, integer: u64) -> Self {
        self.0.extend_from_slice(&[b';', name, b'=']);
        write_digits(self.0, integer.min(MAX_INTEGER));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_item_follows_rfc_9651() {
        let mut text = Vec::new();
        let item = StructuredItem::start_string(&mut text, r#"a"b\c, d;e"#);
        item.with_integer(b'q', u64::MAX).with_integer(b'w', MAX_INTEGER).with_integer(b't', 0);
        let expected = r#""a\"b\\c, d;e";q=999999999999999;w=999999999999999;t=0"#;
        assert_eq!(text, expected.as_bytes());
    }
}
