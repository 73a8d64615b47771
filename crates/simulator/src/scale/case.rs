//! The fleet, its keys and its rule.

use std::fmt;

use tidegate_core::policy::Policy;
use tidegate_core::time::Micros;

use super::rule_text::policy_of_limit;
use super::store_cost::StoreCost;

/// Who decides a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The store.
    Exact,
    /// The node, with units that it leased.
    Leased,
    /// The node, on its own view of the counter.
    Async,
}

/// A fleet that decides requests by one rule.
#[derive(Clone, Debug)]
pub struct ScaleCase {
    /// Nodes that share the stores.
    pub nodes: u32,
    /// The nodes that requests of one key reach.
    pub nodes_per_key: u32,
    /// Keys, each with its own counter.
    pub keys: u64,
    /// Requests a second offered to all nodes.
    pub rate: f64,
    /// The k-th busiest key gets requests in proportion to 1/k to the power of this.
    pub exponent: f64,
    /// The limit of each key.
    pub limit: LimitQuota,
    /// For how long units are leased.
    pub ttl: Micros,
    /// The time between two flushes of an asynchronous counter.
    pub flush: Micros,
    /// What a call costs a store.
    pub store: StoreCost,
    /// Requests to a node in all samples of a mode, roughly. More make the estimate more precise.
    pub sampled_requests: f64,
}

/// The limit of a key, as the rules document has it.
#[derive(Clone, Debug)]
pub struct LimitQuota {
    text: String,
    policy: Policy,
}

impl Mode {
    /// All modes, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Leased, Self::Async];

    /// The name in rules documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
            Self::Async => "async",
        }
    }
}

impl LimitQuota {
    /// Parses a limit such as `1000/s burst 2000`.
    ///
    /// # Errors
    /// Why the limit is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), policy: policy_of_limit(text)? })
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Requests a second that the limit admits in the long run.
    pub(super) fn rate(&self) -> f64 {
        let quota = self.policy.quota();
        quota.requests as f64 / seconds(quota.window)
    }
}

impl fmt::Display for LimitQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ScaleCase {
    /// The case of the issue: 1 000 nodes, 10 million keys, 50 million requests a second.
    ///
    /// # Errors
    /// Never: the default limit is valid.
    pub fn internet() -> Result<Self, String> {
        Ok(Self {
            nodes: 1_000,
            nodes_per_key: 1_000,
            keys: 10_000_000,
            rate: 50_000_000.0,
            exponent: 1.0,
            limit: LimitQuota::parse("1000/s burst 2000")?,
            ttl: Micros::from_millis(100),
            flush: Micros::from_millis(100),
            store: StoreCost::default(),
            sampled_requests: 200_000.0,
        })
    }
}

/// A span in seconds.
pub(super) fn seconds(span: Micros) -> f64 {
    span.get() as f64 / 1e6
}
