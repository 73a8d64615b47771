//! Checks that need the whole document.

use std::collections::{HashMap, HashSet};

use tidegate_core::policy::{Algorithm, LeakMode};

use super::facts::RuleOrigin;
use super::{Document, ParsedRule};
use crate::condition::{FactMatcher, are_disjoint};
use crate::decode::Diagnostics;
use crate::diagnostic::FieldError;
use crate::key::KeyPart;

impl Document {
    /// Reports errors between the parts of the document.
    pub(crate) fn check(&self, diagnostics: &Diagnostics<'_>) {
        self.check_key(diagnostics);
        self.check_tier(diagnostics);
        self.check_subjects(diagnostics);
        self.check_facts(self.document_rules(), RuleOrigin::Document, diagnostics);
        check_ids(&self.rules, diagnostics);
        check_replaced(&self.rules, diagnostics);
        check_key_patterns(&self.rules, diagnostics);
        self.rules.iter().for_each(|rule| check_reachable(rule, diagnostics));
        self.rules.iter().for_each(|rule| check_descriptor(rule, diagnostics));
        check_queues(&self.rules, diagnostics);
    }

    fn check_key(&self, diagnostics: &Diagnostics<'_>) {
        if let (Some(fault), Some(file)) = (&self.key_error, self.key_file()) {
            let error = fault.clone().with_found(file);
            diagnostics.report(
                self.identity_spans.key_file,
                "identity.user_id.jwt.key_file",
                error,
            );
        }
    }

    fn check_tier(&self, diagnostics: &Diagnostics<'_>) {
        let subject = self.identity.tier.as_ref().and_then(|tier| tier.subject.as_deref());
        let identified = match subject {
            None | Some("ip") => true,
            Some("api_key") => self.identity.api_key.is_some(),
            Some("user_id") => self.identity.user_id.is_some(),
            Some(other) => self.identity.facts.iter().any(|fact| fact.name == other),
        };
        if !identified {
            let subject = subject.unwrap_or_default();
            let error =
                FieldError::new("the tier is looked up by a fact that `identity` does not supply")
                    .with_found(subject)
                    .with_hint(format!("where `{subject}` comes from, or another `subject`"));
            diagnostics.report(self.identity_spans.tier_subject, "identity.tier.subject", error);
        }
    }

    fn check_subjects(&self, diagnostics: &Diagnostics<'_>) {
        let mut lines: HashMap<(&str, &str), usize> = HashMap::new();
        for subject in &self.subjects {
            let key = (subject.fact.as_str(), subject.value.as_str());
            if let Some(line) = lines.insert(key, subject.span.line) {
                let message = format!("this {} is already listed on line {line}", subject.fact);
                let error = FieldError::new(message).with_hint("it once");
                diagnostics.report(subject.span, &subject.path, error);
            }
        }
    }
}

fn check_ids(rules: &[ParsedRule], diagnostics: &Diagnostics<'_>) {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (rule, id) in rules.iter().filter_map(|rule| Some((rule, rule.id.as_ref()?))) {
        if let Some(line) = lines.get(id.value.as_str()) {
            let error = FieldError::new(format!("this id is already used on line {line}"))
                .with_found(&id.value)
                .with_hint("a unique id for each rule");
            diagnostics.report(id.span, &format!("{}.id", rule.path), error);
        } else {
            lines.insert(&id.value, id.span.line);
        }
    }
}

/// Reports replaced ids that do not exist. Otherwise a misspelled id would silently leave both
/// rules in force.
fn check_replaced(rules: &[ParsedRule], diagnostics: &Diagnostics<'_>) {
    let ids = rules.iter().filter_map(|rule| rule.id.as_ref()).map(|id| id.value.as_str());
    let known: HashSet<&str> = ids.collect();
    for rule in rules {
        let own = rule.id.as_ref().map(|id| id.value.as_str());
        for replaced in &rule.replaces {
            let error = match replaced.value.as_str() {
                id if own == Some(id) => FieldError::new("a rule cannot replace itself"),
                id if !known.contains(id) => FieldError::new("no rule has this id"),
                _ => continue,
            };
            let error = error.with_found(&replaced.value).with_hint("the `id` of another rule");
            diagnostics.report(replaced.span, &format!("{}.replaces", rule.path), error);
        }
    }
}

