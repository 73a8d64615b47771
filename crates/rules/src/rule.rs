//! A compiled rule: whom it governs, whose counter it charges, and what it allows.

use std::sync::Arc;

use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;

use crate::condition::{Condition, DescriptorMatcher, MatchInput};
use crate::cost::CostSource;
use crate::facts::Facts;
use crate::key::KeyPart;
use crate::ruleset::{RulePredecessor, RuleSet};

/// The generation of a rule's counters where it does not say.
pub const FIRST_GENERATION: u32 = 1;

/// What a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// As much as the policy.
    Policy(Policy),
    /// Everything: this rule never refuses, other rules still may.
    Unlimited,
    /// Nothing: this rule always refuses.
    Deny,
}

/// What a refusal by a rule leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// The request is refused.
    Enforce,
    /// The request passes; the refusal is only counted and reported.
    Shadow,
    /// The request passes with a warning as long as this policy of warnings allows one, and is
    /// refused after that.
    Warn(Policy),
}

/// What a rule answers while the store is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFail {
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// A conservative local share decides.
    Local,
}

/// Which requests a rule charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeWhen {
    /// Those that are admitted; a refused request costs nobody anything.
    Admitted,
    /// All, also refused ones.
    Always,
}

/// What becomes of what was used when a rule's algorithm or window changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    /// It is forgotten: everybody starts anew.
    Reset,
    /// It stays used.
    Keep,
}

/// One rule of a [`RuleSet`].
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) id: Box<str>,
    pub(crate) description: Option<String>,
    pub(crate) active: bool,
    pub(crate) limit: RuleLimit,
    pub(crate) cost: CostSource,
    pub(crate) mode: RuleMode,
    pub(crate) on_fail: OnFail,
    pub(crate) charge: ChargeWhen,
    pub(crate) ban: Option<BanPolicy>,
    pub(crate) on_change: OnChange,
    pub(crate) generation: u32,
    /// What it was before its algorithm or window changed.
    pub(crate) predecessor: Option<Arc<RulePredecessor>>,
    pub(crate) conditions: Arc<[Condition]>,
    pub(crate) parts: Arc<[KeyPart]>,
    /// The rules that do not apply where this one does, as their places in the rule set.
    pub(crate) replaces: Arc<[u32]>,
    /// What all keys of the rule have in common.
    pub(crate) namespace: Fingerprint,
}

impl Rule {
    /// The rule's stable, unique name: printable ASCII, at most 128 characters.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What its author says of it.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether it governs anybody at present.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// What it allows.
    #[must_use]
    pub const fn limit(&self) -> &RuleLimit {
        &self.limit
    }

    /// What a request costs, or who tells.
    #[must_use]
    pub const fn cost(&self) -> &CostSource {
        &self.cost
    }

    /// What its refusals lead to.
    #[must_use]
    pub const fn mode(&self) -> &RuleMode {
        &self.mode
    }

    /// What it answers while the store is gone.
    #[must_use]
    pub const fn on_fail(&self) -> OnFail {
        self.on_fail
    }

    /// Which requests it charges.
    #[must_use]
    pub const fn charge(&self) -> ChargeWhen {
        self.charge
    }

    /// What becomes of what was used when its algorithm or window changes.
    #[must_use]
    pub const fn on_change(&self) -> OnChange {
        self.on_change
    }

    /// Which generation of its counters is in use: another number leaves all old ones behind.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// When it bans, if it does.
    #[must_use]
    pub const fn ban(&self) -> Option<&BanPolicy> {
        self.ban.as_ref()
    }

    /// The rules that do not apply where this one does, as their places in the rule set.
    #[must_use]
    pub fn replaces(&self) -> &[u32] {
        &self.replaces
    }

    /// The names of the facts that its keys are made of; none for one counter for all.
    pub fn key_by(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(KeyPart::name)
    }

    /// Its conditions in words, such as `tier=free`.
    pub fn conditions(&self) -> impl Iterator<Item = String> {
        self.conditions.iter().map(ToString::to_string)
    }

    /// The hash that names the counter which a request with these facts is charged to.
    #[must_use]
    pub fn fingerprint(&self, facts: &Facts<'_>, set: &RuleSet) -> Fingerprint {
        set.owner_fingerprint(&self.parts, facts) ^ self.namespace
    }

