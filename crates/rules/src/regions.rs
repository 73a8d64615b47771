//! Regions: the share of a rule's limit that each region enforces on its own store.
//!
//! Each region has its own store, and no request waits for another region. The shares add up to at
//! most 100 % plus a tolerance, so all regions together stay within the limit plus the tolerance,
//! whatever happens between them.
//!
//! With `borrow`, the nodes of a region also lease units from the shares of other regions. This
//! module has the terms and the policies by which the stores of those regions count.

mod lending_shortage;

use std::fmt;

use tidegate_core::policy::{Policy, PolicyError};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

use crate::consistency::Consistency;
use crate::diagnostic::FieldError;
use crate::rule::{RuleLimit, effective_since};
use crate::value_syntax::percentage::Percentage;
pub use lending_shortage::LendingShortage;

/// The shares of a rule's limit, by region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionShares {
    shares: Vec<(String, Percentage)>,
    tolerance: Percentage,
    borrow: Option<BorrowTerms>,
}

/// How the regions of a rule use what others leave unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowTerms {
    /// A node spends no borrowed unit later than this after it asked for it.
    pub ttl: Micros,
    /// The time between two requests of a node to a region.
    pub every: Micros,
    /// The part of its share that a region does not lend.
    pub keep: Percentage,
}

/// A region from whose share this region borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLender {
    region: String,
    policy: Policy,
    kept: u64,
}

/// The limit of a rule that one region enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionalLimit {
    shares: RegionShares,
    /// The region of this node.
    region: String,
    /// The limit of all regions together.
    whole: Policy,
    /// The other regions, if this one borrows from them.
    lenders: Vec<RegionLender>,
}

/// Why a limit cannot be divided among the regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareError {
    /// A share has no request, or no burst.
    RoundsToNothing,
    /// The limit of a share is invalid.
    Policy(PolicyError),
}

impl RegionShares {
    pub(crate) const fn new(
        shares: Vec<(String, Percentage)>,
        tolerance: Percentage,
        borrow: Option<BorrowTerms>,
    ) -> Self {
        Self { shares, tolerance, borrow }
    }

    /// All shares together.
    pub(crate) fn sum(&self) -> Percentage {
        self.iter().fold(Percentage::ZERO, |sum, (_, share)| sum.plus(share))
    }

    /// The share of a region.
    #[must_use]
    pub fn share(&self, region: &str) -> Option<Percentage> {
        self.iter().find(|(name, _)| *name == region).map(|(_, share)| share)
    }

    /// All regions with their shares, in document order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Percentage)> {
        self.shares.iter().map(|(name, share)| (name.as_str(), *share))
    }

    /// By how much the shares may exceed 100 % in total.
    #[must_use]
    pub const fn tolerance(&self) -> Percentage {
        self.tolerance
    }

    /// How the regions use what others leave unused, if they do.
    #[must_use]
    pub const fn borrow_terms(&self) -> Option<&BorrowTerms> {
        self.borrow.as_ref()
    }
}

impl RegionLender {
    /// The region.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The policy by which the region's store counts, for its own nodes and for those that borrow.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The units of each counter that the region does not lend.
    #[must_use]
    pub const fn kept_units(&self) -> u64 {
        self.kept
    }

    /// Whether the other lends the same units.
    #[must_use]
    pub fn lends_like(&self, other: &Self) -> bool {
        let since = other.policy.effective_since();
        *other == Self { policy: self.policy.with_effective_since(since), ..self.clone() }
    }
}

impl RegionalLimit {
    pub(crate) const fn new(shares: RegionShares, region: String, whole: Policy) -> Self {
        Self { shares, region, whole, lenders: Vec::new() }
    }

    /// The same division of another limit.
    pub(crate) fn for_policy(&self, whole: Policy) -> Self {
        Self::new(self.shares.clone(), self.region.clone(), whole)
    }

