//! The algorithms in exact rational arithmetic, straight from their definitions.
//!
//! Each algorithm is one function, [`Oracle::used`]: how much of the limit is used at an instant if
//! nothing else is charged. Everything else follows from searching it: a cost fits if `used + cost
//! ≤ limit`, and the wait ends at the first instant at which it fits. None of core's formulas is
//! used here.

mod charge_log;
mod confirm;
mod draining_bucket;

use num_rational::Ratio;
use tidegate_core::algorithm::{Fit, Gauge};
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

use charge_log::ChargeLog;
use draining_bucket::DrainingBucket;

/// The retry hint for concurrency slots: when a slot will be released is unknown.
const SLOT_RETRY_HINT: Micros = Micros::from_secs(1);

/// An exact rational number.
pub type ExactRatio = Ratio<i128>;

/// A counter that follows the algorithm's definition.
#[derive(Clone, Debug)]
pub struct Oracle {
    state: OracleState,
    limit: i128,
    queue: bool,
}

/// The state of an algorithm.
#[derive(Clone, Debug)]
enum OracleState {
    /// A level that drains at a constant rate.
    Bucket(DrainingBucket),
    /// The charges; those in the current epoch-aligned window count.
    Fixed(ChargeLog),
    /// The charges; those in the window that ends now count.
    Log(ChargeLog),
    /// The slots; those taken or renewed within the hold time that ends now count.
    Slots(ChargeLog),
    /// The charges; those in the current epoch-aligned window count, and those in the previous one
    /// in proportion to its overlap with the sliding window. The proportion is too large by at most
    /// the second field.
    Counter(ChargeLog, ExactRatio),
}

impl Oracle {
    /// An unused counter.
    #[must_use]
    pub fn new(algorithm: Algorithm, quota: &Quota) -> Self {
        let rate = ExactRatio::new(quota.requests.into(), quota.window.get().into());
        Self::with_stricter_rate(algorithm, quota, rate, ExactRatio::from_integer(0))
    }

