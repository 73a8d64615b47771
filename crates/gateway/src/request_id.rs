//! A name for each request, by which the client, the log and the upstream mean the same one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::hex;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest name that is taken over from others.
const MAX_BYTES: usize = 128;

/// How long the half of a name is that tells the process, and the half that tells the request.
const HALF_LEN: usize = 16;

/// Gives names: first what all names of this process have in common, then a number that only goes up, hidden under a
/// secret.
#[derive(Debug)]
pub(super) struct RequestIdGenerator {
    process_prefix: [u8; HALF_LEN],
    next: AtomicU64,
    secret: RandomState,
}

impl Default for RequestIdGenerator {
    fn default() -> Self {
        let process = hex::digits(RandomState::new().hash_one(0));
        Self { process_prefix: process, next: AtomicU64::new(0), secret: RandomState::new() }
    }
}

impl RequestIdGenerator {
    /// The name of a request: what a trusted proxy calls it, or a new one. Whether the peer is
    /// trusted matters only if it has sent a name.
    pub(super) fn assign_id(
        &self,
        headers: &HeaderMap,
        peer_is_trusted: impl FnOnce() -> bool,
    ) -> HeaderValue {
        match inbound_request_id(headers) {
            Some(known) if peer_is_trusted() => known.clone(),
            _ => self.new_id(),
        }
    }

    /// A new name.
    pub(super) fn new_id(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Relaxed);
        let mut text = [0; 2 * HALF_LEN];
        text[..HALF_LEN].copy_from_slice(&self.process_prefix);
        text[HALF_LEN..].copy_from_slice(&hex::digits(self.secret.hash_one(number)));
        // Digits are a header's value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// The one name that a request has already.
fn inbound_request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut known = headers.get_all(X_REQUEST_ID).iter();
    match (known.next(), known.next()) {
        (Some(known), None) => Some(known).filter(|known| is_valid_id(known.as_bytes())),
        _ => None,
    }
}

fn is_valid_id(text: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte);
    (1..=MAX_BYTES).contains(&text.len()) && text.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_request_ids_are_kept() {
        let ids = RequestIdGenerator::default();
        let named = |value: &'static str, trusted| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_static(value));
            let name = ids.assign_id(&headers, || trusted);
            name.to_str().unwrap().to_owned()
        };
        assert_eq!(named("abc-123", true), "abc-123");
        let (first, second) = (named("abc-123", false), named("abc 123", true));
        assert_ne!(first, second);
        let other = named("", true);
        for new in [&first, &second, &other] {
            assert_eq!(new.len(), 32, "{new}");
            assert_eq!(new[..HALF_LEN], first[..HALF_LEN], "all names of a process begin alike");
        }
        let elsewhere = RequestIdGenerator::default().new_id();
        assert_ne!(elsewhere.as_bytes()[..HALF_LEN], first.as_bytes()[..HALF_LEN]);
    }
}
