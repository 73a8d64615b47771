//! Explains why a request is allowed or refused, for people and for programs.

use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_rules::{BorrowTerms, CostSource, Facts, Rule, RuleLimit};

use crate::decision::{Decision, RuleReading};
use crate::lease::LenderStats;
use crate::rule_status::{RuleConsistency, describe_bound, describe_policy};

/// Which rules match a request and what they decide. Explaining charges nothing.
#[derive(Debug)]
pub struct Explanation {
    /// The facts, including those derived by enrichment.
    pub facts: Vec<(String, String)>,
    /// The decision that the request would get now.
    pub decision: Decision,
    /// One per matching rule, in document order.
    pub rules: Vec<RuleExplanation>,
    /// The ID of the rule that decides.
    pub deciding: Option<String>,
    /// The reason for the decision, as a sentence.
    pub why: String,
}

/// How one matching rule decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleExplanation {
    /// The rule's ID.
    pub id: String,
    /// The rule's conditions, all of which the request meets.
    pub matched: Vec<String>,
    /// The names and values of the counter's key parts.
    pub key: Vec<(String, String)>,
    /// The key's fingerprint in the store; `None` if it must not be shown.
    pub fingerprint: Option<Fingerprint>,
    /// The limit as text.
    pub limit: String,
    /// How the nodes agree on the counter; `None` for a rule without a counter.
    pub consistency: Option<RuleConsistency>,
    /// The units of the counter that this node has leased and not spent, or has admitted and not
    /// flushed; `None` if the store decides every request.
    pub units: Option<u64>,
    /// From which regions this node borrows units, and on which terms; `None` if the rule does not
    /// borrow.
    pub borrow: Option<String>,
    /// The most that the rule admits for one key in any interval of its window's length; `None` for
    /// a rule without a counter.
    pub max_in_window: Option<u64>,
    /// `max_in_window` as text.
    pub bound: String,
    /// The reason for the rule's verdict, as text.
    pub why: String,
}

impl Explanation {
    /// `units` returns what this node, one of `nodes`, holds of a rule's counter.
    pub(crate) fn new(
        decision: Decision,
        facts: &Facts<'_>,
        cost: u32,
        nodes: u32,
        units: impl Fn(&Rule) -> Option<u64>,
        lenders: &[LenderStats],
    ) -> Self {
        let rules = decision
            .readings()
            .map(|(rule, reading)| RuleExplanation {
                id: rule.id().to_owned(),
                matched: rule.conditions().collect(),
                key: rule.key_parts(facts, &decision.rules),
                fingerprint: rule.public_fingerprint(facts, &decision.rules),
                limit: format!("{}{}", describe_limit(rule), describe_cost(rule)),
                consistency: RuleConsistency::of(rule, nodes),
                units: units(rule),
                borrow: describe_borrowing(rule, lenders),
                max_in_window: rule.max_in_window(),
                bound: describe_bound(rule),
                why: describe_reading(rule, reading, cost),
            })
            .collect();
        let deciding = decision.tightest().map(|(rule, _)| rule.id().to_owned());
        let why = match decision.tightest() {
            None => "no rule with a limit matches this request, so it is allowed".to_owned(),
            Some((rule, _)) if decision.is_allowed() => {
                format!("allowed; {} has the least left", rule.id())
            }
            Some((rule, reading)) => {
                format!("refused by {}: {}", rule.id(), describe_reading(rule, reading, cost))
            }
        };
        let facts = facts.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { facts, decision, rules, deciding, why }
    }
}

fn describe_limit(rule: &Rule) -> String {
    let limit = describe_region_limit(rule);
    let Some(regional) = rule.regional() else { return limit };
    let (share, region) = (regional.own_share(), regional.region());
    format!("{limit} in region {region}: {share} of {}", describe_policy(regional.whole()))
}

/// The regions from which this node borrows, those from which it does not and why, and the terms.
fn describe_borrowing(rule: &Rule, lenders: &[LenderStats]) -> Option<String> {
    let regional = rule.regional()?;
    let terms = regional.shares().borrow_terms()?;
    let BorrowTerms { ttl, every, keep } = terms;
    let region = |(region, _)| (region != regional.region()).then_some(region);
    let state = |region: &str| match lenders.iter().find(|lender| *lender.region == *region) {
        _ if !rule.is_shared() => format!("{region} on a shared store"),
        None => format!("{region}: nothing, it has no --region-store"),
        Some(lender) if !lender.is_usable => format!("{region}: nothing at present"),
        Some(_) => region.to_owned(),
    };
    let states: Vec<String> = regional.shares().iter().filter_map(region).map(state).collect();
    let states = states.join(", ");
    Some(format!("from {states} (ttl {ttl}, every {every}, regions keep {keep})"))
}

fn describe_region_limit(rule: &Rule) -> String {
    match &rule.region_limit() {
        RuleLimit::Unlimited => "unlimited".to_owned(),
        RuleLimit::Deny { .. } => "deny".to_owned(),
        RuleLimit::Policy(policy) if policy.is_concurrency() => {
            let quota = policy.quota();
            format!("{} at once, each held for {} unless renewed", quota.requests, quota.window)
        }
        RuleLimit::Policy(policy) => describe_policy(policy),
    }
}

fn describe_cost(rule: &Rule) -> String {
    match rule.cost() {
        CostSource::Fixed(_) => String::new(),
        cost => format!(", cost {cost}"),
    }
}

fn describe_reading(rule: &Rule, reading: &RuleReading, cost: u32) -> String {
    let Some(numbers) = reading.numbers else {
        return match rule.limit() {
            RuleLimit::Deny { .. } => "the rule refuses every request".to_owned(),
            RuleLimit::Unlimited => "the rule has no limit".to_owned(),
            RuleLimit::Policy(_) => {
                "not checked, because another rule already refuses the request".to_owned()
            }
        };
    };
    let left = format!("{} of {} left", numbers.remaining, numbers.limit);
    let requested = rule.cost().base().saturating_mul(u64::from(cost));
    let state = match numbers.retry {
        Retry::Now => format!("{left}, {requested} requested"),
        Retry::After(_) if rule.limit().policy().is_some_and(Policy::is_concurrency) => {
            format!("{left}, {requested} requested, retry when other requests end")
        }
        Retry::After(wait) => {
            format!("{left}, {requested} requested, retry in {}", wait.to_human_string())
        }
        Retry::Never => {
            format!("{requested} requested can never fit the limit of {}", numbers.limit)
        }
    };
    match reading.verdict {
        Verdict::Allow => state,
        Verdict::Deny => format!("over the limit ({state})"),
        Verdict::ShadowDeny => format!("over the limit ({state}), but the rule is in shadow mode"),
        Verdict::Warn => format!("over the limit ({state}), passes with a warning this time"),
        Verdict::Ban => format!("banned for repeated refusals ({state})"),
    }
}
