//! A compiled rule: which requests it applies to, which counter it charges, and its limit.

use std::ops::Range;
use std::sync::Arc;

use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::Policy;
use tidegate_core::time::{Micros, Timestamp};

use crate::condition::{Condition, DescriptorMatcher, MatchInput};
use crate::consistency::{Consistency, ConsistencyError};
use crate::cost::CostSource;
use crate::diagnostic::FieldError;
use crate::facts::Facts;
use crate::key::KeyPart;
use crate::regions::{RegionLender, RegionShares, RegionalLimit, ShareError};
use crate::ruleset::{RulePredecessor, RuleSet};

/// The default generation of a rule's counters.
pub const FIRST_GENERATION: u32 = 1;

/// The limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// The limit of the policy.
    Policy(Policy),
    /// No limit: this rule never refuses a request, but other rules may.
    Unlimited,
    /// This rule refuses every request.
    Deny {
        /// The window that is reported with the refusal, if the limit is one of 0 requests in it.
        window: Option<Micros>,
    },
}

/// Why a rule cannot have another limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitError {
    /// It cannot be divided among regions.
    Share(ShareError),
    /// It does not support the rule's consistency.
    Consistency(ConsistencyError, Box<RuleLimit>),
}

impl LimitError {
    /// What is wrong with the limit, and what to write instead.
    pub(crate) fn describe(&self) -> FieldError {
        match self {
            Self::Share(error) => error.describe(),
            Self::Consistency(error, limit) => match limit.policy() {
                Some(policy) => error.describe(policy),
                None => FieldError::new("this limit has no counter"),
            },
        }
    }
}

/// The effect of a rule's refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// The request is refused.
    Enforce,
    /// The request passes; the refusal is only counted and reported.
    Shadow,
    /// The request passes with a warning while the warning policy admits it, and is refused after
    /// that.
    Warn(Policy),
}

/// What a rule decides while the store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFail {
    /// The request passes.
    Allow,
    /// The request is refused.
    Deny,
    /// The node enforces a conservative local share of the limit.
    Local,
}

/// Which requests a rule charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeWhen {
    /// Only admitted ones; a refused request is not charged.
    Admitted,
    /// All requests, including refused ones.
    Always,
}

/// What happens to recorded usage when a rule's algorithm, window or number of parts changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnChange {
    /// Usage is discarded: all keys start with a full limit.
    Reset,
    /// Usage is carried over.
    Keep,
}

/// Which part of a [split](crate::SplitLimit) rule's counter a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPart {
    /// The number of the part, from 0.
    pub(crate) number: u8,
    /// The difference between the hashes of the part and of the whole counter. It also depends on
    /// the number of parts.
    pub(crate) hash: Fingerprint,
}

impl SplitPart {
    /// The key of this part of a counter.
    #[must_use]
    pub fn key<'a>(&self, whole: Key<'a>) -> Key<'a> {
        whole.part(self.number, self.hash)
    }
}

/// One rule of a [`RuleSet`].
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) id: Box<str>,
    pub(crate) description: Option<String>,
    pub(crate) active: bool,
    /// The limit by which the store counts: the limit of the document or the share of this node's
    /// region, and of that the lending policy if the rule is leased in a shared store.
    pub(crate) limit: RuleLimit,
    pub(crate) consistency: Consistency,
    /// How the limit is divided among regions.
    pub(crate) regional: Option<Arc<RegionalLimit>>,
    /// Whether several nodes share the store that counts for the rule.
    pub(crate) is_shared: bool,
    pub(crate) cost: CostSource,
    pub(crate) mode: RuleMode,
    pub(crate) on_fail: OnFail,
    pub(crate) charge: ChargeWhen,
    pub(crate) ban: Option<BanPolicy>,
    pub(crate) on_change: OnChange,
    pub(crate) generation: u32,
    /// The rule before its algorithm, window or number of parts changed.
    pub(crate) predecessor: Option<Arc<RulePredecessor>>,
    pub(crate) conditions: Arc<[Condition]>,
    pub(crate) parts: Arc<[KeyPart]>,
    /// The rules that this rule replaces wherever it applies, as indexes in the rule set.
    pub(crate) replaces: Arc<[u32]>,
    /// The hash that all keys of the rule have in common.
    pub(crate) namespace: Fingerprint,
    /// The rules that count the parts of this rule's counters, as indexes in the rule set.
    pub(crate) split_parts: Range<u32>,
    /// The part that this rule counts, if it is such a rule.
    pub(crate) split_part: Option<SplitPart>,
}

