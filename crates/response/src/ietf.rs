//! The headers `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! The parameter names are not final: an open change renames `r` to `a` and `t` to `w`. Adopting a
//! newer draft only changes this file.

use http::header::HeaderName;
use tidegate_core::policy::Policy;

use super::header_writer::{HeaderWriter, write_digits};
use super::summary::ReportedCounter;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");

/// The largest Integer of RFC 9651.
const MAX_INTEGER: u64 = 999_999_999_999_999;

pub(super) fn write(counter: &ReportedCounter<'_>, writer: &mut HeaderWriter<'_>) {
    let name = counter.rule.id();
    let policy = |text: &mut Vec<u8>| {
        let policy =
            StructuredItem::start_string(text, name).with_integer(b'q', counter.numbers.limit);
        if counter.rule.limit().policy().is_some_and(Policy::is_concurrency) {
            // A concurrency limit has no window.
            policy.write_word("qu", "concurrent-requests");
        } else if let Some(secs) = counter.window_secs() {
            policy.with_integer(b'w', secs);
        }
    };
    match counter.rule_key {
        Some(rule) => writer.put_cached(POLICY, (rule, counter.numbers.limit), policy),
        None => writer.put_text(POLICY, policy),
    }
    writer.put_text(STATE, |text| {
        let state =
            StructuredItem::start_string(text, name).with_integer(b'r', counter.numbers.remaining);
        if let Some(secs) = counter.effective_secs() {
            state.with_integer(b't', secs);
        }
    });
}

/// A member of an RFC 9651 List: a String with parameters.
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

    /// Adds a String parameter that needs no escaping.
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
