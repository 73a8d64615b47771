//! What real nodes admitted on one leased rule, checked against the rule's bound.
//!
//! A node's log shows between which instants a decision was made, not exactly when. So an interval
//! contains an admission only if both instants are in it, and an excess that is found is certain.

use std::ops::Range;

use tidegate_core::policy::Algorithm;

use crate::bound::{BoundConditions, RuleBound};
use crate::rule_spec::{LeaseSpec, RuleSpec};

/// A leased rule with one key.
#[derive(Clone, Copy, Debug)]
pub struct LeasedRule {
    /// The ID.
    pub id: &'static str,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Requests in a window.
    pub requests: u64,
    /// The window in milliseconds.
    pub window_ms: u64,
    /// The burst of a bucket.
    pub burst: u64,
    /// How long a lease lives, in milliseconds.
    pub ttl_ms: u64,
}

/// An admission. Times are in microseconds of one clock, which the store also uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedAdmission {
    /// It was not made before this.
    pub earliest: u64,
    /// It was not made after this.
    pub latest: u64,
    /// The units.
    pub cost: u64,
}

/// The admissions on one rule.
#[derive(Clone, Debug)]
pub struct ObservedLedger {
    bound: RuleBound,
    admissions: Vec<ObservedAdmission>,
}

impl ObservedLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new(rule: &LeasedRule) -> Self {
        let LeasedRule { id, algorithm, requests, window_ms, burst, ttl_ms } = *rule;
        let spec = RuleSpec {
            id,
            algorithm,
            requests,
            window_ms,
            burst,
            is_global: false,
            is_shadow: false,
            is_local: false,
            lease: Some(LeaseSpec { ttl_ms, is_plus_ttl: false }),
            flush_ms: None,
            regions: None,
        };
        // The store's clock is that of the logs, and the rule is not asynchronous.
        let conditions = BoundConditions { store_ppm: 0, longest_hold: 0, longest_refund: 0 };
        Self { bound: RuleBound::new(spec, conditions), admissions: Vec::new() }
    }

    /// Adds an admission.
    pub fn admit(&mut self, admission: ObservedAdmission) {
        self.admissions.push(admission);
    }

    /// The store lost its state, or part of it, in this time.
    pub fn lose_state(&mut self, time: Range<u64>) {
        self.bound.lose_state(time.end);
        self.begin_disturbance(time.start);
    }

    /// The store's clock was stepped in this time.
    pub fn step_clock(&mut self, micros: i64, time: Range<u64>) {
        self.bound.step(micros, time.end);
        self.begin_disturbance(time.start);
    }

    /// The units that were certainly admitted between two instants.
    #[must_use]
    pub fn admitted_between(&self, from: u64, to: u64) -> u64 {
        let within =
            |one: &&ObservedAdmission| (from..=to).contains(&one.earliest) && one.latest <= to;
        self.admissions.iter().filter(within).map(|one| one.cost).sum()
    }

    /// The units that the store lends in a second, once nothing is left of a burst.
    #[must_use]
    pub fn lent_per_second(&self) -> u64 {
        let spec = &self.bound.spec;
        let window = match spec.algorithm {
            Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter => {
                spec.window_ms + spec.ttl_micros() / 1_000
            }
            _ => spec.window_ms,
        };
        spec.requests * 1_000 / window
    }

    /// Checks every interval.
    ///
    /// # Errors
    /// If an interval contains more than the bound allows.
    pub fn check(&self) -> Result<(), String> {
        let mut by_end = self.admissions.clone();
        by_end.sort_unstable_by_key(|one| one.latest);
        let mut starts: Vec<u64> = by_end.iter().map(|one| one.earliest).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut passed = 0;
        for start in starts {
            // Nothing that ended before this can be in a later interval.
            passed += by_end[passed..].iter().take_while(|one| one.latest < start).count();
            self.check_from(start, &by_end[passed..])?;
        }
        Ok(())
    }

    /// The last disturbance may have begun earlier than it ended.
    fn begin_disturbance(&mut self, from: u64) {
        if let Some(last) = self.bound.disturbances.last_mut() {
            last.from = from;
        }
    }

    /// Checks the intervals that begin at an instant.
    fn check_from(&self, start: u64, by_end: &[ObservedAdmission]) -> Result<(), String> {
        let (bound, unit) = (&self.bound, self.bound.per_request());
        let end = start.saturating_add(self.longest_interval(start));
        let mut sum = 0;
        let contained = by_end.iter().take_while(|one| one.latest < end);
        for one in contained.filter(|one| one.earliest >= start) {
            sum += one.cost;
            let allowed = bound.terms_at(one.latest).base
                + bound.drained(start, one.latest)
                + bound.extra(start, one.latest);
            if i128::from(sum) * unit > allowed {
                return Err(format!(
                    "rule {}: {sum} admitted from {start} to {}, in {} µs; at most {} may be",
                    bound.spec.id,
                    one.latest,
                    one.latest - start,
                    allowed / unit
                ));
            }
        }
        Ok(())
    }

    /// The length of the intervals from `start` that the bound covers.
    fn longest_interval(&self, start: u64) -> u64 {
        match self.bound.spec.algorithm {
            Algorithm::FixedWindow => {
                let window = self.bound.spec.window_ms * 1_000;
                // A lease of the window before may end this much later, by the drift of clocks.
                let sliver = self.bound.longest_lease() / 2_000 + 3;
                if start % window > sliver { window - start % window } else { 0 }
            }
            Algorithm::SlidingWindowLog => self.bound.log_span(),
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::policy::LeakMode;

    use super::*;

    const RULE: LeasedRule = LeasedRule {
        id: "rule",
        algorithm: Algorithm::TokenBucket,
        requests: 100,
        window_ms: 1_000,
        burst: 50,
        ttl_ms: 100,
    };

    /// The start of a window.
    const START: u64 = 1_000_000_000;

    fn ledger(algorithm: Algorithm, admissions: &[(u64, u64, u64)]) -> ObservedLedger {
        let mut ledger = ObservedLedger::new(&LeasedRule { algorithm, ..RULE });
        for (earliest, latest, cost) in admissions {
            let (earliest, latest) = (START + earliest, START + latest);
            ledger.admit(ObservedAdmission { earliest, latest, cost: *cost });
        }
        ledger
    }

    #[test]
    fn excess_of_one_unit_is_found() {
        use Algorithm::{FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog};
        for (algorithm, first, second) in [
            (Algorithm::TokenBucket, 50, 50),
            (LeakyBucket(LeakMode::Police), 50, 50),
            (SlidingWindowCounter, 100, 50),
            (FixedWindow, 60, 40),
            (SlidingWindowLog, 60, 40),
        ] {
            // Half a second apart, which refills 50 units of a bucket.
            let admitted = |more: u64| {
                let second = (500_100, 500_100, second + more);
                ledger(algorithm, &[(100, 100, first), second]).check()
            };
            assert_eq!(admitted(0), Ok(()), "{algorithm}");
            assert!(admitted(1).is_err(), "{algorithm}");
        }
    }

    #[test]
    fn windows_end() {
        let full = [(500_000, 500_000, 100), (1_500_000, 1_500_000, 100)];
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowLog] {
            assert_eq!(ledger(algorithm, &full).check(), Ok(()), "{algorithm}");
        }
        let near = [(900_000, 900_000, 100), (1_100_000, 1_100_000, 100)];
        assert_eq!(ledger(Algorithm::FixedWindow, &near).check(), Ok(()));
        assert!(ledger(Algorithm::SlidingWindowLog, &near).check().is_err());
    }

    #[test]
    fn uncertain_times_are_given_benefit() {
        let wide = [(0, 100, 50), (0, 600_000, 50)];
        assert_eq!(ledger(Algorithm::TokenBucket, &wide).check(), Ok(()));
        let narrow = [(0, 100, 50), (0, 300_000, 50)];
        assert!(ledger(Algorithm::TokenBucket, &narrow).check().is_err());
    }

    #[test]
    fn lost_state_adds_one_burst() {
        let mut lost = ledger(Algorithm::TokenBucket, &[(0, 10, 50), (2_000, 2_010, 50)]);
        assert!(lost.check().is_err());
        lost.lose_state(START + 1_000..START + 1_500);
        assert_eq!(lost.check(), Ok(()));
        lost.admit(ObservedAdmission { earliest: START, latest: START + 3_000, cost: 1 });
        assert!(lost.check().is_err());
    }
}
