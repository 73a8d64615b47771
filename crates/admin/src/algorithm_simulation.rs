//! Simulates every algorithm on the same arrivals with the same limit and a simulated clock.
//! Nothing is stored. Limits and windows come from a small range, which bounds what `core::scale`
//! caches.

use tidegate_core::algorithm::{Fit, State};
use tidegate_core::policy::{Algorithm, LeakMode, Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

/// The maximum number of arrivals in one simulation.
pub(crate) const MAX_ARRIVALS: usize = 500;

/// The largest limit and burst.
pub(crate) const MAX_REQUESTS: u64 = 100;

/// The allowed windows, in seconds.
pub(crate) const WINDOWS: [u64; 3] = [1, 10, 60];

/// The maximum time of an arrival, in windows.
pub(crate) const MAX_WINDOWS: u64 = 10;

/// The simulation starts where a window of every size starts.
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// Number of steps at which the remaining quota is sampled.
const SAMPLES: u64 = 240;

/// The limit and the arrivals to simulate.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedTraffic {
    pub(crate) quota: Quota,
    /// Offsets from the start, in ascending order.
    pub(crate) arrivals: Vec<Micros>,
    /// The duration of the simulation.
    pub(crate) span: Micros,
}

/// The result of one algorithm.
#[derive(Debug)]
pub(crate) struct AlgorithmRun {
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    /// One result for each arrival.
    pub(crate) fits: Vec<Fit>,
    /// The remaining quota, sampled at equal steps over the whole span.
    pub(crate) remaining: Vec<u64>,
    /// The most requests admitted within any interval as long as the window.
    pub(crate) busiest_window: usize,
}

/// The five algorithms, with both modes of the leaky bucket.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::LeakyBucket(LeakMode::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::SlidingWindowCounter,
];

/// Simulates each algorithm.
///
/// # Errors
/// When the limit is not valid for an algorithm.
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
    let (mut fits, mut remaining) = (Vec::with_capacity(traffic.arrivals.len()), Vec::new());
    let mut passed = Vec::new();
    let mut samples = (0..=SAMPLES).map(|at| traffic.span.get() * at / SAMPLES).peekable();
    for arrival in &traffic.arrivals {
        while let Some(at) = samples.next_if(|at| *at <= arrival.get()) {
            remaining.push(policy.gauge(state.as_ref(), at_offset(at)).remaining);
        }
        let now = at_offset(arrival.get());
        let fit = policy.fit(state.as_ref(), 1, now);
        if let Fit::Now { delay } = fit {
            policy.charge(&mut state, 1, now);
            passed.push(arrival.get() + delay.get());
        }
        fits.push(fit);
    }
    remaining.extend(samples.map(|at| policy.gauge(state.as_ref(), at_offset(at)).remaining));
    let busiest_window = busiest_window(&passed, traffic.quota.window.get());
    Ok(AlgorithmRun { algorithm, limit: policy.limit(), fits, remaining, busiest_window })
}

fn at_offset(micros: u64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + micros)
}

/// The largest number of instants within any interval as long as the window.
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

    /// Ten arrivals just before the end of a window and ten just after it: the fixed window admits
    /// all 20, the others admit 10.
    #[test]
    fn fixed_window_admits_double_at_the_boundary() {
        let arrivals: Vec<Micros> =
            (0..20).map(|at| Micros::new(990_000 + u64::from(at >= 10) * 15_000 + at)).collect();
        let quota = Quota::new(10, Micros::from_secs(1));
        let lanes =
            run_algorithms(&SimulatedTraffic { quota, arrivals, span: Micros::from_secs(3) })
                .unwrap();
        let result = |algorithm| {
            let lane = lanes.iter().find(|lane| lane.algorithm == algorithm).unwrap();
            (lane.fits.iter().filter(|fit| fit.is_now()).count(), lane.busiest_window)
        };
        assert_eq!(result(Algorithm::FixedWindow), (20, 20));
        assert_eq!(result(Algorithm::SlidingWindowLog), (10, 10));
        assert_eq!(result(Algorithm::TokenBucket), (10, 10));
        assert_eq!(result(Algorithm::LeakyBucket(LeakMode::Queue)).0, 10);
        for lane in &lanes {
            assert_eq!(lane.remaining.len(), 241, "{}", lane.algorithm);
            assert_eq!((lane.remaining[0], lane.remaining[240]), (10, 10), "{}", lane.algorithm);
        }
    }
}
