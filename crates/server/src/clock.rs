//! The clocks of the process, for measurements and leases. Decisions use the clock of their store.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::time::Timestamp;

/// The current instant.
#[expect(
    clippy::disallowed_methods,
    reason = "this function is the only place that reads the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// The time since the machine started, including suspensions. It counts on while the process is
/// stopped, and steps of the wall clock do not move it.
pub(crate) fn since_boot() -> Timestamp {
    let time = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    let micros = secs.unwrap_or_default().saturating_mul(1_000_000);
    Timestamp::from_micros(micros.saturating_add(nanos.unwrap_or_default() / 1_000))
}