/// Rule tables of other programs (`--rules-table`) allow a pattern once per plan; here it is once
/// per plan and window.
fn check_key_patterns(rules: &[ParsedRule], diagnostics: &Diagnostics<'_>) {
    let mut lines = HashMap::new();
    for rule in rules {
        let (Some(pattern), Some(limit)) = (&rule.key_pattern, rule.limit) else {
            continue;
        };
        let mut conditions: Vec<_> = rule.conditions.iter().map(|c| c.value.to_string()).collect();
        conditions.sort_unstable();
        let key = (pattern.value.as_str(), conditions, limit.counter_identity());
        if let Some(line) = lines.get(&key) {
            let message = format!("line {line} has this pattern for the same plan and window");
            let error = FieldError::new(message).with_found(&pattern.value);
            let hint = "one rule for both, or another plan or window";
            diagnostics.report(
                pattern.span,
                &format!("{}.key_pattern", rule.path),
                error.with_hint(hint),
            );
        } else {
            lines.insert(key, pattern.span.line);
        }
    }
}

fn check_reachable(rule: &ParsedRule, diagnostics: &Diagnostics<'_>) {
    for (at, condition) in rule.conditions.iter().enumerate() {
        let before = rule.conditions[..at].iter();
        let other = before.rev().find(|other| are_disjoint(&other.value, &condition.value));
        if let Some(other) = other {
            let (one, two) = (other.value.redacted_text(), condition.value.redacted_text());
            let error = FieldError::new(format!("no request is both {one} and {two}"));
            let hint = "conditions that can hold together; a rule applies when all of them do";
            diagnostics.report(
                condition.span,
                &format!("{}.match", rule.path),
                error.with_hint(hint),
            );
            return;
        }
    }
}

/// The most specific descriptor is selected within one domain, so a descriptor needs a domain.
fn check_descriptor(rule: &ParsedRule, diagnostics: &Diagnostics<'_>) {
    let mut conditions = rule.conditions.iter();
    let Some(condition) =
        conditions.find(|c| matches!(c.value.matcher, FactMatcher::Descriptor(_)))
    else {
        return;
    };
    if !rule.conditions.iter().any(|condition| condition.value.single_domain().is_some()) {
        let error = FieldError::new("a `descriptor` needs a `domain`")
            .with_hint("`domain:` with a single name beside `descriptor`, as in Envoy's filter");
        diagnostics.report(condition.span, &format!("{}.match", rule.path), error);
    }
    let keyed = rule.parts.iter().any(|part| matches!(part, KeyPart::Descriptor { .. }));
    if !keyed && rule.descriptor().is_some_and(|descriptor| descriptor.shared_mask() != 0) {
        let error = FieldError::new("`shared` applies to values that are not in the key");
        let hint = "`key_by: descriptor` beside it, or leave `shared` out";
        diagnostics.report(condition.span, &format!("{}.match", rule.path), error.with_hint(hint));
    }
}

/// Rejects rules whose queues could both delay a request: it could not follow both rates.
fn check_queues(rules: &[ParsedRule], diagnostics: &Diagnostics<'_>) {
    let queues: Vec<&ParsedRule> =
        rules.iter().filter(|rule| rule.active && is_queueing(rule)).collect();
    for (at, rule) in queues.iter().enumerate() {
        let Some(other) = queues[..at].iter().find(|other| may_overlap(rule, other)) else {
            continue;
        };
        let line = other.span.line;
        let error = FieldError::new(format!(
            "a request could wait in this queue and in the queue on line {line}"
        ))
        .with_hint("a `match` so that no request matches both, or `queue: false` on one of them");
        diagnostics.report(rule.span, &format!("{}.limit.queue", rule.path), error);
    }
}

fn is_queueing(rule: &ParsedRule) -> bool {
    let policy = rule.limit.as_ref().and_then(|limit| limit.policy());
    policy.is_some_and(|policy| policy.algorithm() == Algorithm::LeakyBucket(LeakMode::Queue))
}

fn may_overlap(one: &ParsedRule, two: &ParsedRule) -> bool {
    !one.conditions.iter().any(|a| two.conditions.iter().any(|b| are_disjoint(&a.value, &b.value)))
}