impl Rule {
    /// The rule's stable, unique name: printable ASCII, at most 128 characters.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The author's description.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether the rule is enabled.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// The limit by which the store counts. Of a leased rule in a [shared
    /// store](RuleSet::for_shared_store) it is the lending policy.
    #[must_use]
    pub const fn limit(&self) -> &RuleLimit {
        &self.limit
    }

    /// The limit of the document or of the override. It identifies the counter, so that another
    /// consistency keeps the counter.
    #[must_use]
    pub fn document_limit(&self) -> RuleLimit {
        match &self.regional {
            Some(regional) => RuleLimit::Policy(*regional.whole()),
            None => self.region_limit(),
        }
    }

    /// The limit that all nodes of this region enforce together: the share of the region, or the
    /// limit of the document if it is not divided.
    #[must_use]
    pub fn region_limit(&self) -> RuleLimit {
        match &self.consistency {
            Consistency::Leased(leased) => RuleLimit::Policy(*leased.policy()),
            _ => self.limit,
        }
    }

    /// How the limit is divided among regions, if it is.
    #[must_use]
    pub fn regional(&self) -> Option<&RegionalLimit> {
        self.regional.as_deref()
    }

    /// The regions from whose shares this region borrows. Empty unless the rule borrows and
    /// [several nodes share the store](RuleSet::for_shared_store).
    #[must_use]
    pub fn lenders(&self) -> &[RegionLender] {
        self.regional().filter(|_| self.is_shared).map_or(&[], RegionalLimit::lenders)
    }

    /// The consistency that the document asks for.
    #[must_use]
    pub const fn consistency(&self) -> &Consistency {
        &self.consistency
    }

    /// Whether several nodes [share the store](RuleSet::for_shared_store) that counts for the rule.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The consistency in the rule's store: exact, unless [several nodes share
    /// it](RuleSet::for_shared_store).
    #[must_use]
    pub const fn applied_consistency(&self) -> &Consistency {
        if self.is_shared { &self.consistency } else { &Consistency::Exact }
    }

    /// The maximum admitted for one key in any interval of the length of the document's window, by
    /// all nodes of this region together; `None` if the limit does not count. An asynchronous rule
    /// can admit more while flushes are slow.
    #[must_use]
    pub fn max_in_window(&self) -> Option<u64> {
        let policy = self.region_limit();
        Some(self.applied_consistency().max_in_window(policy.policy()?))
    }

    /// The same for all regions together, if the limit is divided among them. While regions have
    /// different versions of the rule, it is the sum of the larger share of each.
    #[must_use]
    pub fn max_in_all_regions(&self) -> Option<u64> {
        Some(self.regional()?.max_in_window(self.applied_consistency()))
    }

    /// The source of a request's cost.
    #[must_use]
    pub const fn cost(&self) -> &CostSource {
        &self.cost
    }

    /// The effect of the rule's refusals.
    #[must_use]
    pub const fn mode(&self) -> &RuleMode {
        &self.mode
    }

    /// What the rule decides while the store is unreachable.
    #[must_use]
    pub const fn on_fail(&self) -> OnFail {
        self.on_fail
    }

    /// Which requests the rule charges.
    #[must_use]
    pub const fn charge(&self) -> ChargeWhen {
        self.charge
    }

    /// What happens to recorded usage when the algorithm, window or number of parts changes.
    #[must_use]
    pub const fn on_change(&self) -> OnChange {
        self.on_change
    }

    /// The generation of the counters. Changing it discards all previous counters.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// The ban policy, if any.
    #[must_use]
    pub const fn ban(&self) -> Option<&BanPolicy> {
        self.ban.as_ref()
    }

    /// The rules that this rule replaces wherever it applies, as indexes in the rule set.
    #[must_use]
    pub fn replaces(&self) -> &[u32] {
        &self.replaces
    }

    /// The names of the facts in its keys; empty if all requests share one counter.
    pub fn key_by(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(KeyPart::name)
    }

