//! What can only be judged with the whole document in view.

use std::collections::{HashMap, HashSet};

use tidegate_core::policy::{Algorithm, Leak};

use super::facts::Place;
use super::{Document, TypedRule};
use crate::condition::{Test, disjoint};
use crate::decode::Findings;
use crate::key::KeyPart;
use crate::problem::Remark;

impl Document {
    /// Notes what is wrong between the parts of the document.
    pub(crate) fn check(&self, findings: &Findings<'_>) {
        self.check_key(findings);
        self.check_tier(findings);
        self.check_subjects(findings);
        self.check_facts(self.own_rules(), Place::Document, findings);
        check_ids(&self.rules, findings);
        check_replaced(&self.rules, findings);
        check_key_patterns(&self.rules, findings);
        self.rules.iter().for_each(|rule| check_reachable(rule, findings));
        self.rules.iter().for_each(|rule| check_descriptor(rule, findings));
        check_queues(&self.rules, findings);
    }

    fn check_key(&self, findings: &Findings<'_>) {
        if let (Some(fault), Some(file)) = (&self.key_fault, self.key_file()) {
            let remark = fault.clone().found(file);
            findings.note(self.places.key_file, "identity.user_id.jwt.key_file", remark);
        }
    }

    fn check_tier(&self, findings: &Findings<'_>) {
        let subject = self.identity.tier.as_ref().and_then(|tier| tier.subject.as_deref());
        let identified = match subject {
            None | Some("ip") => true,
            Some("api_key") => self.identity.api_key.is_some(),
            Some("user_id") => self.identity.user_id.is_some(),
            Some(other) => self.identity.facts.iter().any(|fact| fact.name == other),
        };
        if !identified {
            let subject = subject.unwrap_or_default();
            let remark =
                Remark::new("the tier is looked up by a fact that `identity` does not find")
                    .found(subject)
                    .write(format!("where `{subject}` comes from, or another `subject`"));
            findings.note(self.places.tier_subject, "identity.tier.subject", remark);
        }
    }

    fn check_subjects(&self, findings: &Findings<'_>) {
        let mut lines: HashMap<(&str, &str), usize> = HashMap::new();
        for subject in &self.subjects {
            let key = (subject.fact.as_str(), subject.value.as_str());
            if let Some(line) = lines.insert(key, subject.span.line) {
                let message = format!("this {} is already listed on line {line}", subject.fact);
                let remark = Remark::new(message).write("it once");
                findings.note(subject.span, &subject.path, remark);
            }
        }
    }
}

fn check_ids(rules: &[TypedRule], findings: &Findings<'_>) {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (rule, id) in rules.iter().filter_map(|rule| Some((rule, rule.id.as_ref()?))) {
        if let Some(line) = lines.get(id.value.as_str()) {
            let remark = Remark::new(format!("this id is already used on line {line}"))
                .found(&id.value)
                .write("an id of its own for each rule");
            findings.note(id.span, &format!("{}.id", rule.path), remark);
        } else {
            lines.insert(&id.value, id.span.line);
        }
    }
}

/// A rule that is to be replaced must be there, or its replacement would quietly apply beside nothing.
fn check_replaced(rules: &[TypedRule], findings: &Findings<'_>) {
    let ids = rules.iter().filter_map(|rule| rule.id.as_ref()).map(|id| id.value.as_str());
    let known: HashSet<&str> = ids.collect();
    for rule in rules {
        let own = rule.id.as_ref().map(|id| id.value.as_str());
        for replaced in &rule.replaces {
            let remark = match replaced.value.as_str() {
                id if own == Some(id) => Remark::new("a rule cannot replace itself"),
                id if !known.contains(id) => Remark::new("no rule has this id"),
                _ => continue,
            };
            let remark = remark.found(&replaced.value).write("the `id` of another rule");
            findings.note(replaced.span, &format!("{}.replaces", rule.path), remark);
        }
    }
}

