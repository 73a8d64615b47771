//! Checks A(T), the upper bound on what an algorithm admits in an interval of length T, over all
//! intervals.
//!
//! All arithmetic is in integers: both sides of each bound are multiplied by the window.

use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::time::{Micros, Timestamp};

/// One admitted request.
#[derive(Clone, Copy, Debug)]
pub struct TimedAdmission {
    /// Time of the admission.
    pub at: Timestamp,
    /// Its cost.
    pub cost: u64,
    /// How long a queue delays it.
    pub delay: Micros,
}

/// Checks that no interval contains more admissions than the algorithm allows. `admitted` must be
/// sorted by time.
///
/// # Errors
/// If an interval exceeds the bound; the message names it.
pub fn check_bound(policy: &Policy, admitted: &[TimedAdmission]) -> Result<(), String> {
    let times: Vec<(i128, i128)> =
        admitted.iter().map(|one| (one.at.as_micros().into(), one.cost.into())).collect();
    check_intervals(&times, "admitted", |span, _| max_admitted(policy, span))?;
    if policy.algorithm() == Algorithm::LeakyBucket(LeakMode::Queue) {
        let leave = |one: &TimedAdmission| one.at.plus(one.delay).as_micros().into();
        let leaving: Vec<(i128, i128)> =
            admitted.iter().map(|one| (leave(one), one.cost.into())).collect();
        if !leaving.is_sorted_by_key(|(at, _)| *at) {
            return Err(format!("requests leave the queue out of order: {leaving:?}"));
        }
        let (requests, window) = requests_and_window(policy);
        check_intervals(&leaving, "departures", |span, largest| {
            Some((largest * window + requests * (span + 1), window))
        })?;
    }
    Ok(())
}

/// The most that may be admitted in a closed interval of this length, as a fraction; `None` if the
/// bound does not cover this length.
fn max_admitted(policy: &Policy, span: i128) -> Option<(i128, i128)> {
    let (requests, window) = requests_and_window(policy);
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
            Some((i128::from(policy.limit()) * window + requests * span, window))
        }
        Algorithm::FixedWindow => (span <= window).then_some((2 * requests, 1)),
        // (now − W, now]: a window never contains both ends of an interval of its length. The same
        // number of slots can be taken if none is released.
        Algorithm::SlidingWindowLog | Algorithm::Concurrent => {
            (span < window).then_some((requests, 1))
        }
        Algorithm::SlidingWindowCounter => {
            (span <= window).then_some((requests * (window + span), window))
        }
    }
}

fn check_intervals(
    times: &[(i128, i128)],
    what: &str,
    bound: impl Fn(i128, i128) -> Option<(i128, i128)>,
) -> Result<(), String> {
    for (i, (from, _)) in times.iter().enumerate() {
        let (mut sum, mut largest) = (0, 0);
        for (to, cost) in &times[i..] {
            sum += cost;
            largest = cost.max(&largest).to_owned();
            if let Some((over, under)) = bound(to - from, largest)
                && sum * under > over
            {
                return Err(format!("{what} {sum} > {over}/{under} in [{from}, {to}]: {times:?}"));
            }
        }
    }
    Ok(())
}

fn requests_and_window(policy: &Policy) -> (i128, i128) {
    (policy.quota().requests.into(), policy.quota().window.get().into())
}
