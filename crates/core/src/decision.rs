//! The result of a decision: a verdict for each rule, and the numbers that go with it.

use crate::algorithm::Gauge;
use crate::time::{Micros, Timestamp};

/// A rule's verdict on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The request is within the limit.
    #[default]
    Allow,
    /// The request is over the limit and is refused.
    Deny,
    /// The request would be refused, but the rule is in shadow mode.
    ShadowDeny,
    /// The request is over the limit but passes with a warning.
    Warn,
    /// The request is refused because the key is banned for repeated refusals.
    Ban,
}

impl Verdict {
    /// Whether this verdict refuses the request.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Deny | Self::Ban)
    }

    /// Whether this verdict is recorded as a violation: the request is refused, or a rule in shadow
    /// mode would have refused it.
    #[must_use]
    pub const fn is_violation(self) -> bool {
        self.refuses() || matches!(self, Self::ShadowDeny)
    }

    /// The name used in APIs, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::ShadowDeny => "shadow_deny",
            Self::Warn => "warn",
            Self::Ban => "ban",
        }
    }
}

/// When to retry a refused request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// The request was admitted; there is nothing to retry.
    #[default]
    Now,
    /// The request passes after this long and not a microsecond earlier, provided that no other
    /// request is charged first. For a concurrency limit this is only a hint, because it is not
    /// known when a slot will be released.
    After(Micros),
    /// The cost exceeds the whole limit, so the request can never pass.
    Never,
}

/// One rule's outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The rule's verdict.
    pub verdict: Verdict,
    /// Warnings that still count against the key. Filled in by [`Op::Peek`] only.
    ///
    /// [`Op::Peek`]: crate::store::Op::Peek
    pub warnings: u16,
    /// Units charged for the node to spend locally. Filled in by [`Op::Grant`] only.
    ///
    /// [`Op::Grant`]: crate::store::Op::Grant
    pub granted: u32,
    /// The largest cost that can pass at one instant.
    pub limit: u64,
    /// Number of requests of cost 1 that would pass now.
    pub remaining: u64,
    /// Time until the counter is back to its full limit.
    pub reset_after: Micros,
    /// Within this span no more than `remaining` can pass. Zero if the span is not known.
    pub next_after: Micros,
    /// When to retry, if the request is over the limit.
    pub retry: Retry,
    /// How long a queueing rule delays the request.
    pub delay: Micros,
    /// The store's clock at the decision.
    pub now: Timestamp,
}

impl Reading {
    /// Whether the request passes this rule.
    #[inline]
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.verdict.refuses()
    }

    /// The part of the reading that describes the remaining quota.
    #[inline]
    #[must_use]
    pub const fn gauge(&self) -> Gauge {
        let Self { remaining, reset_after, next_after, .. } = *self;
        Gauge { remaining, reset_after, next_after }
    }

    /// Replaces the part of the reading that describes the remaining quota.
    #[inline]
    pub const fn set_gauge(&mut self, gauge: Gauge) {
        Gauge {
            remaining: self.remaining,
            reset_after: self.reset_after,
            next_after: self.next_after,
        } = gauge;
    }
}

/// The component that made the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The store, by applying the charges to its counters.
    #[default]
    Store,
    /// The deny cache: the store refused this key recently, and the key cannot pass yet.
    DenyCache,
    /// The rules' `on_fail` setting, because the store did not answer.
    Fallback,
    /// The node, with units that it has leased from the store. Also if other rules were decided
    /// like [`Async`](Self::Async).
    Lease,
    /// The node, by its last view of the counters. It reports to the store what it admitted.
    Async,
    /// The node, with units that it has leased from the store of another region. Also if other
    /// rules were decided differently.
    Borrowed,
}

impl AnsweredBy {
    /// The name used in APIs, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Fallback => "fallback",
            Self::Lease => "lease",
            Self::Async => "async",
            Self::Borrowed => "borrowed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_refuses_and_violates_as_named() {
        for (verdict, name, refuses, is_violation) in [
            (Verdict::Allow, "allow", false, false),
            (Verdict::Deny, "deny", true, true),
            (Verdict::ShadowDeny, "shadow_deny", false, true),
            (Verdict::Warn, "warn", false, false),
            (Verdict::Ban, "ban", true, true),
        ] {
            assert_eq!(verdict.name(), name);
            assert_eq!((verdict.refuses(), verdict.is_violation()), (refuses, is_violation));
        }
    }

    #[test]
    fn answering_components_have_stable_names() {
        use AnsweredBy::{Async, Borrowed, DenyCache, Fallback, Lease, Store};
        let names = [Store, DenyCache, Fallback, Lease, Async, Borrowed].map(AnsweredBy::name);
        assert_eq!(names, ["store", "deny_cache", "fallback", "lease", "async", "borrowed"]);
    }
}
