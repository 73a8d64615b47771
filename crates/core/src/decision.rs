//! What is answered: a verdict for each rule, and the numbers that go with it.

use crate::algorithm::Gauge;
use crate::time::{Micros, Timestamp};

/// What a rule says to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes.
    #[default]
    Allow,
    /// It is over the limit.
    Deny,
    /// It would be refused, but the rule is in shadow mode.
    ShadowDeny,
    /// It is over the limit and passes with a warning.
    Warn,
    /// The key is banned for repeated refusals.
    Ban,
}

impl Verdict {
    /// Whether the request is refused because of it.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Deny | Self::Ban)
    }

    /// Whether it goes on record: the request is refused, or would be if the rule did not only watch.
    #[must_use]
    pub const fn is_violation(self) -> bool {
        self.refuses() || matches!(self, Self::ShadowDeny)
    }

    /// The name on the wire.
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

/// When to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// There is nothing to wait for.
    #[default]
    Now,
    /// After this long the request passes, if nothing else comes; not a microsecond earlier. For a
    /// concurrency limit it is a hint: when a slot will be free is not known.
    After(Micros),
    /// The cost is more than the limit ever holds.
    Never,
}

/// One rule's outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What the rule says.
    pub verdict: Verdict,
    /// Warnings that still count against the key; only a peek looks at them.
    pub warnings: u16,
    /// The most that passes at once.
    pub limit: u64,
    /// Requests of cost 1 that would pass now.
    pub remaining: u64,
    /// How long until the counter is back to its full limit.
    pub reset_after: Micros,
    /// Within this span no more than `remaining` passes, whatever is asked; zero where it is not known.
    pub next_after: Micros,
    /// When to come back, if it is over the limit.
    pub retry: Retry,
    /// How long the request has to wait its turn.
    pub delay: Micros,
    /// The store's clock at the decision.
    pub now: Timestamp,
}

impl Reading {
    /// What is left, as answers show it.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> Gauge {
        let Self { remaining, reset_after, next_after, .. } = *self;
        Gauge { remaining, reset_after, next_after }
    }

    /// Works out again what is left.
    #[inline]
    pub const fn set_left(&mut self, left: Gauge) {
        Gauge {
            remaining: self.remaining,
            reset_after: self.reset_after,
            next_after: self.next_after,
        } = left;
    }
}

/// Who answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The store that counts.
    #[default]
    Store,
    /// What is remembered of a refusal by the store: the key cannot pass yet.
    DenyCache,
    /// The rules' `on_fail`, because the store could not.
    Fallback,
}

impl AnsweredBy {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Fallback => "fallback",
        }
    }
}
