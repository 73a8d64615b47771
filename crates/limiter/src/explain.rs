//! Why a request is decided as it is, for people and programs that ask.

use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_rules::{CostSource, Facts, Rule, RuleLimit, RuleMode};

use crate::decision::{Decision, RuleReading};

/// Which rules govern a request and what comes of it, with nothing charged.
#[derive(Debug)]
pub struct Explanation {
    /// The facts, with what follows from them.
    pub facts: Vec<(String, String)>,
    /// What would be decided now.
    pub decision: Decision,
    /// One for each governing rule, in document order.
    pub rules: Vec<RuleExplanation>,
    /// The id of the rule that decides.
    pub deciding: Option<String>,
    /// Why, in a sentence.
    pub why: String,
}

/// One governing rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleExplanation {
    /// The rule's id.
    pub id: String,
    /// What the request has that the rule asks for.
    pub matched: Vec<String>,
    /// The parts of the counter's key.
    pub key: Vec<(String, String)>,
    /// The key as stores see it, unless it must not be shown.
    pub fingerprint: Option<Fingerprint>,
    /// What the rule allows, in words.
    pub limit: String,
    /// The most that it admits to one key in any interval as long as its window; none where it counts nothing.
    pub most_in_window: Option<u64>,
    /// That in words.
    pub bound: String,
    /// What it would say, in words.
    pub why: String,
}

impl Explanation {
    pub(crate) fn new(decision: Decision, facts: &Facts<'_>, cost: u32) -> Self {
        let rules = decision
            .readings()
            .map(|(rule, reading)| RuleExplanation {
                id: rule.id().to_owned(),
                matched: rule.conditions().collect(),
                key: rule.key_parts(facts, &decision.rules),
                fingerprint: rule.public_fingerprint(facts, &decision.rules),
                limit: format!("{}{}", describe_limit(rule), describe_cost(rule)),
                most_in_window: rule.limit().max_in_window(),
                bound: describe_bound(rule),
                why: describe_reading(rule, reading, cost),
            })
            .collect();
        let deciding = decision.tightest().map(|(rule, _)| rule.id().to_owned());
        let why = match decision.tightest() {
            None => "no rule with a limit governs this request, so it passes".to_owned(),
            Some((rule, _)) if decision.is_allowed() => {
                format!("it passes; {} has the least left", rule.id())
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
    match rule.limit() {
        RuleLimit::Unlimited => "unlimited".to_owned(),
        RuleLimit::Deny => "deny".to_owned(),
        RuleLimit::Policy(policy) if policy.is_concurrency() => {
            let quota = policy.quota();
            format!("{} at once, each held for {} unless renewed", quota.requests, quota.window)
        }
        RuleLimit::Policy(policy) => {
            let quota = policy.quota();
            let burst = quota.burst.map_or_else(String::new, |burst| format!(", burst {burst}"));
            format!("{} per {} by {}{burst}", quota.requests, quota.window, policy.algorithm())
        }
    }
}

/// How much more than its number a limit may let through, wherever one begins to count.
fn describe_bound(rule: &Rule) -> String {
    let bound = match rule.limit() {
        RuleLimit::Unlimited => return "none".to_owned(),
        RuleLimit::Deny => "nothing passes".to_owned(),
        RuleLimit::Policy(policy) if policy.is_concurrency() => {
            format!("at most {} at once", policy.max_in_window())
        }
        RuleLimit::Policy(policy) => {
            format!("at most {} in any {}", policy.max_in_window(), policy.quota().window)
        }
    };
    match rule.mode() {
        RuleMode::Shadow => format!("{bound}, if it were enforced"),
        RuleMode::Enforce | RuleMode::Warn(_) => bound,
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
            RuleLimit::Deny => "it refuses every request".to_owned(),
            RuleLimit::Unlimited => "it has no limit".to_owned(),
            RuleLimit::Policy(_) => {
                "it was not asked, because another rule is known to refuse".to_owned()
            }
        };
    };
    let left = format!("{} of {} left", numbers.remaining, numbers.limit);
    let asked = rule.cost().base().saturating_mul(u64::from(cost));
    let state = match numbers.retry {
        Retry::Now => format!("{left}, {asked} asked for"),
        Retry::After(_) if rule.limit().policy().is_some_and(Policy::is_concurrency) => {
            format!("{left}, {asked} asked for, fits when others have ended")
        }
        Retry::After(wait) => {
            format!("{left}, {asked} asked for, retry in {}", wait.to_human_string())
        }
        Retry::Never => {
            format!("{asked} asked for is more than the limit of {} ever holds", numbers.limit)
        }
    };
    match reading.verdict {
        Verdict::Allow => state,
        Verdict::Deny => format!("over the limit ({state})"),
        Verdict::ShadowDeny => format!("over the limit ({state}), but the rule is in shadow"),
        Verdict::Warn => format!("over the limit ({state}), passes with a warning this time"),
        Verdict::Ban => format!("banned for repeated refusals ({state})"),
    }
}
