//! The process's own clock, for what is measured rather than decided. Counters go by their store's.

use std::time::Instant;

/// The present instant.
#[expect(clippy::disallowed_methods, reason = "the wiring may read the clock; this is where")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
