//! Bugs that a test can switch on, to prove that the simulator finds them. Without the feature
//! `seeded-bugs` they cannot be switched on.

/// A bug that peers of this program have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Units whose lease ended while the request waited for the store are spent.
    StaleVerdict,
    /// A flush that may have run is sent again.
    FlushRepeated,
    /// A rule edit resets what was used.
    EditResetsUsage,
    /// A lease that has ended is spent once more.
    ExpiredLeaseSpent,
    /// While the store is down, every node uses the whole limit.
    WholeLimitInFallback,
    /// A lease ends its time after the answer, not after the question.
    ExpiryFromAnswer,
    /// A refund is dated by the decision, not by the grant.
    RefundDatedByDecision,
}