    /// The conditions as text, such as `tier=free`.
    pub fn conditions(&self) -> impl Iterator<Item = String> {
        self.conditions.iter().map(ToString::to_string)
    }

    /// The hash that identifies the counter for a request with these facts.
    #[must_use]
    pub fn fingerprint(&self, facts: &Facts<'_>, set: &RuleSet) -> Fingerprint {
        set.owner_fingerprint(&self.parts, facts) ^ self.namespace
    }

    /// The same hash, if it may be shown to users.
    #[must_use]
    pub fn public_fingerprint(&self, facts: &Facts<'_>, set: &RuleSet) -> Option<Fingerprint> {
        set.has_shareable_keys().then(|| self.fingerprint(facts, set))
    }

    /// The key of the counter with this hash.
    #[must_use]
    pub fn key(&self, fingerprint: Fingerprint) -> Key<'_> {
        match &self.split_part {
            None => counter_key(self, fingerprint, self.namespace),
            Some(part) => part.key(counter_key(self, fingerprint ^ part.hash, self.namespace)),
        }
    }

    /// The rules that count the parts of this rule's counters, as indexes in the rule set. Empty
    /// unless the rule is split and [several nodes share the store](RuleSet::for_shared_store).
    #[must_use]
    pub fn split_parts(&self) -> Range<u32> {
        self.split_parts.clone()
    }

    /// The part of another rule's counters that this rule counts, if it was made for that.
    #[must_use]
    pub const fn split_part(&self) -> Option<&SplitPart> {
        self.split_part.as_ref()
    }

    /// The number of counters that a key has in the store: the parts of a split rule, or one.
    pub(crate) const fn counter_count(&self) -> u32 {
        match self.applied_consistency() {
            Consistency::Split(split) => split.count(),
            _ => 1,
        }
    }

    /// The parts of the key as text, with replacements for missing parts.
    #[must_use]
    pub fn key_parts(&self, facts: &Facts<'_>, set: &RuleSet) -> Vec<(String, String)> {
        self.parts.iter().map(|part| set.key_derivation().describe(part, facts)).collect()
    }

    /// The descriptor that the rule matches, if any.
    pub(crate) fn descriptor(&self) -> Option<&DescriptorMatcher> {
        self.conditions.iter().find_map(Condition::descriptor)
    }

    pub(crate) fn governs(&self, request: &MatchInput<'_, '_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(request))
    }

    /// Takes over the state of the previous version of the rule, from the rule set `set`. An
    /// unchanged policy keeps its effective time; a changed one takes effect at `now`.
    pub(crate) fn inherit_from(&mut self, previous: Option<&Self>, set: &RuleSet, now: Timestamp) {
        self.set_effective_time(previous.and_then(|rule| rule.limit.policy()), now);
        if let Some(regional) = &mut self.regional {
            let before = previous.and_then(|rule| rule.regional());
            Arc::make_mut(regional).set_lenders_effective_time(before, now);
        }
        self.remember_predecessor(previous, set, now);
        if let RuleMode::Warn(policy) = &mut self.mode {
            let before = previous.and_then(|rule| rule.mode.warning_policy());
            *policy = policy.with_effective_since(effective_since(policy, before, now));
        }
    }

    /// Sets the effective time of the limit: that of the previous policy if unchanged, otherwise
    /// `now`.
    pub(crate) fn set_effective_time(&mut self, before: Option<&Policy>, now: Timestamp) {
        if let RuleLimit::Policy(policy) = &mut self.limit {
            let since = effective_since(policy, before, now);
            *policy = policy.with_effective_since(since);
            let consistency = std::mem::replace(&mut self.consistency, Consistency::Exact);
            self.consistency = consistency.with_effective_since(since);
        }
    }

    /// Counts by the policy for a store that several nodes share.
    pub(crate) fn share(&mut self) {
        self.is_shared = true;
        if let Consistency::Leased(leased) = &self.consistency {
            self.limit = RuleLimit::Policy(*leased.lending_policy());
        }
    }

    /// Enforces the share of a region from now on.
    pub(crate) fn enter_region(&mut self, shares: &RegionShares, region: &str) {
        let RuleLimit::Policy(whole) = self.limit else { return };
        let regional = RegionalLimit::new(shares.clone(), region.to_owned(), whole);
        self.regional = Some(Arc::new(regional));
        // The document reader has reported shares that have no valid limit.
        if let Ok(rule) = self.with_limit(self.limit) {
            *self = rule;
        }
    }

    /// The same rule with another limit in the document. If the rule is divided among regions, this
    /// region enforces its share of that limit.
    pub(crate) fn with_limit(&self, limit: RuleLimit) -> Result<Self, LimitError> {
        let (limit, regional) = match (&self.regional, limit) {
            (Some(regional), RuleLimit::Policy(whole)) => {
                let regional = regional.for_policy(whole);
                let share = regional.own_policy().map_err(LimitError::Share)?;
                (RuleLimit::Policy(share), Some(regional))
            }
            (_, limit) => (limit, None),
        };
        let consistency = self.consistency.for_limit(&limit);
        let consistency =
            consistency.map_err(|error| LimitError::Consistency(error, limit.into()))?;
        let regional = regional.map(|regional| Arc::new(regional.with_lenders(&consistency)));
        let mut rule = Self { limit, consistency, regional, split_parts: 0..0, ..self.clone() };
        if rule.is_shared {
            rule.share();
        }
        Ok(rule)
    }

    /// The rule that counts one part of this rule's counters.
    pub(crate) fn for_part(&self, part: SplitPart, policy: Policy) -> Self {
        Self {
            limit: RuleLimit::Policy(policy),
            consistency: Consistency::Exact,
            predecessor: None,
            split_parts: 0..0,
            split_part: Some(part),
            ..self.clone()
        }
    }
}

