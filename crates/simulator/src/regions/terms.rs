//! How a rule of a simulation is divided among regions, and the rule of each region.

use std::fmt::Write as _;

use crate::rule_spec::{LeaseSpec, RuleSpec};

/// The most regions of a run.
pub(crate) const MAX_REGIONS: usize = 5;

/// How a rule is divided among regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionTerms {
    /// Percent of the limit; 0 for regions that do not exist.
    pub(crate) shares: [u64; MAX_REGIONS],
    /// By how many percent the shares may exceed the limit.
    pub(crate) tolerance: u64,
    /// How nodes borrow from other regions, if they do.
    pub(crate) borrow: Option<BorrowTerms>,
}

/// How nodes borrow from other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BorrowTerms {
    /// How long a borrowed unit may be spent.
    pub(crate) ttl_ms: u64,
    /// The time between two batches.
    pub(crate) every_ms: u64,
    /// Percent of its share that a lender keeps.
    pub(crate) keep: u64,
}

/// The name of a region.
pub(crate) fn region_name(region: usize) -> &'static str {
    ["r0", "r1", "r2", "r3", "r4"][region]
}

impl RegionTerms {
    /// As a field of a rule.
    pub(crate) fn yaml(&self) -> String {
        let shares = self.shares.iter().enumerate().filter(|(_, share)| **share > 0);
        let shares: Vec<String> =
            shares.map(|(region, share)| format!("{}: {share}%", region_name(region))).collect();
        let mut text = format!(
            "  regions:\n    shares: {{ {} }}\n    tolerance: {}%\n",
            shares.join(", "),
            self.tolerance
        );
        if let Some(BorrowTerms { ttl_ms, every_ms, keep }) = self.borrow {
            // Writing to a string cannot fail.
            _ = writeln!(
                text,
                "    borrow: {{ ttl: {ttl_ms}ms, every: {every_ms}ms, keep: {keep}% }}"
            );
        }
        text
    }
}

impl RuleSpec {
    /// The rule that the store of a region enforces: the region's share of the limit. It lends for
    /// as long as its own nodes or those of other regions may hold a unit.
    pub(crate) fn in_region(&self, region: usize) -> Self {
        let Some(terms) = self.regions else { return *self };
        let share = |whole: u64| whole * terms.shares[region] / 100;
        let reserved = |lease: LeaseSpec| LeaseSpec {
            ttl_ms: lease.ttl_ms.max(self.borrow().map_or(0, |borrow| borrow.ttl_ms)),
            ..lease
        };
        let lease = self.lease.map(reserved);
        let (requests, burst) = (share(self.requests), share(self.burst));
        Self { requests, burst, lease, regions: None, ..*self }
    }

    /// How nodes borrow units of this rule.
    pub(crate) fn borrow(&self) -> Option<BorrowTerms> {
        self.regions.and_then(|terms| terms.borrow)
    }

    /// How long a borrowed unit may be spent, in microseconds; 0 if none is borrowed.
    pub(crate) fn borrow_micros(&self) -> u64 {
        self.borrow().map_or(0, |borrow| borrow.ttl_ms * 1_000)
    }
}

/// The rules with the share of a region as their whole limit, of which each region then takes its
/// share. No correct program does that.
pub(crate) fn share_again(rules: Vec<RuleSpec>, region: usize) -> Vec<RuleSpec> {
    let share = |rule: RuleSpec| {
        let RuleSpec { requests, burst, .. } = rule.in_region(region);
        RuleSpec { requests, burst, ..rule }
    };
    rules.into_iter().map(share).collect()
}
