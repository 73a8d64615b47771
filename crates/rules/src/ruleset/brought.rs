//! A limit that a request brings itself (an override in a descriptor of Envoy): a rule set of one rule, made
//! for that request. No document knows it, and it governs nobody else.

use std::sync::Arc;

use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::Micros;

use super::RuleSet;
use super::beside::Beside;
use super::overrides::Overrides;
use super::subjects::Subjects;
use crate::condition::Condition;
use crate::cost::Cost;
use crate::facts::Facts;
use crate::identity::Identity;
use crate::index::descriptors::Descriptors;
use crate::index::{Filing, Index};
use crate::key::{KeyPart, Keying};
use crate::paths::Paths;
use crate::rule::{ChargeWhen, FIRST_GENERATION, Limit, Mode, OnChange, OnFail, Rule};

/// The id of every such rule. Its keys are told apart by what they are made of.
const ID: &str = "override";

/// So many requests in each window, aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroughtLimit {
    /// How many; none are admitted if it is 0.
    pub requests: u32,
    /// In how long.
    pub window: Micros,
}

/// Whether a rule counts all values of a descriptor in windows of this length.
fn counts_alike(rule: &Rule, window: Micros) -> bool {
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
    pub fn brought(&self, limit: BroughtLimit, facts: &Facts<'_>) -> Self {
        let mut namespace = self.seed;
        namespace.part(ID.as_bytes());
        namespace.part(&limit.window.get().to_le_bytes());
        for (name, value) in facts.iter() {
            namespace.part(name.as_bytes());
            namespace.part(value.as_bytes());
        }
        let quota = Quota::new(u64::from(limit.requests), limit.window);
        let rule = Rule {
            id: ID.into(),
            description: None,
            active: true,
            // No requests or no window at all is what cannot be counted here.
            limit: Policy::new(Algorithm::FixedWindow, quota).map_or(Limit::Deny, Limit::Policy),
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            on_fail: OnFail::Allow,
            charge: ChargeWhen::Admitted,
            ban: None,
            on_change: OnChange::Reset,
            generation: FIRST_GENERATION,
            before: None,
            conditions: Arc::default(),
            parts: Arc::default(),
            replaces: Arc::default(),
            namespace: namespace.finish(),
        };
        let index = Index::build(vec![Filing::new(0, &rule.conditions)]);
        Self {
            rules: vec![rule],
            listed: 1,
            overrides: Overrides::default(),
            carries: false,
            index,
            descriptors: Descriptors::default(),
            keying: Keying::new(128, std::iter::empty()),
            subjects: Subjects::none(),
            paths: Paths::default(),
            identity: Identity::default(),
            unsupplied: Vec::new(),
            identity_to_add: None,
            version: self.version,
            serial: self.serial,
            seed: self.seed,
            everyone: self.everyone,
            brought: true,
            replacing: false,
            beside: Beside::default(),
        }
    }

    /// The same as Envoy's reference server counts it: what is refused too, on the counter of the rule that has the
    /// same descriptor and window, if there is one. None in a domain that no rule names, where that server looks at
    /// no limit.
    #[must_use]
    pub fn brought_as_reference(&self, limit: BroughtLimit, facts: &Facts<'_>) -> Option<Self> {
        let domain = facts.get("domain").filter(|domain| self.names(domain))?;
        let mut set = self.brought(limit, facts);
        let rule = set.rules.first_mut()?;
        rule.charge = ChargeWhen::Always;
        let found = self.descriptors.find(Some(domain), facts.descriptor()).iter();
        let mut configured = found.filter_map(|at| self.get(*at));
        if let Some(same) = configured.find(|rule| counts_alike(rule, limit.window)) {
            (rule.parts, rule.namespace) = (Arc::clone(&same.parts), same.namespace);
        }
        Some(set)
    }

    /// Whether a rule asks for a domain by its name.
    fn names(&self, domain: &str) -> bool {
        let asks = |rule: &Rule| {
            let mut domains = rule.conditions.iter().filter_map(Condition::one_domain);
            domains.any(|asked| asked == domain)
        };
        self.descriptors.names(domain) || self.rules.iter().any(asks)
    }

    /// Whether it was made for one request that brought its own limit.
    #[must_use]
    pub const fn is_brought(&self) -> bool {
        self.brought
    }
}