    /// An unused counter that is stricter than the definition: a bucket drains at `rate`, and a
    /// sliding window counter counts `share` more of the previous window.
    #[must_use]
    pub fn with_stricter_rate(
        algorithm: Algorithm,
        quota: &Quota,
        rate: ExactRatio,
        share: ExactRatio,
    ) -> Self {
        let (requests, window) = (i128::from(quota.requests), i128::from(quota.window.get()));
        let burst = i128::from(quota.burst());
        let (state, limit) = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
                (OracleState::Bucket(DrainingBucket::new(rate, burst)), burst)
            }
            Algorithm::FixedWindow => {
                (OracleState::Fixed(ChargeLog::new(window, requests)), requests)
            }
            Algorithm::SlidingWindowLog => {
                (OracleState::Log(ChargeLog::new(window, requests)), requests)
            }
            Algorithm::Concurrent => {
                (OracleState::Slots(ChargeLog::new(window, requests)), requests)
            }
            Algorithm::SlidingWindowCounter => {
                (OracleState::Counter(ChargeLog::new(window, requests), share), requests)
            }
        };
        Self { state, limit, queue: algorithm == Algorithm::LeakyBucket(LeakMode::Queue) }
    }

    /// How much of the limit is used at `at`, if nothing else is charged until then.
    #[must_use]
    pub fn used(&self, at: i128) -> ExactRatio {
        match &self.state {
            OracleState::Bucket(bucket) => bucket.level(at),
            OracleState::Fixed(past) => {
                ExactRatio::from_integer(past.sum_in_window(past.window_id(at)))
            }
            OracleState::Log(past) | OracleState::Slots(past) => {
                ExactRatio::from_integer(past.sum_in_window_ending_at(at))
            }
            OracleState::Counter(past, share) => {
                let (id, elapsed) = (past.window_id(at), at.rem_euclid(past.window));
                let overlap = ExactRatio::new(past.window - elapsed, past.window) + share;
                let before = past.sum_in_window(id - 1);
                overlap.min(ExactRatio::from_integer(1)) * before + past.sum_in_window(id)
            }
        }
    }

    /// Whether `cost` fits at `at`.
    #[must_use]
    pub fn fits(&self, cost: u64, at: i128) -> bool {
        self.used(at) + i128::from(cost) <= ExactRatio::from_integer(self.limit)
    }

    /// Charges `cost` at `now`, whether it fits or not. Debt is capped at one more full bucket or
    /// window.
    pub fn charge(&mut self, cost: u64, now: Timestamp) {
        let (cost, now) = (i128::from(cost), i128::from(now.as_micros()));
        match &mut self.state {
            OracleState::Bucket(bucket) => bucket.fill(cost, now),
            OracleState::Fixed(past) | OracleState::Counter(past, _) => {
                let held = past.sum_in_window(past.window_id(now));
                past.add(cost.min(2 * self.limit - held), now);
            }
            OracleState::Log(past) => {
                let cost = cost.min(2 * self.limit - past.sum_in_window_ending_at(now));
                past.merge_newest_if_full(cost, now);
                past.add(cost, now);
            }
            OracleState::Slots(past) => {
                past.add(cost.min(2 * self.limit - past.sum_in_window_ending_at(now)), now);
            }
        }
    }

    /// Refunds a `cost` that was charged at `charged_at`.
    pub fn refund(&mut self, cost: u64, charged_at: Timestamp, now: Timestamp) {
        let (cost, now) = (i128::from(cost), i128::from(now.as_micros()));
        let then = i128::from(charged_at.as_micros());
        match &mut self.state {
            OracleState::Bucket(bucket) => bucket.refund(cost, then, now),
            OracleState::Fixed(past) if past.window_id(then) == past.window_id(now) => {
                past.remove(cost, |past, at| past.window_id(at) == past.window_id(then));
            }
            OracleState::Counter(past, _)
                if (0..=1).contains(&(past.window_id(now) - past.window_id(then))) =>
            {
                past.remove(cost, |past, at| past.window_id(at) == past.window_id(then));
            }
            OracleState::Log(past) | OracleState::Slots(past) => {
                past.remove(cost, |_, at| at == then);
            }
            OracleState::Fixed(_) | OracleState::Counter(..) => {}
        }
    }

    /// Renews slots taken at `charged_at`, as if they were taken now.
    pub fn renew(&mut self, cost: u64, charged_at: Timestamp, now: Timestamp) {
        if matches!(self.state, OracleState::Slots(_)) {
            self.refund(cost, charged_at, now);
            self.charge(cost, now);
        }
    }

    /// Clears the counter.
    pub fn reset(&mut self) {
        match &mut self.state {
            OracleState::Bucket(bucket) => bucket.clear(),
            OracleState::Fixed(past)
            | OracleState::Log(past)
            | OracleState::Slots(past)
            | OracleState::Counter(past, _) => {
                past.clear();
            }
        }
    }

    /// Switches to another quota with the same window. A bucket drains at the old rate until `now`
    /// and at the new one from then on; its usage is rounded up to whole requests.
    pub fn reload(&mut self, quota: &Quota, now: Timestamp) {
        let requests = i128::from(quota.requests);
        match &mut self.state {
            OracleState::Bucket(bucket) => {
                self.limit = quota.burst().into();
                let rate = ExactRatio::new(requests, quota.window.get().into());
                bucket.set_rate(rate, self.limit, now.as_micros().into());
            }
            OracleState::Fixed(past)
            | OracleState::Counter(past, _)
            | OracleState::Log(past)
            | OracleState::Slots(past) => {
                self.limit = requests;
                past.requests = requests;
            }
        }
    }

    /// Moves charges later than `now` to `now`, after the clock went back.
    pub fn rebase(&mut self, now: Timestamp) {
        let now = i128::from(now.as_micros());
        match &mut self.state {
            OracleState::Bucket(bucket) => bucket.rebase(now),
            OracleState::Fixed(past)
            | OracleState::Log(past)
            | OracleState::Slots(past)
            | OracleState::Counter(past, _) => {
                past.rebase(now);
            }
        }
    }

    /// Whether `cost` fits and, if not, when it will; found by search.
    #[must_use]
    pub fn fit(&self, cost: u64, now: Timestamp) -> Fit {
        let now = i128::from(now.as_micros());
        if i128::from(cost) > self.limit {
            return Fit::Never;
        }
        match first_true(|wait| self.fits(cost, now + wait)) {
            Micros::ZERO if self.queue => Fit::Now { delay: self.time_until_unused(now) },
            Micros::ZERO => Fit::NOW,
            _ if self.uses_retry_hint() => Fit::After(SLOT_RETRY_HINT),
            wait => Fit::After(wait),
        }
    }

    /// What remains; found by search.
    #[must_use]
    pub fn gauge(&self, now: Timestamp) -> Gauge {
        let now = i128::from(now.as_micros());
        let refused =
            first_true(|more| self.used(now) + more > ExactRatio::from_integer(self.limit));
        let remaining = refused.get().saturating_sub(1);
        let next_after = self.time_until_more(remaining, now);
        Gauge { remaining, reset_after: self.time_until_unused(now), next_after }
    }

    /// How long at most `remaining` can be admitted, whatever the requests; found by search. For a
    /// sliding window counter the answer reaches at most to the end of the current window, because
    /// usage counts less from then on. For a log it is the lifetime of the oldest entry.
    fn time_until_more(&self, remaining: u64, now: i128) -> Micros {
        let end = |past: &ChargeLog| past.window - now.rem_euclid(past.window);
        match &self.state {
            OracleState::Slots(_) => Micros::ZERO,
            OracleState::Fixed(past) => to_micros(end(past)),
            OracleState::Log(past) => {
                let used = self.used(now);
                match used == ExactRatio::from_integer(0) {
                    true => to_micros(past.window),
                    false => first_true(|wait| self.used(now + wait) < used),
                }
            }
            OracleState::Counter(past, _) => {
                let more = i128::from(remaining) + 1;
                let fits =
                    |wait| self.used(now + wait) + more <= ExactRatio::from_integer(self.limit);
                first_true(|wait| wait >= end(past) || fits(wait))
            }
            OracleState::Bucket(_) => {
                // Spend what remains first, because a full bucket gains nothing.
                let mut spent = self.clone();
                if let OracleState::Bucket(bucket) = &mut spent.state {
                    bucket.fill(i128::from(remaining), now);
                }
                first_true(|wait| spent.fits(1, now + wait))
            }
        }
    }

    /// Whether the wait is unknown, so that a hint is returned.
    const fn uses_retry_hint(&self) -> bool {
        matches!(self.state, OracleState::Slots(_))
    }

    fn time_until_unused(&self, now: i128) -> Micros {
        first_true(|wait| self.used(now + wait) == ExactRatio::from_integer(0))
    }
}

