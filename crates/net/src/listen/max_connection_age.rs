//! Maximum connection age, with jitter: clients that connected at the same time, such as after a
//! restart, must not all reconnect at the same time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Completes when a connection has reached its maximum age; never if there is none.
pub(super) async fn max_age_elapsed(max_age: Option<Duration>) {
    let Some(age) = max_age else { return std::future::pending().await };
    // `std` seeds each `RandomState` from the system's random source.
    let random = RandomState::new().build_hasher().finish();
    tokio::time::sleep(add_jitter(age, random)).await;
}

/// Jitters an age by up to ten percent in either direction.
fn add_jitter(age: Duration, random: u64) -> Duration {
    let tenth = age / 10;
    let fraction = (random >> 32) as f64 / f64::from(u32::MAX);
    age - tenth + (2 * tenth).mul_f64(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_age_jitter_is_ten_percent() {
        let age = Duration::from_secs(600);
        assert_eq!(add_jitter(age, 0), Duration::from_secs(540));
        assert_eq!(add_jitter(age, u64::MAX), Duration::from_secs(660));
        let middle = add_jitter(age, u64::MAX / 2);
        assert!((599..=600).contains(&middle.as_secs()), "{middle:?}");
    }
}
