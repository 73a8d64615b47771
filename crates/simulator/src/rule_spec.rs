//! The rules of a simulation, as documents and as the bounds that follow from them.

use std::fmt::Write as _;

use tidegate_core::key::Secret;
use tidegate_core::policy::Algorithm;
use tidegate_rules::{Document, RuleSet};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleSpec {
    pub(crate) id: &'static str,
    pub(crate) algorithm: Algorithm,
    pub(crate) requests: u64,
    pub(crate) window_ms: u64,
    /// Of a bucket.
    pub(crate) burst: u64,
    pub(crate) is_global: bool,
    pub(crate) is_shadow: bool,
    pub(crate) is_local: bool,
    /// The terms of its leases, if it is leased.
    pub(crate) lease: Option<LeaseSpec>,
    /// The time between two flushes, if it is asynchronous. A rule with neither is exact.
    pub(crate) flush_ms: Option<u64>,
}

/// The terms of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSpec {
    pub(crate) ttl_ms: u64,
    pub(crate) is_plus_ttl: bool,
}

impl RuleSpec {
    /// The most that can pass at one instant.
    pub(crate) const fn limit(&self) -> u64 {
        if self.algorithm.is_bucket() { self.burst } else { self.requests }
    }

    /// Requests a second.
    pub(crate) const fn rate(&self) -> u64 {
        self.requests * 1_000 / self.window_ms
    }

    /// The burst that a bucket lends from.
    pub(crate) fn lent_burst(&self) -> u64 {
        match self.lease {
            Some(lease) if !lease.is_plus_ttl => {
                self.burst.saturating_sub((self.requests * lease.ttl_ms).div_ceil(self.window_ms))
            }
            _ => self.burst,
        }
    }

    pub(crate) const fn ttl_micros(&self) -> u64 {
        match self.lease {
            Some(lease) => lease.ttl_ms * 1_000,
            None => 0,
        }
    }

    pub(crate) const fn is_async(&self) -> bool {
        self.flush_ms.is_some()
    }

    /// The most that the store counts at one instant: asynchronous nodes charge by force, which
    /// goes into debt.
    pub(crate) const fn most_at_store(&self) -> u64 {
        if self.is_async() { 2 * self.limit() } else { self.limit() }
    }

    /// What a node of this many may have admitted and not reported.
    pub(crate) fn part(&self, nodes: u32) -> u64 {
        if self.is_async() { self.limit() / u64::from(nodes.max(1)) } else { 0 }
    }

    /// Whether nodes decide both rules in the same way.
    pub(crate) const fn is_decided_like(&self, other: &Self) -> bool {
        self.lease.is_some() == other.lease.is_some() && self.is_async() == other.is_async()
    }

    /// How long a node goes on without an answer: a lease, or two intervals between flushes.
    pub(crate) fn node_span(&self) -> u64 {
        self.ttl_micros().max(self.flush_ms.unwrap_or(0) * 2_000)
    }

    fn yaml(&self) -> String {
        let Self { id, requests, window_ms, algorithm, .. } = self;
        let key = if self.is_global { "global" } else { "user_id" };
        let burst = match self.algorithm.is_bucket() {
            true => format!(", burst: {}", self.burst),
            false => String::new(),
        };
        let mut rule = format!(
            "- id: {id}\n  key_by: {key}\n  limit: {{ requests: {requests}, window: {window_ms}ms, \
             algorithm: {algorithm}{burst} }}\n  on_fail: {}\n",
            if self.is_local { "local" } else { "deny" }
        );
        if self.id != "main" {
            rule.push_str("  match: { tier: all }\n");
        }
        if self.is_shadow {
            rule.push_str("  mode: shadow\n");
        }
        if let Some(LeaseSpec { ttl_ms, is_plus_ttl }) = self.lease {
            let bound = if is_plus_ttl { "plus_ttl" } else { "exact" };
            // Writing to a string cannot fail.
            _ = writeln!(
                rule,
                "  consistency: leased\n  lease: {{ ttl: {ttl_ms}ms, bound: {bound} }}"
            );
        }
        if let Some(flush_ms) = self.flush_ms {
            _ = writeln!(rule, "  consistency: async\n  flush: {flush_ms}ms");
        }
        rule
    }
}

/// Compiles the rules for a shared store.
///
/// # Errors
/// If the document is invalid.
pub(crate) fn compile_rules(specs: &[RuleSpec]) -> Result<RuleSet, String> {
    let source = specs.iter().fold("rules:\n".to_owned(), |text, spec| text + &spec.yaml());
    let document = Document::parse("rules.yaml", &source).map_err(|error| error.to_string())?;
    let set = RuleSet::compile(&document, Secret::UNSET).map_err(|error| error.to_string())?;
    Ok(set.for_shared_store())
}

/// Makes the terms of a lease fit: a shorter lease, or else the wider bound.
pub(crate) fn with_room(mut spec: RuleSpec) -> RuleSpec {
    while let Some(lease) = spec.lease
        && compile_rules(&[spec]).is_err()
    {
        spec.lease = match lease.ttl_ms {
            0..=2 if lease.is_plus_ttl => None,
            0..=2 => Some(LeaseSpec { is_plus_ttl: true, ..lease }),
            ttl => Some(LeaseSpec { ttl_ms: ttl / 2, ..lease }),
        };
    }
    spec
}
