//! Test fixtures for `tidegate top`.

use super::api_types::{
    LiveCounts, LiveHistogram, LiveKey, LiveProcess, LiveRule, LiveRuleSource, LiveStatus,
    LiveTick, OutcomeCount, VerdictTotals,
};

/// A tick of one process without rules, with the given numbers of decisions.
pub(super) fn sample_tick(at_us: u64, allowed: u64, refused: u64) -> LiveTick {
    let outcome = |outcome: &str, count| OutcomeCount {
        answered_by: "store".to_owned(),
        outcome: outcome.to_owned(),
        count,
    };
    LiveTick {
        at_us,
        counts: LiveCounts {
            decisions: vec![outcome("allowed", allowed), outcome("refused", refused)],
            duration_us: LiveHistogram { bounds: vec![5, 10], counts: vec![0; 3], sum: 0 },
            rules: Vec::new(),
        },
        process: LiveProcess {
            node: "north".to_owned(),
            version: "0.1.0".to_owned(),
            pid: 7,
            started_us: 0,
            status: LiveStatus {
                status: "ready".to_owned(),
                rules_version: "00000000000000ab".to_owned(),
                reload_error: None,
                store_error: None,
            },
            store: "memory".to_owned(),
            servers: None,
            regions: None,
        },
        rule_source: LiveRuleSource { version: 3, database: "rules.yaml".to_owned(), rules: 2 },
    }
}

/// A rule with the given verdicts, and nothing left of its limit after each decision.
pub(super) fn sample_rule(id: &str, verdicts: VerdictTotals) -> LiveRule {
    LiveRule {
        id: id.to_owned(),
        endpoint: "*".to_owned(),
        mode: "enforce".to_owned(),
        consistency: "exact".to_owned(),
        is_active: true,
        max_in_window: Some(20),
        verdicts,
        headroom_percent: LiveHistogram {
            bounds: vec![0, 10, 100],
            counts: vec![verdicts.decisions(), 0, 0, 0],
            sum: 0,
        },
    }
}

/// A key of a list.
pub(super) fn sample_key(kind: &str, who: &str, count: u64) -> LiveKey {
    LiveKey {
        kind: kind.to_owned(),
        rule: "writes".to_owned(),
        key: "0123".to_owned(),
        client: Some(who.to_owned()),
        count,
        error: 0,
        spread: 0,
    }
}
