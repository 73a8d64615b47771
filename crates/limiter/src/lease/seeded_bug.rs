//! Bugs that a test can switch on, to prove that the simulator finds them. Only the feature
//! `seeded-bugs` compiles them in.

/// A bug that peers of this program have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "seeded-bugs"),
    expect(dead_code, unreachable_pub, reason = "only the feature uses and exports it")
)]
pub enum SeededBug {
    /// Units whose lease ended while the request waited for the store are spent.
    StaleVerdict,
    /// A flush that may have run is sent again.
    FlushRepeated,
    /// A rule edit resets what was used.
    EditResetsUsage,
    /// A unit of another region is spent after its lease has ended.
    ExpiredBorrowSpent,
    /// A refund of units of another region goes to the store of this one.
    BorrowRefundedAtHome,
    /// The store of a region lends units to others without charging them. The store has this bug.
    LoanNotCharged,
    /// After an edit, a region takes its share of what is already its share. The server that
    /// compiles the rules has this bug.
    ShareAppliedTwice,
    /// A node borrows from a region that hashes keys with another secret. The server that should
    /// check the markers of stores has this bug.
    MarkerNotChecked,
    /// A lease that has ended is spent once more.
    ExpiredLeaseSpent,
    /// While the store is down, every node uses the whole limit.
    WholeLimitInFallback,
    /// A lease ends its time after the answer, not after the question.
    ExpiryFromAnswer,
    /// A refund is dated by the decision, not by the grant.
    RefundDatedByDecision,
}

/// The bug that is switched on, if any. Without the feature it has no size and is always off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BugSwitch {
    #[cfg(feature = "seeded-bugs")]
    active: Option<SeededBug>,
}

impl BugSwitch {
    #[cfg(feature = "seeded-bugs")]
    pub(crate) const fn new(bug: SeededBug) -> Self {
        Self { active: Some(bug) }
    }

    /// Whether this bug is switched on.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn has(self, bug: SeededBug) -> bool {
        self.active == Some(bug)
    }

    /// Whether this bug is switched on.
    #[cfg(not(feature = "seeded-bugs"))]
    pub(crate) const fn has(self, _: SeededBug) -> bool {
        false
    }
}