/// The seeds' table allows a pattern once for each plan; here it is once for each window as well.
fn check_key_patterns(rules: &[TypedRule], findings: &Findings<'_>) {
    let mut lines = HashMap::new();
    for rule in rules {
        let (Some(pattern), Some(limit)) = (&rule.key_pattern, rule.limit) else {
            continue;
        };
        let mut conditions: Vec<_> = rule.conditions.iter().map(|c| c.value.to_string()).collect();
        conditions.sort_unstable();
        let key = (pattern.value.as_str(), conditions, limit.namespace());
        if let Some(line) = lines.get(&key) {
            let message = format!("line {line} has this pattern for the same plan and window");
            let remark = Remark::new(message).found(&pattern.value);
            let hint = "one rule for both, or another plan or window";
            findings.note(pattern.span, &format!("{}.key_pattern", rule.path), remark.write(hint));
        } else {
            lines.insert(key, pattern.span.line);
        }
    }
}

fn check_reachable(rule: &TypedRule, findings: &Findings<'_>) {
    for (at, condition) in rule.conditions.iter().enumerate() {
        let before = rule.conditions[..at].iter();
        let other = before.rev().find(|other| disjoint(&other.value, &condition.value));
        if let Some(other) = other {
            let (one, two) = (other.value.described(), condition.value.described());
            let remark = Remark::new(format!("no request is both {one} and {two}"));
            let hint = "conditions that can hold together; a rule applies when all of them do";
            findings.note(condition.span, &format!("{}.match", rule.path), remark.write(hint));
            return;
        }
    }
}

/// Which descriptor is the most specific is told among those of one domain.
fn check_descriptor(rule: &TypedRule, findings: &Findings<'_>) {
    let mut asked = rule.conditions.iter();
    let Some(condition) = asked.find(|c| matches!(c.value.test, Test::Descriptor(_))) else {
        return;
    };
    if !rule.conditions.iter().any(|condition| condition.value.one_domain().is_some()) {
        let remark = Remark::new("a descriptor is one of a domain")
            .write("`domain:` and the one name beside `descriptor`, as in Envoy's filter");
        findings.note(condition.span, &format!("{}.match", rule.path), remark);
    }
    let keyed = rule.parts.iter().any(|part| matches!(part, KeyPart::Descriptor { .. }));
    if !keyed && rule.descriptor().is_some_and(|descriptor| descriptor.shared() != 0) {
        let remark = Remark::new("`shared` is said of values that are not in the key");
        let hint = "`key_by: descriptor` beside it, or leave `shared` out";
        findings.note(condition.span, &format!("{}.match", rule.path), remark.write(hint));
    }
}

/// A request that two rules hold back could not keep both their rates, so what might be governed
/// by two queues is refused.
fn check_queues(rules: &[TypedRule], findings: &Findings<'_>) {
    let queues: Vec<&TypedRule> = rules.iter().filter(|rule| rule.active && queues(rule)).collect();
    for (at, rule) in queues.iter().enumerate() {
        let Some(other) = queues[..at].iter().find(|other| may_overlap(rule, other)) else {
            continue;
        };
        let line = other.span.line;
        let remark =
            Remark::new(format!("a request could wait in this queue and in that of line {line}"))
                .write("`match` so that no request fits both, or `queue: false` on one of them");
        findings.note(rule.span, &format!("{}.limit.queue", rule.path), remark);
    }
}

fn queues(rule: &TypedRule) -> bool {
    let policy = rule.limit.as_ref().and_then(|limit| limit.policy());
    policy.is_some_and(|policy| policy.algorithm() == Algorithm::LeakyBucket(Leak::Queue))
}

fn may_overlap(one: &TypedRule, two: &TypedRule) -> bool {
    !one.conditions.iter().any(|a| two.conditions.iter().any(|b| disjoint(&a.value, &b.value)))
}
