//! The algorithms beside each other: the same arrivals, decided by each with the same numbers, on a clock of its
//! own. Nothing is stored, and the numbers are few enough that what is kept of them (`core::scale`) has an end.

use tidegate_core::algorithm::{Fit, State};
use tidegate_core::policy::{Algorithm, LeakMode, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

/// The most arrivals that are decided at once.
pub(crate) const MAX_ARRIVALS: usize = 500;

/// The largest limit and burst.
pub(crate) const MAX_REQUESTS: u64 = 100;

/// The windows there are, in seconds.
pub(crate) const WINDOWS: [u64; 3] = [1, 10, 60];

/// Arrivals come within so many windows.
pub(crate) const MAX_WINDOWS: u64 = 10;

/// When it begins: where all windows do.
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// How often it is looked how much is left.
const SAMPLES: u64 = 240;

/// What is decided.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTraffic {
    pub(crate) quota: Quota,
    /// Since the beginning, in order.
    pub(crate) arrivals: Vec<Micros>,
    /// How long it lasts.
    pub(crate) span: Micros,
}

/// What an algorithm made of it.
#[derive(Debug)]
pub(crate) struct AlgorithmRun {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    /// One for each arrival.
    pub(crate) fits: Vec<Fit>,
    /// What was left, at equal steps over the whole span.
    pub(crate) remaining: Vec<u64>,
    /// The most that were let through within any one window.
    pub(crate) busiest_window: usize,
}

/// The five, and the leaky bucket as a queue.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::LeakyBucket(LeakMode::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

/// Decides the traffic by each algorithm.
///
/// # Errors
/// When the numbers do not work.
pub(crate) fn run_algorithms(traffic: &SimulatedTraffic) -> Result<Vec<AlgorithmRun>, PolicyError> {
    ALGORITHMS.into_iter().map(|algorithm| run_algorithm(algorithm, traffic)).collect()
}

fn run_algorithm(
    algorithm: Algorithm,
    traffic: &SimulatedTraffic,
) -> Result<AlgorithmRun, PolicyError> {
    let burst = traffic.quota.burst.filter(|_| algorithm.is_bucket());
    let policy = Policy::new(algorithm, Quota { burst, ..traffic.quota })?;
    let mut state: Option<State> = None;
    let (mut fits, mut left) = (Vec::with_capacity(traffic.arrivals.len()), Vec::new());
    let mut passed = Vec::new();
    let mut samples = (0..=SAMPLES).map(|at| traffic.span.get() * at / SAMPLES).peekable();
    for arrival in &traffic.arrivals {
        while let Some(at) = samples.next_if(|at| *at <= arrival.get()) {
            left.push(policy.gauge(state.as_ref(), at_offset(at)).remaining);
        }
        let now = at_offset(arrival.get());
        let fit = policy.fit(state.as_ref(), 1, now);
        if let Fit::Now { delay } = fit {
            policy.charge(&mut state, 1, now);
            passed.push(arrival.get() + delay.get());
        }
        fits.push(fit);
    }
    left.extend(samples.map(|at| policy.gauge(state.as_ref(), at_offset(at)).remaining));
    let busiest = busiest_window(&passed, traffic.quota.window.get());
    Ok(AlgorithmRun {
        algorithm,
        limit: policy.limit(),
        fits,
        remaining: left,
        busiest_window: busiest,
    })
}

fn at_offset(micros: u64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + micros)
}

/// The most instants in a row that are less than a window apart.
fn busiest_window(passed: &[u64], window: u64) -> usize {
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
    fn fixed_window_admits_double_at_the_boundary() {
        let arrivals: Vec<Micros> =
            (0..20).map(|at| Micros::new(990_000 + u64::from(at >= 10) * 15_000 + at)).collect();
        let quota = Quota::new(10, Micros::from_secs(1));
        let lanes =
            run_algorithms(&SimulatedTraffic { quota, arrivals, span: Micros::from_secs(3) })
                .unwrap();
        let told = |algorithm| {
            let lane = lanes.iter().find(|lane| lane.algorithm == algorithm).unwrap();
            (lane.fits.iter().filter(|fit| fit.is_now()).count(), lane.busiest_window)
        };
        assert_eq!(told(Algorithm::FixedWindow), (20, 20));
        assert_eq!(told(Algorithm::SlidingWindowLog), (10, 10));
        assert_eq!(told(Algorithm::TokenBucket), (10, 10));
        assert_eq!(told(Algorithm::LeakyBucket(LeakMode::Queue)).0, 10);
        for lane in &lanes {
            assert_eq!(lane.remaining.len(), 241, "{}", lane.algorithm);
            assert_eq!((lane.remaining[0], lane.remaining[240]), (10, 10), "{}", lane.algorithm);
        }
    }
}
