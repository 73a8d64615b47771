//! The algorithms beside each other: the same arrivals, decided by each with the same numbers, on a clock of its
//! own. Nothing is stored, and the numbers are few enough that what is kept of them (`core::scale`) has an end.

use tidegate_core::algorithm::{Fit, State};
use tidegate_core::policy::{Algorithm, Leak, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

/// The most arrivals that are decided at once.
pub(crate) const MOST_ARRIVALS: usize = 500;

/// The largest limit and burst.
pub(crate) const MOST_REQUESTS: u64 = 100;

/// The windows there are, in seconds.
pub(crate) const WINDOWS: [u64; 3] = [1, 10, 60];

/// Arrivals come within so many windows.
pub(crate) const MOST_WINDOWS: u64 = 10;

/// When it begins: where all windows do.
const BEGIN: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// How often it is looked how much is left.
const SAMPLES: u64 = 240;

/// What is decided.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    pub(crate) quota: Quota,
    /// Since the beginning, in order.
    pub(crate) arrivals: Vec<Micros>,
    /// How long it lasts.
    pub(crate) span: Micros,
}

/// What an algorithm made of it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    /// One for each arrival.
    pub(crate) fits: Vec<Fit>,
    /// What was left, at equal steps over the whole span.
    pub(crate) left: Vec<u64>,
    /// The most that were let through within any one window.
    pub(crate) busiest: usize,
}

/// The five, and the leaky bucket as a queue.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(Leak::Police),
    Algorithm::LeakyBucket(Leak::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

/// Decides the traffic by each algorithm.
///
/// # Errors
/// When the numbers do not work.
pub(crate) fn lanes(traffic: &Traffic) -> Result<Vec<Lane>, PolicyError> {
    ALGORITHMS.into_iter().map(|algorithm| lane(algorithm, traffic)).collect()
}

fn lane(algorithm: Algorithm, traffic: &Traffic) -> Result<Lane, PolicyError> {
    let burst = traffic.quota.burst.filter(|_| algorithm.is_bucket());
    let policy = Policy::new(algorithm, Quota { burst, ..traffic.quota })?;
    let mut state: Option<State> = None;
    let (mut fits, mut left) = (Vec::with_capacity(traffic.arrivals.len()), Vec::new());
    let mut passed = Vec::new();
    let mut samples = (0..=SAMPLES).map(|at| traffic.span.get() * at / SAMPLES).peekable();
    for arrival in &traffic.arrivals {
        while let Some(at) = samples.next_if(|at| *at <= arrival.get()) {
            left.push(policy.gauge(state.as_ref(), after(at)).remaining);
        }
        let now = after(arrival.get());
        let fit = policy.fit(state.as_ref(), 1, now);
        if let Fit::Now { delay } = fit {
            policy.charge(&mut state, 1, now);
            passed.push(arrival.get() + delay.get());
        }
        fits.push(fit);
    }
    left.extend(samples.map(|at| policy.gauge(state.as_ref(), after(at)).remaining));
    let busiest = busiest(&passed, traffic.quota.window.get());
    Ok(Lane { algorithm, limit: policy.limit(), fits, left, busiest })
}

fn after(micros: u64) -> Timestamp {
    Timestamp::from_micros(BEGIN.as_micros() + micros)
}

/// The most instants in a row that are less than a window apart.
fn busiest(passed: &[u64], window: u64) -> usize {
    let mut from = 0;
    let counts = passed.iter().enumerate().map(|(at, instant)| {
        while passed[from] + window <= *instant {
            from += 1;
        }
        at + 1 - from
    });
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten just before the end of a window and ten just after it: the reason why one chooses.
    #[test]
    fn a_fixed_window_lets_twice_the_limit_through_and_a_log_does_not() {
        let arrivals: Vec<Micros> =
            (0..20).map(|at| Micros::new(990_000 + u64::from(at >= 10) * 15_000 + at)).collect();
        let quota = Quota::new(10, Micros::from_secs(1));
        let lanes = lanes(&Traffic { quota, arrivals, span: Micros::from_secs(3) }).unwrap();
        let told = |algorithm| {
            let lane = lanes.iter().find(|lane| lane.algorithm == algorithm).unwrap();
            (lane.fits.iter().filter(|fit| fit.is_now()).count(), lane.busiest)
        };
        assert_eq!(told(Algorithm::FixedWindow), (20, 20));
        assert_eq!(told(Algorithm::SlidingWindowLog), (10, 10));
        assert_eq!(told(Algorithm::TokenBucket), (10, 10));
        assert_eq!(told(Algorithm::LeakyBucket(Leak::Queue)).0, 10);
        for lane in &lanes {
            assert_eq!(lane.left.len(), 241, "{}", lane.algorithm);
            assert_eq!((lane.left[0], lane.left[240]), (10, 10), "{}", lane.algorithm);
        }
    }
}
