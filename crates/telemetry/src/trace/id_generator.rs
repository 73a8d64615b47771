//! Generates trace and span IDs: hashes of a counter, keyed with random secrets of the process,
//! like request IDs.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::context::{SpanId, TraceId};

/// Generates trace and span IDs.
#[derive(Debug, Default)]
pub(super) struct TraceIdGenerator {
    next: AtomicU64,
    secrets: [RandomState; 3],
}

impl TraceIdGenerator {
    pub(super) fn next_trace_id(&self) -> TraceId {
        let number = self.next_number();
        let [high, low, _] = &self.secrets;
        let id = u128::from(high.hash_one(number)) << 64 | u128::from(low.hash_one(number));
        // An ID of all zeros is invalid.
        id.max(1).to_be_bytes()
    }

    pub(super) fn next_span_id(&self) -> SpanId {
        let number = self.next_number();
        let [.., secret] = &self.secrets;
        secret.hash_one(number).max(1).to_be_bytes()
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}