    /// The same division, with the other regions as lenders if the rule borrows.
    pub(crate) fn with_lenders(self, consistency: &Consistency) -> Self {
        let Some(terms) = self.shares.borrow else { return self };
        let others = self.shares.iter().filter(|(region, _)| *region != self.region);
        let lender = |(region, share): (&str, Percentage)| {
            let policy = share_of(&self.whole, share).ok()?;
            let consistency = consistency.for_limit(&RuleLimit::Policy(policy)).ok()?;
            let Consistency::Leased(leased) = consistency else { return None };
            let policy = *leased.lending_policy();
            let kept = terms.keep.of(policy.limit());
            Some(RegionLender { region: region.to_owned(), policy, kept })
        };
        Self { lenders: others.filter_map(lender).collect(), ..self }
    }

    /// The other regions, if this one borrows from them.
    #[must_use]
    pub fn lenders(&self) -> &[RegionLender] {
        &self.lenders
    }

    /// Sets the effective time of the lenders' policies: that of the previous version if unchanged,
    /// otherwise `now`.
    pub(crate) fn set_lenders_effective_time(&mut self, previous: Option<&Self>, now: Timestamp) {
        let before = |region: &str| {
            let known = previous?.lenders.iter().find(|known| known.region == region)?;
            Some(&known.policy)
        };
        for lender in &mut self.lenders {
            let since = effective_since(&lender.policy, before(&lender.region), now);
            lender.policy = lender.policy.with_effective_since(since);
        }
    }

    /// The shares of all regions.
    #[must_use]
    pub const fn shares(&self) -> &RegionShares {
        &self.shares
    }

    /// The region of this node.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The share of this node's region.
    #[must_use]
    pub fn own_share(&self) -> Percentage {
        self.shares.share(&self.region).unwrap_or(Percentage::ZERO)
    }

    /// The limit of all regions together.
    #[must_use]
    pub const fn whole(&self) -> &Policy {
        &self.whole
    }

    /// The part of the limit that this node's region enforces.
    pub(crate) fn own_policy(&self) -> Result<Policy, ShareError> {
        share_of(&self.whole, self.own_share())
    }

    /// The most that all regions together admit in any interval as long as the window, if the rule
    /// has the same version in all of them.
    pub(crate) fn max_in_window(&self, consistency: &Consistency) -> u64 {
        let max_in_region = |share| {
            let policy = share_of(&self.whole, share).ok()?;
            let consistency = consistency.for_limit(&RuleLimit::Policy(policy)).ok()?;
            Some(consistency.max_in_window(&policy))
        };
        let regions = self.shares.iter().filter_map(|(_, share)| max_in_region(share));
        regions.fold(0, u64::saturating_add)
    }
}

/// Whether a text can name a region: up to 64 letters, digits, dashes and underscores.
#[must_use]
pub fn is_region_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&text.len()) && text.bytes().all(may_be)
}

/// The limit of one region: its share of the requests and of the burst, both rounded down.
pub(crate) fn share_of(whole: &Policy, share: Percentage) -> Result<Policy, ShareError> {
    let quota = *whole.quota();
    let (requests, burst) = (share.of(quota.requests), quota.burst.map(|burst| share.of(burst)));
    if requests == 0 || burst == Some(0) {
        return Err(ShareError::RoundsToNothing);
    }
    Policy::new(whole.algorithm(), Quota { requests, burst, ..quota })
        .map(|policy| policy.with_effective_since(whole.effective_since()))
        .map_err(ShareError::Policy)
}

impl ShareError {
    /// What is wrong with the limit, and what to write instead.
    pub(crate) fn describe(self) -> FieldError {
        match self {
            Self::RoundsToNothing => FieldError::new("this share of the limit rounds to nothing")
                .with_hint("a larger limit, a larger share, or leave `regions` out"),
            Self::Policy(error) => FieldError::new(format!("this share of the limit: {error}")),
        }
    }
}

impl fmt::Display for RegionShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, share)) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {share}")?;
        }
        Ok(())
    }
}
