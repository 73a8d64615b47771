//! What a node has borrowed from other regions, for those who observe it.

use std::collections::BTreeMap;

use tidegate_core::time::Micros;

/// What this node borrows. Units are counted from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BorrowStats {
    /// The regions that it can borrow from, in the order of
    /// [`Limiter::with_lenders`](crate::Limiter::with_lenders).
    pub lenders: Vec<LenderStats>,
    /// By rule ID. A rule of which the node never borrowed is missing.
    pub rules: BTreeMap<String, RuleBorrowing>,
}

/// A region that a node can borrow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenderStats {
    /// The region.
    pub region: Box<str>,
    /// Whether the node borrows from it. See
    /// [`Limiter::set_lender_usable`](crate::Limiter::set_lender_usable).
    pub is_usable: bool,
    /// How long ago its store last answered a question; `None` if it never did.
    pub since_answer: Option<Micros>,
    /// Questions to its store, each for units of one counter.
    pub questions: u64,
    /// Questions that its store did not answer.
    pub unanswered: u64,
}

/// What a node borrowed of one rule's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleBorrowing {
    /// Requests that were refused although the last answer of some region showed room beyond what
    /// it keeps.
    pub refused_with_room: u64,
    /// By region.
    pub lenders: BTreeMap<String, BorrowedUnits>,
}

/// Units that one region lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowedUnits {
    /// Units that the node holds now.
    pub held: u64,
    /// Units that the region's store granted.
    pub granted: u64,
    /// Units returned to it. It gives back those that have not drained since the grant.
    pub returned: u64,
    /// Units that were neither spent nor returned when their lease ended.
    pub expired: u64,
}

impl RuleBorrowing {
    /// Units of all regions together.
    #[must_use]
    pub fn total(&self) -> BorrowedUnits {
        let mut total = BorrowedUnits::default();
        self.lenders.values().for_each(|units| total.add(units));
        total
    }
}

impl BorrowedUnits {
    /// Units spent on requests.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.granted.saturating_sub(self.held + self.returned + self.expired)
    }

    pub(super) const fn add(&mut self, other: &Self) {
        self.held = self.held.saturating_add(other.held);
        self.granted = self.granted.saturating_add(other.granted);
        self.returned = self.returned.saturating_add(other.returned);
        self.expired = self.expired.saturating_add(other.expired);
    }
}
