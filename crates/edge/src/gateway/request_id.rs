//! A name for each request, by which the client, the log and the upstream mean the same one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest name that is taken over from others.
const MAX_BYTES: usize = 128;

/// Gives names: a number that only goes up, hidden under secrets of the process.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    next: AtomicU64,
    secrets: [RandomState; 2],
}

impl RequestIds {
    /// The name of a request: what a trusted proxy calls it, or a new one. It is in the headers from
    /// then on.
    pub(super) fn name(&self, headers: &mut HeaderMap, peer_is_trusted: bool) -> HeaderValue {
        if let Some(known) = peer_is_trusted.then(|| given(headers)).flatten() {
            return known.clone();
        }
        let name = self.new_name();
        headers.insert(X_REQUEST_ID, name.clone());
        name
    }

    fn new_name(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Relaxed);
        let mut text = [0; 32];
        for (secret, half) in self.secrets.iter().zip(text.chunks_exact_mut(16)) {
            let mut left = secret.hash_one(number);
            for digit in half {
                *digit = b"0123456789abcdef"[(left & 15) as usize];
                left >>= 4;
            }
        }
        // Digits are a header's value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// The one name that a request has already.
fn given(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut known = headers.get_all(X_REQUEST_ID).iter();
    match (known.next(), known.next()) {
        (Some(known), None) => Some(known).filter(|known| is_name(known.as_bytes())),
        _ => None,
    }
}

fn is_name(text: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=MAX_BYTES).contains(&text.len()) && text.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_new_unless_a_trusted_proxy_gave_one() {
        let ids = RequestIds::default();
        let named = |value: &'static str, trusted| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_static(value));
            let name = ids.name(&mut headers, trusted);
            assert_eq!(headers.get_all(X_REQUEST_ID).iter().collect::<Vec<_>>(), [&name]);
            name.to_str().unwrap().to_owned()
        };
        assert_eq!(named("abc-123", true), "abc-123");
        let (first, second) = (named("abc-123", false), named("abc 123", true));
        assert_ne!(first, second);
        for new in [first, second, named("", true)] {
            assert_eq!(new.len(), 32, "{new}");
        }
    }
}