fn to_micros(micros: i128) -> Micros {
    Micros::new(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The smallest number from zero for which `holds` is true; `holds` must stay true once it is.
fn first_true(holds: impl Fn(i128) -> bool) -> Micros {
    let mut yes = 0;
    while !holds(yes) {
        yes = (2 * yes).max(1);
    }
    let mut no = yes / 2;
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    Micros::new(u64::try_from(yes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::charges_only;
    use crate::property::check_property;
    use crate::quotas::RATE_ALGORITHMS;
    use proptest::prelude::*;
    use tidegate_core::decision::Reading;
    use tidegate_core::policy::Policy;

    /// Binary search relies on usage never growing without a charge; linear search relies on
    /// nothing.
    #[test]
    fn binary_search_matches_linear_search() {
        let quota = (1_u64..6, 1_u64..20)
            .prop_map(|(requests, window)| Quota::new(requests, Micros::new(window)));
        let strategy = (0_usize..6, quota, charges_only(8), 1_u64..6);
        check_property("oracle_search", 20_000, &strategy, |(which, quota, history, cost)| {
            let policy = Policy::new(RATE_ALGORITHMS[which], quota).unwrap();
            let (mut oracle, mut now) =
                (Oracle::new(RATE_ALGORITHMS[which], &quota), history.start);
            for step in &history.steps {
                now = step.time_step.advance(&policy, &Reading::default(), now);
                oracle.charge(step.cost.resolve(&policy, &Reading::default()), now);
            }
            let at = i128::from(now.as_micros());
            let scan = |holds: &dyn Fn(i128) -> bool| (0..1_000_u64).find(|n| holds((*n).into()));
            if let Fit::After(wait) = oracle.fit(cost, now) {
                prop_assert_eq!(scan(&|n| oracle.fits(cost, at + n)), Some(wait.get()));
            }
            let unused_after = scan(&|n| oracle.used(at + n) == ExactRatio::from_integer(0));
            prop_assert_eq!(unused_after, Some(oracle.gauge(now).reset_after.get()));
            prop_assert!((0..100).all(|n| oracle.used(at + n) >= oracle.used(at + n + 1)));
            Ok(())
        });
    }
}
