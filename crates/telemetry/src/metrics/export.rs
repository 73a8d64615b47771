//! What is counted of decisions, under the names that `/metrics` has for it.

use super::counts::{MetricsSnapshot, RuleCount};
use super::exposition::{Exposition, MetricKind, MetricUnit, MetricsExporter};
use super::{DecisionMetrics, OUTCOMES};

impl MetricsExporter for DecisionMetrics {
    fn export(&self, to: &mut Exposition) {
        let counts = self.counts();
        write_decisions(&counts, to);
        write_durations(&counts, self.time_one_in, to);
        write_requests(&counts, to);
        write_verdicts(&counts.rules, to);
        write_headroom(&counts.rules, to);
        write_window_bounds(&counts.rules, to);
    }
}

fn write_decisions(counts: &MetricsSnapshot, to: &mut Exposition) {
    let help = "Decisions by listener (door), by what answered and by outcome.";
    to.family("tidegate_decisions", MetricKind::Counter, help);
    for told in &counts.decisions {
        let by = ("answered_by", told.answered_by);
        let labels = [("door", told.door), by, ("outcome", told.outcome)];
        to.sample("_total", &labels, told.count);
    }
}

fn write_durations(counts: &MetricsSnapshot, timed: u32, to: &mut Exposition) {
    let which = match timed {
        1 => "Every decision is timed.".to_owned(),
        timed => format!("One decision in {timed} of each thread is timed."),
    };
    let help = format!("How long decisions took, the store included. {which}");
    to.family("tidegate_decision_duration_seconds", MetricKind::Histogram, &help);
    to.histogram(&[], &counts.duration_us, MetricUnit::Micros);
}

fn write_requests(counts: &MetricsSnapshot, to: &mut Exposition) {
    let help = "Requests, by the longest endpoint pattern of the rules that govern them.";
    to.family("tidegate_requests", MetricKind::Counter, help);
    for told in &counts.endpoints {
        for (outcome, count) in OUTCOMES.into_iter().zip([told.allowed, told.refused]) {
            let labels = [("endpoint", told.endpoint.as_str()), ("outcome", outcome)];
            to.sample("_total", &labels, count);
        }
    }
}

fn write_verdicts(rules: &[RuleCount], to: &mut Exposition) {
    let help = "What rules said to requests that they govern.";
    to.family("tidegate_rule_verdicts", MetricKind::Counter, help);
    for rule in rules {
        let told = &rule.verdicts;
        let verdicts = [
            ("allow", told.allow),
            ("deny", told.deny),
            ("shadow_deny", told.shadow_deny),
            ("warn", told.warn),
            ("ban", told.ban),
        ];
        for (verdict, count) in verdicts {
            let labels = [
                ("rule", rule.id.as_str()),
                ("endpoint", &rule.endpoint),
                ("mode", rule.mode),
                ("verdict", verdict),
            ];
            to.sample("_total", &labels, count);
        }
    }
}

fn write_headroom(rules: &[RuleCount], to: &mut Exposition) {
    let help = "What was left of the limit after a decision, as a share of it; the rest is used.";
    to.family("tidegate_rule_headroom_ratio", MetricKind::Histogram, help);
    for rule in rules {
        to.histogram(&[("rule", &rule.id)], &rule.headroom_percent, MetricUnit::Hundredths);
    }
}

fn write_window_bounds(rules: &[RuleCount], to: &mut Exposition) {
    let help = "The most that a rule admits to one key in any interval as long as its window.";
    to.family("tidegate_rule_window_bound_requests", MetricKind::Gauge, help);
    for (rule, most) in rules.iter().filter_map(|rule| Some((rule, rule.most_in_window?))) {
        to.sample("", &[("rule", &rule.id)], most);
    }
}
