//! Request ids, which identify a request in the response, in the logs and at the upstream.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::hex;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of an id from a trusted proxy.
const MAX_BYTES: usize = 128;

/// The length of each half of an id: the process prefix and the request number.
const HALF_LEN: usize = 16;

/// Generates ids: a prefix common to all ids of this process, then the keyed hash of a counter,
/// which hides the number of requests.
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
    /// Returns the id from a trusted proxy, or a new one. `peer_is_trusted` is called only if the
    /// request has a valid id.
    pub(super) fn assign_id(
        &self,
        headers: &HeaderMap,
        peer_is_trusted: impl FnOnce() -> bool,
    ) -> HeaderValue {
        match inbound_request_id(headers) {
            Some(id) if peer_is_trusted() => id.clone(),
            _ => self.new_id(),
        }
    }

    /// Generates an id.
    pub(super) fn new_id(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Relaxed);
        let mut text = [0; 2 * HALF_LEN];
        text[..HALF_LEN].copy_from_slice(&self.process_prefix);
        text[HALF_LEN..].copy_from_slice(&hex::digits(self.secret.hash_one(number)));
        // Cannot fail: hexadecimal digits are valid in a header.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// The id in the request, if there is exactly one and it is valid.
fn inbound_request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut ids = headers.get_all(X_REQUEST_ID).iter();
    match (ids.next(), ids.next()) {
        (Some(id), None) => Some(id).filter(|id| is_valid_id(id.as_bytes())),
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
        let assigned = |value: &'static str, trusted| {
            let mut headers = HeaderMap::new();
            headers.insert(X_REQUEST_ID, HeaderValue::from_static(value));
            let id = ids.assign_id(&headers, || trusted);
            id.to_str().unwrap().to_owned()
        };
        assert_eq!(assigned("abc-123", true), "abc-123");
        let (first, second) = (assigned("abc-123", false), assigned("abc 123", true));
        assert_ne!(first, second);
        let other = assigned("", true);
        for new in [&first, &second, &other] {
            assert_eq!(new.len(), 32, "{new}");
            assert_eq!(new[..HALF_LEN], first[..HALF_LEN], "all ids of a process have one prefix");
        }
        let elsewhere = RequestIdGenerator::default().new_id();
        assert_ne!(elsewhere.as_bytes()[..HALF_LEN], first.as_bytes()[..HALF_LEN]);
    }
}