impl RuleLimit {
    /// The policy, if any.
    #[must_use]
    pub const fn policy(&self) -> Option<&Policy> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Unlimited | Self::Deny { .. } => None,
        }
    }

    /// The maximum admitted for one key in any interval of the length of the window; `None` if the
    /// limit does not count.
    #[must_use]
    pub fn max_in_window(&self) -> Option<u64> {
        self.policy().map(Policy::max_in_window)
    }

    /// The same limit, in effect since an instant.
    pub(crate) fn with_effective_since(self, since: Timestamp) -> Self {
        match self {
            Self::Policy(policy) => Self::Policy(policy.with_effective_since(since)),
            other => other,
        }
    }

    /// The fields that identify a counter within a rule: algorithm and window. A changed number of
    /// requests keeps the same counters.
    pub(crate) fn counter_identity(&self) -> (&'static str, u64) {
        match self {
            Self::Policy(policy) => (policy.algorithm().name(), policy.quota().window.get()),
            Self::Unlimited => ("unlimited", 0),
            Self::Deny { .. } => ("deny", 0),
        }
    }
}

impl RuleMode {
    /// The name in rules documents.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Warn(_) => "warn",
        }
    }

    /// The warning policy, if any.
    #[must_use]
    pub const fn warning_policy(&self) -> Option<&Policy> {
        match self {
            Self::Warn(policy) => Some(policy),
            Self::Enforce | Self::Shadow => None,
        }
    }
}

/// The hash that all keys of a rule have in common.
pub(crate) fn counter_namespace(
    secret: Secret,
    id: &str,
    limit: &RuleLimit,
    generation: u32,
) -> Fingerprint {
    let (algorithm, window) = limit.counter_identity();
    let (window, number) = (window.to_le_bytes(), generation.to_le_bytes());
    let parts = [id.as_bytes(), algorithm.as_bytes(), &window, &number];
    // Omit the first generation, so that rules without the field keep their existing counters.
    let part_count = if generation == FIRST_GENERATION { 3 } else { 4 };
    secret.namespace(&parts[..part_count])
}

/// The key of a counter. Global counters are not grouped by owner: they all have the same owner, so
/// grouping would direct the requests of the whole fleet to one place in the store.
pub(crate) fn counter_key(
    rule: &Rule,
    fingerprint: Fingerprint,
    namespace: Fingerprint,
) -> Key<'_> {
    if rule.parts.is_empty() {
        return Key::without_namespace(&rule.id, fingerprint);
    }
    Key { namespace, ..Key::without_namespace(&rule.id, fingerprint) }
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
