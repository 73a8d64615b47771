//! The clock of the process, for measurements. Decisions use the clock of their store.

use std::time::Instant;

/// The current instant.
#[expect(
    clippy::disallowed_methods,
    reason = "this function is the only place that reads the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}
