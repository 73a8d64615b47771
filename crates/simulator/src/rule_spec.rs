//! The rules of a simulation, as documents and as the bounds that follow from them.

use std::fmt::Write as _;

use tidegate_core::key::Secret;
use tidegate_core::policy::Algorithm;
use tidegate_rules::{Document, RuleSet};

use crate::node::SWEEP_EVERY;
use crate::regions::{BorrowTerms, RegionTerms, region_name};

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
    /// How it is divided among regions, if it is.
    pub(crate) regions: Option<RegionTerms>,
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

    /// How much later than the store has room a node may learn it. While the store is short, a
    /// leased node asks once in half a lease. An asynchronous node learns it with its next flush,
    /// and the store counts what it then admits as of the flush after that.
    pub(crate) fn lag(&self) -> u64 {
        match self.flush_ms {
            Some(flush_ms) => 2 * (1_000 * flush_ms + SWEEP_EVERY),
            None => self.ttl_micros() / 2,
        }
    }

    /// How much longer than its own the window of the store is.
    pub(crate) fn window_extension(&self) -> u64 {
        self.lease.filter(|lease| !lease.is_plus_ttl).map_or(0, |lease| lease.ttl_ms * 1_000)
    }

    /// Within this time a log admits its limit once, under sufficient demand: units used at once
    /// become available at once, and are found at most [`lag`](Self::lag) later.
    pub(crate) fn log_period(&self) -> u64 {
        1_000 * self.window_ms + self.window_extension() + self.lag()
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
        if let Some(regions) = self.regions {
            rule.push_str(&regions.yaml());
        }
        rule
    }
}

/// What rules are compiled for, in addition to a shared store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileTarget {
    /// The node's region, if there are regions.
    pub(crate) region: Option<usize>,
    /// With which keys are hashed.
    pub(crate) secret: Secret,
}

impl CompileTarget {
    /// A node in this region with the same key secret as most.
    pub(crate) const fn in_region(region: Option<usize>) -> Self {
        Self { region, secret: Secret::UNSET }
    }
}

/// Compiles the rules of a node.
///
/// # Errors
/// If the document is invalid.
pub(crate) fn compile_rules(specs: &[RuleSpec], target: CompileTarget) -> Result<RuleSet, String> {
    let source = specs.iter().fold("rules:\n".to_owned(), |text, spec| text + &spec.yaml());
    let mut document = Document::parse("rules.yaml", &source).map_err(|error| error.to_string())?;
    document.set_region(target.region.map(region_name));
    let set = RuleSet::compile(&document, target.secret).map_err(|error| error.to_string())?;
    Ok(set.for_shared_store())
}

/// Makes the terms of a lease fit: shorter loans or none, a shorter lease, or else the wider bound.
pub(crate) fn with_room(mut spec: RuleSpec) -> RuleSpec {
    let region = spec.regions.map(|_| 0);
    while let Some(lease) = spec.lease
        && compile_rules(&[spec], CompileTarget::in_region(region)).is_err()
    {
        if let Some(regions) = spec.regions.filter(|regions| regions.borrow.is_some()) {
            let halved = |it: BorrowTerms| BorrowTerms { ttl_ms: it.ttl_ms / 2, ..it };
            let borrow = regions.borrow.map(halved).filter(|it| it.ttl_ms >= SHORTEST_LOAN_MS);
            spec.regions = Some(RegionTerms { borrow, ..regions });
            continue;
        }
        spec.lease = match lease.ttl_ms {
            0..=2 if lease.is_plus_ttl => None,
            0..=2 => Some(LeaseSpec { is_plus_ttl: true, ..lease }),
            ttl => Some(LeaseSpec { ttl_ms: ttl / 2, ..lease }),
        };
    }
    spec
}

/// Shorter loans than this end before they arrive.
const SHORTEST_LOAN_MS: u64 = 50;
