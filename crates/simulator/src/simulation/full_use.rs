//! Whether the fleet returns to full use once faults have stopped.

use std::ops::Range;

use tidegate_core::policy::Algorithm;

use super::Simulation;
use crate::rule_spec::RuleSpec;

/// How much of what a store allows must be used.
struct ExpectedUse {
    allowed: u64,
    percent: u64,
}

impl Simulation {
    /// The fleet uses 98 % of what the lending policy of the first rule allows, but for what the
    /// specification gives away. With regions, all demand is in one of them, which uses 95 % of its
    /// share and of what the others lend.
    ///
    /// - A node learns late that a window has room ([`RuleSpec::lag`]), because it paces itself. A
    ///   log that was used up in an instant stays so for a whole period, so only whole periods
    ///   count.
    /// - The count of a sliding window counter is rounded up: one request a window.
    /// - What a node holds when the measurement starts or ends belongs to another time.
    /// - An asynchronous bucket that is full does not refill until the store knows what was
    ///   admitted; windows that count by flushes are used to 90 %.
    pub(super) fn check_use(&self) -> Result<(), String> {
        let measured = self.scenario.measured;
        if measured == 0 {
            return Ok(());
        }
        let rule = self.main_rule();
        let used_at = |store| {
            let Range { start, end } = self.measured_at(rule, store);
            self.checker.main_admitted_at(store, start, end)
        };
        let by_store: Vec<u64> = (0..self.servers.len()).map(used_at).collect();
        let used: u64 = by_store.iter().sum();
        let ExpectedUse { allowed, percent } = match &self.scenario.regions {
            None => self.expected_use(rule),
            Some(plan) => self.expected_in_region(rule, plan.last_region),
        };
        let slack = 2 + 2 * self.fleet.len() as u64;
        if (used + slack) * 100 < allowed * percent {
            return Err(format!(
                "rule {}: {used} used of {allowed} within {measured} µs of sufficient demand, by \
                 store {by_store:?}",
                rule.id
            ));
        }
        Ok(())
    }

    /// When the use of a store is measured. The windows of regions begin at different times, and
    /// what is lent of one is used at any time in it, so only whole windows count.
    fn measured_at(&self, rule: &RuleSpec, store: usize) -> Range<u64> {
        let from = self.scenario.faults_end + self.scenario.recovery;
        let to = from + self.scenario.measured;
        if self.scenario.regions.is_none() || rule.algorithm != Algorithm::FixedWindow {
            return from..to;
        }
        let window = 1_000 * rule.window_ms;
        let elapsed = |at| self.servers[store].clock.at(at).0.as_micros() % window;
        from + window - elapsed(from)..to - elapsed(to)
    }

    /// What the nodes of one store use.
    fn expected_use(&self, rule: &RuleSpec) -> ExpectedUse {
        let measured = self.scenario.measured;
        let allowed = match rule.algorithm {
            algorithm if rule.is_async() && algorithm.is_bucket() => {
                let fills_in = rule.burst * rule.window_ms * 1_000 / rule.requests;
                let round_trip = 3 * self.scenario.timing.usual_delay;
                allowed(rule, measured, 0) * fills_in / (fills_in + round_trip)
            }
            _ => allowed(rule, measured, rule.lag()),
        };
        let percent = if rule.is_async() && !rule.algorithm.is_bucket() { 90 } else { 98 };
        ExpectedUse { allowed, percent }
    }

    /// What the nodes of a region use with demand for the limit of all regions: their share, and of
    /// each other one all that drains from a bucket, or what the region does not keep of a window.
    fn expected_in_region(&self, rule: &RuleSpec, region: usize) -> ExpectedUse {
        let measured = |store| {
            let Range { start, end } = self.measured_at(rule, store);
            end - start
        };
        let allowed_here =
            allowed(&rule.in_region(region), measured(region), rule.ttl_micros() / 2);
        let (Some(borrow), Some(plan)) = (rule.borrow(), &self.scenario.regions) else {
            return ExpectedUse { allowed: allowed_here, percent: 93 };
        };
        let lent = |lender: usize| {
            let lag = 1_000 * borrow.every_ms + plan.network.longest_round_trip();
            let all = allowed(&rule.in_region(lender), measured(lender), lag);
            if rule.algorithm.is_bucket() { all } else { all * (100 - borrow.keep) / 100 }
        };
        let lenders = (0..plan.network.regions).filter(|lender| *lender != region);
        ExpectedUse { allowed: allowed_here + lenders.map(lent).sum::<u64>(), percent: 95 }
    }
}

/// What a store allows in a time, if nodes learn this late that a window has room.
fn allowed(rule: &RuleSpec, measured: u64, lag: u64) -> u64 {
    let (requests, window, ttl) = (rule.requests, rule.window_ms * 1_000, rule.window_extension());
    match rule.algorithm {
        Algorithm::FixedWindow if rule.is_async() => requests * measured / (window + lag),
        Algorithm::SlidingWindowLog => requests * (measured / (window + ttl + lag)),
        // The weighted count of the previous window is rounded up: one request a window.
        Algorithm::SlidingWindowCounter => {
            (requests * window / (window + ttl)).saturating_sub(1) * (measured / window) * window
                / (window + lag)
        }
        _ => requests * measured / window,
    }
}
