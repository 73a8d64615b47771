//! Exports the decision counters under their metric names.

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
    let help = "Decisions by API, by what answered and by outcome.";
    to.family("tidegate_decisions", MetricKind::Counter, help);
    for decision in &counts.decisions {
        let by = ("answered_by", decision.answered_by);
        let labels = [("api", decision.api), by, ("outcome", decision.outcome)];
        to.sample("_total", &labels, decision.count);
    }
}

fn write_durations(counts: &MetricsSnapshot, timed: u32, to: &mut Exposition) {
    let sampling = match timed {
        1 => "Every decision is timed.".to_owned(),
        timed => format!("Each thread times one decision in {timed}."),
    };
    let help = format!("Decision latency, including the store. {sampling}");
    to.family("tidegate_decision_duration_seconds", MetricKind::Histogram, &help);
    to.histogram(&[], &counts.duration_us, MetricUnit::Micros);
}

fn write_requests(counts: &MetricsSnapshot, to: &mut Exposition) {
    let help = "Requests by outcome and by the longest endpoint pattern of the matching rules.";
    to.family("tidegate_requests", MetricKind::Counter, help);
    for requests in &counts.endpoints {
        for (outcome, count) in OUTCOMES.into_iter().zip([requests.allowed, requests.refused]) {
            let labels = [("endpoint", requests.endpoint.as_str()), ("outcome", outcome)];
            to.sample("_total", &labels, count);
        }
    }
}

fn write_verdicts(rules: &[RuleCount], to: &mut Exposition) {
    let help = "Verdicts of each rule on the requests that it matches.";
    to.family("tidegate_rule_verdicts", MetricKind::Counter, help);
    for rule in rules {
        let counts = &rule.verdicts;
        let verdicts = [
            ("allow", counts.allow),
            ("deny", counts.deny),
            ("shadow_deny", counts.shadow_deny),
            ("warn", counts.warn),
            ("ban", counts.ban),
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
    let help = "Remaining quota after a decision, as a fraction of the limit.";
    to.family("tidegate_rule_headroom_ratio", MetricKind::Histogram, help);
    for rule in rules {
        to.histogram(&[("rule", &rule.id)], &rule.headroom_percent, MetricUnit::Hundredths);
    }
}

fn write_window_bounds(rules: &[RuleCount], to: &mut Exposition) {
    let help =
        "Maximum requests that a rule admits for one key in any interval as long as its window.";
    to.family("tidegate_rule_window_bound_requests", MetricKind::Gauge, help);
    for (rule, most) in rules.iter().filter_map(|rule| Some((rule, rule.max_in_window?))) {
        to.sample("", &[("rule", &rule.id)], most);
    }
}
