//! A limit that a request brings itself (an override in a descriptor of Envoy): a rule set of one rule, made
//! for that request. No document knows it, and it governs nobody else.

use std::sync::Arc;

use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::RuleSet;
use super::extensions::RuleSetExtensions;
use super::overrides::OverrideTable;
use super::subjects::SubjectTable;
use crate::condition::Condition;
use crate::cost::CostSource;
use crate::facts::Facts;
use crate::identity::IdentityConfig;
use crate::index::descriptors::DescriptorIndex;
use crate::index::{IndexEntry, RuleIndex};
use crate::key::{KeyDerivation, KeyPart};
use crate::path_normalization::PathNormalization;
use crate::rule::{ChargeWhen, FIRST_GENERATION, OnChange, OnFail, Rule, RuleLimit, RuleMode};

/// The id of every such rule. Its keys are told apart by what they are made of.
const INLINE_RULE_ID: &str = "override";

/// So many requests in each window, aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineLimit {
    /// How many; none are admitted if it is 0.
    pub requests: u32,
    /// In how long.
    pub window: Micros,
}

/// Whether a rule counts all values of a descriptor in windows of this length.
fn shares_window_counter(rule: &Rule, window: Micros) -> bool {
    let whole = matches!(&*rule.parts, [KeyPart::Descriptor { shared: 0 }]);
    let fixed = |policy: &Policy| {
        policy.algorithm() == Algorithm::FixedWindow && policy.quota().window == window
    };
    whole && rule.limit.policy().is_some_and(fixed)
}

impl RuleSet {
    /// The rules for a request that brings its own limit: its counter is named by all of its facts and the
    /// window, not by the number, so that another number goes on with the same counter.
    ///
    /// Windows are counted whole because a fixed window's scale is its length alone: scales are interned
    /// for ever, and whoever brings limits must not be able to fill them.
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
            // No requests or no window at all is what cannot be counted here.
            limit: Policy::new(Algorithm::FixedWindow, quota)
                .map_or(RuleLimit::Deny, RuleLimit::Policy),
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
            has_replacements: false,
            extensions: RuleSetExtensions::default(),
        }
    }

    /// The same as Envoy's reference server counts it: what is refused too, on the counter of the rule that has the
    /// same descriptor and window, if there is one. None in a domain that no rule names, where that server looks at
    /// no limit.
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

    /// Whether a rule asks for a domain by its name.
    fn names_domain(&self, domain: &str) -> bool {
        let asks = |rule: &Rule| {
            let mut domains = rule.conditions.iter().filter_map(Condition::single_domain);
            domains.any(|asked| asked == domain)
        };
        self.descriptors.has_domain(domain) || self.rules.iter().any(asks)
    }

    /// Whether it was made for one request that brought its own limit.
    #[must_use]
    pub const fn is_inline_limit(&self) -> bool {
        self.is_inline_limit
    }
}
