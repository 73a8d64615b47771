//! Inline limits: a limit that a request carries itself, as in the override of an Envoy descriptor.
//! It becomes a rule set with a single rule, for this request only.

use std::sync::Arc;

use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::RuleSet;
use super::extensions::RuleSetExtensions;
use super::overrides::OverrideTable;
use super::subjects::SubjectTable;
use crate::condition::Condition;
use crate::consistency::Consistency;
use crate::cost::CostSource;
use crate::facts::Facts;
use crate::identity::IdentityConfig;
use crate::index::descriptors::DescriptorIndex;
use crate::index::{IndexEntry, RuleIndex};
use crate::key::{KeyDerivation, KeyPart};
use crate::path_normalization::PathNormalization;
use crate::rule::{ChargeWhen, FIRST_GENERATION, OnChange, OnFail, Rule, RuleLimit, RuleMode};

/// The id of every inline rule. Their keys differ by the facts and the window.
const INLINE_RULE_ID: &str = "override";

/// A number of requests in each window, aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineLimit {
    /// Requests per window; 0 admits none.
    pub requests: u32,
    /// The window.
    pub window: Micros,
}

/// Whether a rule counts whole descriptors, with all their values, in fixed windows of this length,
/// each in one counter.
fn shares_window_counter(rule: &Rule, window: Micros) -> bool {
    let whole = matches!(&*rule.parts, [KeyPart::Descriptor { shared: 0 }]);
    let fixed = |policy: &Policy| {
        policy.algorithm() == Algorithm::FixedWindow && policy.quota().window == window
    };
    let single = !matches!(rule.consistency, Consistency::Split(_));
    whole && single && rule.limit.policy().is_some_and(fixed)
}

impl RuleSet {
    /// The rule set for a request with an inline limit. The key of its counter consists of all
    /// facts and the window, but not the number of requests, so that a changed number keeps the
    /// same counter.
    ///
    /// The algorithm is a fixed window, because its scale depends only on the window length. Scales
    /// are interned forever, and callers that send limits must not be able to fill that table.
    #[must_use]
    pub fn with_inline_limit(&self, limit: InlineLimit, facts: &Facts<'_>) -> Self {
        let mut namespace = self.seed;
        namespace.write_part(INLINE_RULE_ID.as_bytes());
        namespace.write_part(&limit.window.get().to_le_bytes());
        for (name, value) in facts.iter() {
            namespace.write_part(name.as_bytes());
            namespace.write_part(value.as_bytes());
        }
        let quota = Quota::new(u64::from(limit.requests), limit.window);
        let rule = Rule {
            id: INLINE_RULE_ID.into(),
            description: None,
            active: true,
            // A limit without requests or without a window is not a valid policy.
            limit: Policy::new(Algorithm::FixedWindow, quota)
                .map_or(RuleLimit::Deny { window: Some(limit.window) }, RuleLimit::Policy),
            consistency: Consistency::Exact,
            regional: None,
            is_shared: self.is_shared,
            cost: CostSource::Fixed(1),
            mode: RuleMode::Enforce,
            on_fail: OnFail::Allow,
            charge: ChargeWhen::Admitted,
            ban: None,
            on_change: OnChange::Reset,
            generation: FIRST_GENERATION,
            predecessor: None,
            conditions: Arc::default(),
            parts: Arc::default(),
            replaces: Arc::default(),
            namespace: namespace.finish(),
            split_parts: 0..0,
            split_part: None,
        };
        let index = RuleIndex::build(vec![IndexEntry::new(0, &rule.conditions)]);
        Self {
            rules: vec![rule],
            document_rule_count: 1,
            overrides: OverrideTable::default(),
            has_predecessors: false,
            index,
            descriptors: DescriptorIndex::default(),
            key_derivation: KeyDerivation::new(128, std::iter::empty()),
            subjects: SubjectTable::empty(),
            paths: PathNormalization::default(),
            identity: IdentityConfig::default(),
            unsupplied: Vec::new(),
            suggested_identity: None,
            version: self.version,
            serial: self.serial,
            seed: self.seed,
            global_owner: self.global_owner,
            is_inline_limit: true,
            is_shared: self.is_shared,
            has_split_rules: false,
            has_replacements: false,
            extensions: RuleSetExtensions::default(),
        }
    }

    /// The same, but counted like Envoy's reference server: refused requests are charged too, on
    /// the counter of the rule with the same descriptor and window, if there is one. Returns `None`
    /// if no rule names the domain, because that server then ignores all limits.
    #[must_use]
    pub fn with_inline_limit_as_envoy(
        &self,
        limit: InlineLimit,
        facts: &Facts<'_>,
    ) -> Option<Self> {
        let domain = facts.get("domain").filter(|domain| self.names_domain(domain))?;
        let mut set = self.with_inline_limit(limit, facts);
        let rule = set.rules.first_mut()?;
        rule.charge = ChargeWhen::Always;
        let found = self.descriptors.find(Some(domain), facts.descriptor()).iter();
        let mut configured = found.filter_map(|at| self.get(*at));
        if let Some(same) = configured.find(|rule| shares_window_counter(rule, limit.window)) {
            (rule.parts, rule.namespace) = (Arc::clone(&same.parts), same.namespace);
        }
        Some(set)
    }

    /// Whether any rule matches this domain by name.
    fn names_domain(&self, domain: &str) -> bool {
        let names = |rule: &Rule| {
            let mut domains = rule.conditions.iter().filter_map(Condition::single_domain);
            domains.any(|name| name == domain)
        };
        self.descriptors.has_domain(domain) || self.rules.iter().any(names)
    }

    /// Whether it was built for an inline limit.
    #[must_use]
    pub const fn is_inline_limit(&self) -> bool {
        self.is_inline_limit
    }
}