    /// The same hash, if it may be shown.
    #[must_use]
    pub fn public_fingerprint(&self, facts: &Facts<'_>, set: &RuleSet) -> Option<Fingerprint> {
        set.has_shareable_keys().then(|| self.fingerprint(facts, set))
    }

    /// The counter that a hash names.
    #[must_use]
    pub fn key(&self, fingerprint: Fingerprint) -> Key<'_> {
        counter_key(self, fingerprint, self.namespace)
    }

    /// The parts of that key in words, missing ones already replaced.
    #[must_use]
    pub fn key_parts(&self, facts: &Facts<'_>, set: &RuleSet) -> Vec<(String, String)> {
        self.parts.iter().map(|part| set.key_derivation().describe(part, facts)).collect()
    }

    /// The descriptor that it asks for.
    pub(crate) fn descriptor(&self) -> Option<&DescriptorMatcher> {
        self.conditions.iter().find_map(Condition::descriptor)
    }

    pub(crate) fn governs(&self, request: &MatchInput<'_, '_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(request))
    }

    /// The same rule after `previous`: a policy that did not change has been in force for as long
    /// as it was, another is in force from `now`.
    pub(crate) fn inherit_from(&mut self, previous: Option<&Self>, now: Timestamp) {
        self.limit =
            self.limit.with_effective_time(previous.and_then(|rule| rule.limit.policy()), now);
        self.remember_predecessor(previous, now);
        if let RuleMode::Warn(policy) = &mut self.mode {
            let before = previous.and_then(|rule| rule.mode.warning_policy());
            *policy = policy.with_effective_since(effective_since(policy, before, now));
        }
    }
}

impl RuleLimit {
    /// The policy, if there is one.
    #[must_use]
    pub const fn policy(&self) -> Option<&Policy> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Unlimited | Self::Deny => None,
        }
    }

    /// The most that it admits to one key in any interval as long as its window; none where it counts nothing.
    #[must_use]
    pub fn max_in_window(&self) -> Option<u64> {
        self.policy().map(Policy::max_in_window)
    }

    /// The same limit after a policy: one that did not change has been in force for as long as it was,
    /// another is in force from `now`.
    pub(crate) fn with_effective_time(self, before: Option<&Policy>, now: Timestamp) -> Self {
        match self {
            Self::Policy(policy) => {
                Self::Policy(policy.with_effective_since(effective_since(&policy, before, now)))
            }
            other => other,
        }
    }

    /// What tells counters of the same rule apart: algorithm and window. A changed number of
    /// requests goes on with the same counters.
    pub(crate) fn counter_identity(&self) -> (&'static str, u64) {
        match self {
            Self::Policy(policy) => (policy.algorithm().name(), policy.quota().window.get()),
            Self::Unlimited => ("unlimited", 0),
            Self::Deny => ("deny", 0),
        }
    }
}

impl RuleMode {
    /// The name that rules use.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Warn(_) => "warn",
        }
    }

    /// The policy of warnings, if there is one.
    #[must_use]
    pub const fn warning_policy(&self) -> Option<&Policy> {
        match self {
            Self::Warn(policy) => Some(policy),
            Self::Enforce | Self::Shadow => None,
        }
    }
}

/// What all keys of a rule have in common.
pub(crate) fn counter_namespace(
    secret: Secret,
    id: &str,
    limit: &RuleLimit,
    generation: u32,
) -> Fingerprint {
    let (algorithm, window) = limit.counter_identity();
    let (window, number) = (window.to_le_bytes(), generation.to_le_bytes());
    let parts = [id.as_bytes(), algorithm.as_bytes(), &window, &number];
    // The first is not named, so that rules without the field keep the counters they have.
    let named = if generation == FIRST_GENERATION { 3 } else { 4 };
    secret.namespace(&parts[..named])
}

/// A counter of a rule. One that counts everybody lies alone: what all counters for everybody are
/// in would be one place for all requests of a fleet.
pub(crate) fn counter_key(
    rule: &Rule,
    fingerprint: Fingerprint,
    namespace: Fingerprint,
) -> Key<'_> {
    if rule.parts.is_empty() {
        return Key::without_namespace(&rule.id, fingerprint);
    }
    Key { rule: &rule.id, fingerprint, namespace }
}

pub(crate) fn effective_since(
    policy: &Policy,
    before: Option<&Policy>,
    now: Timestamp,
) -> Timestamp {
    match before {
        Some(before) if policy.with_effective_since(before.effective_since()) == *before => {
            before.effective_since()
        }
        _ => now,
    }
}
