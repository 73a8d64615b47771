//! How old a connection gets. Not all of the same age at once: callers that came together, after a restart,
//! would leave together too.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Returns when a connection is old enough to go; never if it may stay.
pub(super) async fn old(max_age: Option<Duration>) {
    let Some(age) = max_age else { return std::future::pending().await };
    // `std` seeds each `RandomState` from the system's random source.
    let random = RandomState::new().build_hasher().finish();
    tokio::time::sleep(jittered(age, random)).await;
}

/// An age from nine to eleven tenths of the one that was asked for.
fn jittered(age: Duration, random: u64) -> Duration {
    let tenth = age / 10;
    let part = (random >> 32) as f64 / f64::from(u32::MAX);
    age - tenth + (2 * tenth).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_by_a_tenth_to_both_sides() {
        let age = Duration::from_secs(600);
        assert_eq!(jittered(age, 0), Duration::from_secs(540));
        assert_eq!(jittered(age, u64::MAX), Duration::from_secs(660));
        let middle = jittered(age, u64::MAX / 2);
        assert!((599..=600).contains(&middle.as_secs()), "{middle:?}");
    }
}
