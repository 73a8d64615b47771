//! Computes the numbers to show from the history: rates, shares, latencies and table rows. Text in
//! it is not escaped; the code that draws or prints it must do that.

use super::api_types::{
    LiveDividedRule, LiveHistogram, LiveKey, LiveNode, LiveRule, LiveTick, VerdictTotals,
};
use super::formatting::{rate_per_second, share_permille};
use super::history::{MAX_DELTAS, TickHistory};
use super::tick_delta::{BANDS, TickDelta};

/// Window of the overall rates, in ticks (one per second), as on the dashboard.
const RATE_WINDOW_STEPS: usize = 10;

/// Window of the rates per rule, in ticks.
pub(super) const RULE_WINDOW_STEPS: usize = 60;

/// The latency percentiles to show, with their quantiles in thousandths.
pub(super) const QUANTILES: [(&str, u64); 3] = [("p50", 500), ("p90", 900), ("p99", 990)];

/// Percentage of a limit; a counter with at most this much left is near its limit.
const NEAR_LIMIT_PERCENT: u64 = 10;

/// The numbers to show.
#[derive(Clone, Debug)]
pub(super) struct TopSnapshot {
    /// The newest tick.
    pub(super) tick: LiveTick,
    /// Decisions since the start.
    pub(super) total: u64,
    /// Rates of decisions by [`BANDS`], in thousandths per second.
    pub(super) bands: [u64; BANDS.len()],
    /// The share of refused decisions, in thousandths.
    pub(super) refused: Option<u64>,
    /// The share of decisions that the node made without asking the store, in thousandths. `None`
    /// if the store is in the same process.
    pub(super) local: Option<u64>,
    /// The latencies of [`QUANTILES`], in nanoseconds.
    pub(super) latencies: [Option<u64>; QUANTILES.len()],
    /// `bands` of each difference in the history, oldest first.
    pub(super) trend: Vec<[u64; BANDS.len()]>,
    pub(super) rules: Vec<RuleActivity>,
    pub(super) keys: Vec<LiveKey>,
    pub(super) nodes: Vec<LiveNode>,
}

/// The activity of a rule in the last minute.
#[derive(Clone, Debug)]
pub(super) struct RuleActivity {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) mode: String,
    pub(super) consistency: String,
    pub(super) is_active: bool,
    /// In thousandths per second.
    pub(super) requests: u64,
    /// In thousandths per second.
    pub(super) refused: u64,
    /// The share of refused requests, in thousandths.
    pub(super) share: Option<u64>,
    /// The average use of the limit after a decision, in thousandths.
    pub(super) used: Option<u64>,
    /// The share of decisions after which at most a tenth of the limit was left, in thousandths.
    pub(super) near_limit: Option<u64>,
    pub(super) max_in_window: Option<u64>,
    /// The share of the limit that the node's region has, such as `50%`.
    pub(super) region_share: Option<String>,
    /// Units of other regions spent since the start of the server; `None` if none were borrowed.
    pub(super) borrowed: Option<u64>,
    /// Units that the node's region lent to others; `None` if it lent none.
    pub(super) lent: Option<u64>,
    /// Rates of requests and refusals over time, oldest first, in thousandths per second.
    pub(super) trend: Vec<(u64, u64)>,
    /// Verdicts since the start of the server.
    pub(super) since_start: VerdictTotals,
}

impl TopSnapshot {
    /// Computes the snapshot; `None` before the first tick.
    pub(super) fn from_history(history: &TickHistory) -> Option<Self> {
        let tick = history.newest()?.clone();
        let (mut bands, mut local, mut micros) = ([0; BANDS.len()], 0, 0);
        let mut durations = LiveHistogram::default();
        for delta in history.last_deltas(RATE_WINDOW_STEPS) {
            bands.iter_mut().zip(delta.bands).for_each(|(sum, more)| *sum += more);
            durations.merge(&delta.durations);
            local += delta.local;
            micros += delta.micros;
        }
        let is_remote = tick.process.servers.is_some();
        let rates =
            |delta: &TickDelta| delta.bands.map(|count| rate_per_second(count, delta.micros));
        Some(Self {
            total: tick.counts.count_outcome("allowed") + tick.counts.count_outcome("refused"),
            refused: share_permille(bands[3] + bands[4], bands.iter().sum()),
            local: share_permille(local, bands.iter().sum()).filter(|_| is_remote),
            bands: bands.map(|count| rate_per_second(count, micros)),
            latencies: QUANTILES.map(|(_, thousandths)| durations.quantile(thousandths)),
            trend: history.last_deltas(MAX_DELTAS).map(rates).collect(),
            rules: tick
                .counts
                .rules
                .iter()
                .map(|rule| RuleActivity::from_history(rule, history))
                .collect(),
            keys: history.keys().to_vec(),
            nodes: history.nodes().to_vec(),
            tick,
        })
    }

    /// The uptime of the server, in seconds.
    pub(super) const fn uptime_seconds(&self) -> u64 {
        self.tick.at_us.saturating_sub(self.tick.process.started_us) / 1_000_000
    }

    /// The error of the store or of the last reload, if any.
    pub(super) fn server_error(&self) -> Option<&str> {
        let status = &self.tick.process.status;
        status.store_error.as_deref().or(status.reload_error.as_deref())
    }

    /// The store and the state of its circuit breakers.
    pub(super) fn store_summary(&self) -> String {
        let process = &self.tick.process;
        let breakers = process.servers.as_ref().map_or(&[][..], |servers| &servers.breakers);
        let mut not_closed = breakers.iter().filter(|breaker| breaker.breaker != "closed");
        let state = match (process.status.store_error.is_some(), not_closed.next()) {
            (_, Some(open)) => format!(", breaker of {} {}", open.server, open.breaker),
            (true, None) => ", down".to_owned(),
            (false, None) if breakers.is_empty() => String::new(),
            (false, None) => ", breaker closed".to_owned(),
        };
        format!("{}{state}", process.store)
    }
}

/// The number of nodes and how many are behind or silent; empty before the first poll.
pub(super) fn describe_nodes(nodes: &[LiveNode]) -> String {
    let count = |is: fn(&LiveNode) -> bool, word: &str| match nodes
        .iter()
        .filter(|node| is(node))
        .count()
    {
        0 => String::new(),
        count => format!(", {count} {word}"),
    };
    let (behind, silent) =
        (count(|node| node.behind, "behind"), count(|node| node.silent, "silent"));
    match nodes.len() {
        0 => String::new(),
        1 => format!("1 node{behind}{silent}"),
        all => format!("{all} nodes{behind}{silent}"),
    }
}

impl RuleActivity {
    /// The rule's mode, or `disabled`.
    pub(super) fn mode_or_disabled(&self) -> &str {
        if self.is_active { &self.mode } else { "disabled" }
    }

    fn from_history(rule: &LiveRule, history: &TickHistory) -> Self {
        let (mut verdicts, mut headroom, mut micros) =
            (VerdictTotals::default(), LiveHistogram::default(), 0);
        let mut trend = Vec::new();
        for delta in history.last_deltas(RULE_WINDOW_STEPS) {
            let Some(of_rule) = delta.rules.get(&rule.id) else {
                continue;
            };
            verdicts = verdicts.plus(of_rule.verdicts);
            headroom.merge(&of_rule.headroom);
            micros += delta.micros;
            let rate = |count| rate_per_second(count, delta.micros);
            trend.push((rate(of_rule.verdicts.decisions()), rate(of_rule.verdicts.refused())));
        }
        let divided = history.newest().and_then(|tick| tick.divided_rule(&rule.id));
        let samples = headroom.count();
        let near_limit = headroom.bounds.iter().zip(&headroom.counts);
        let near_limit = near_limit
            .filter(|(bound, _)| **bound <= NEAR_LIMIT_PERCENT)
            .map(|(_, count)| *count)
            .sum();
        Self {
            id: rule.id.clone(),
            endpoint: rule.endpoint.clone(),
            mode: rule.mode.clone(),
            consistency: rule.consistency.clone(),
            is_active: rule.is_active,
            requests: rate_per_second(verdicts.decisions(), micros),
            refused: rate_per_second(verdicts.refused(), micros),
            share: share_permille(verdicts.refused(), verdicts.decisions()),
            used: share_permille(headroom.sum, samples * 100).map(|left| 1_000 - left),
            near_limit: share_permille(near_limit, samples),
            max_in_window: rule.max_in_window,
            region_share: divided.and_then(|divided| divided.share.clone()),
            borrowed: divided.and_then(LiveDividedRule::borrowed),
            lent: divided.and_then(LiveDividedRule::lent),
            trend,
            since_start: rule.verdicts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_types::{
        LiveBreaker, LiveLentUnits, LiveRegions, LiveServers, OutcomeCount,
    };
    use super::super::fixtures::{sample_rule, sample_tick};
    use super::*;

    /// Two ticks, two seconds apart, between which a rule allowed one request and refused three.
    fn two_tick_history() -> TickHistory {
        let (mut before, mut after) = (sample_tick(1_000_000, 1, 0), sample_tick(3_000_000, 2, 3));
        let verdicts = VerdictTotals { allow: 1, ..VerdictTotals::default() };
        before.counts.rules = vec![sample_rule("a", verdicts)];
        after.counts.rules =
            vec![sample_rule("a", VerdictTotals { allow: 2, deny: 3, ..verdicts })];
        after.counts.rules[0].headroom_percent.counts = vec![4, 0, 1, 0];
        after.counts.rules[0].headroom_percent.sum = 50;
        after.counts.duration_us.counts = vec![4, 0, 0];
        let mut history = TickHistory::default();
        history.push_tick(before);
        history.push_tick(after);
        history
    }

    #[test]
    fn rates_use_deltas_not_totals() {
        let snapshot = TopSnapshot::from_history(&two_tick_history()).unwrap();
        assert_eq!(snapshot.total, 5);
        assert_eq!(snapshot.bands, [500, 0, 0, 1_500, 0]);
        assert_eq!((snapshot.refused, snapshot.uptime_seconds()), (Some(750), 3));
        assert_eq!(snapshot.latencies, [Some(2_500), Some(4_500), Some(4_950)]);
        let row = &snapshot.rules[0];
        assert_eq!((row.requests, row.refused, row.share), (2_000, 1_500, Some(750)));
        assert_eq!((row.used, row.near_limit), (Some(875), Some(750)));
        assert_eq!(row.trend, [(2_000, 1_500)]);
        assert_eq!(row.since_start.decisions(), 5);
    }

    #[test]
    fn divided_rule_shows_share_borrowed_and_lent() {
        let mut history = two_tick_history();
        let mut now = history.newest().unwrap().clone();
        now.at_us += 1_000_000;
        let divided = |lent: &[(&str, u64, u64)]| {
            let units = |(region, granted, returned): &(&str, u64, u64)| {
                ((*region).to_owned(), LiveLentUnits { granted: *granted, returned: *returned })
            };
            let share = Some("50%".to_owned());
            let lent = lent.iter().map(units).collect();
            LiveDividedRule { share, granted: 9, spent: 7, lent }
        };
        let row = |history: &TickHistory| {
            let snapshot = TopSnapshot::from_history(history).unwrap();
            let RuleActivity { region_share, borrowed, lent, .. } = snapshot.rules[0].clone();
            (region_share, borrowed, lent)
        };
        assert_eq!(row(&history), (None, None, None));
        let mut regions = LiveRegions {
            region: "eu".to_owned(),
            lenders: Vec::new(),
            rules: [("a".to_owned(), divided(&[("us", 20, 5), ("ap", 3, 0)]))].into(),
        };
        now.process.regions = Some(regions.clone());
        history.push_tick(now.clone());
        assert_eq!(row(&history), (Some("50%".to_owned()), Some(7), Some(18)));
        let unused = LiveDividedRule { granted: 0, spent: 0, ..divided(&[]) };
        regions.rules.insert("a".to_owned(), unused);
        (now.process.regions, now.at_us) = (Some(regions), now.at_us + 1_000_000);
        history.push_tick(now);
        assert_eq!(row(&history), (Some("50%".to_owned()), None, None));
    }

    #[test]
    fn local_share_needs_remote_store() {
        let mut history = two_tick_history();
        let mut now = history.newest().unwrap().clone();
        now.at_us += 1_000_000;
        now.process.servers = Some(LiveServers { breakers: Vec::new() });
        let local = ["lease", "async", "borrowed", "deny_cache", "fallback"].map(|by| {
            OutcomeCount { answered_by: by.to_owned(), outcome: "allowed".to_owned(), count: 5 }
        });
        now.counts.decisions.extend(local);
        assert_eq!(TopSnapshot::from_history(&history).unwrap().local, None);
        history.push_tick(now);
        let snapshot = TopSnapshot::from_history(&history).unwrap();
        assert_eq!(snapshot.local, Some(689), "20 of the 29 decisions of both steps");
    }

    #[test]
    fn rates_need_two_ticks() {
        assert!(TopSnapshot::from_history(&TickHistory::default()).is_none());
        let mut history = TickHistory::default();
        let mut first = sample_tick(1_000_000, 4, 4);
        first.counts.rules =
            vec![sample_rule("a", VerdictTotals { allow: 8, ..VerdictTotals::default() })];
        history.push_tick(first);
        let snapshot = TopSnapshot::from_history(&history).unwrap();
        assert_eq!((snapshot.total, snapshot.bands, snapshot.refused), (8, [0; 5], None));
        assert_eq!((snapshot.rules[0].requests, snapshot.rules[0].used), (0, None));
    }

    #[test]
    fn node_summary_counts_behind_and_silent() {
        let node = |behind, silent| LiveNode { name: "n".to_owned(), version: 1, behind, silent };
        assert_eq!(describe_nodes(&[]), "");
        assert_eq!(describe_nodes(&[node(false, false)]), "1 node");
        let fleet = [node(false, false), node(true, true), node(true, false)];
        assert_eq!(describe_nodes(&fleet), "3 nodes, 2 behind, 1 silent");
    }

    #[test]
    fn store_summary_includes_breaker_state() {
        let mut snapshot = TopSnapshot::from_history(&two_tick_history()).unwrap();
        assert_eq!(snapshot.store_summary(), "memory");
        let breaker = |server: &str, breaker: &str| LiveBreaker {
            server: server.to_owned(),
            breaker: breaker.to_owned(),
        };
        let process = &mut snapshot.tick.process;
        process.store = "redis".to_owned();
        process.servers = Some(LiveServers { breakers: vec![breaker("a:1", "closed")] });
        assert_eq!(snapshot.store_summary(), "redis, breaker closed");
        snapshot.tick.process.status.store_error = Some("it does not answer".to_owned());
        assert_eq!(snapshot.store_summary(), "redis, down");
        assert_eq!(snapshot.server_error(), Some("it does not answer"));
        let servers = vec![breaker("a:1", "closed"), breaker("b:2", "open")];
        snapshot.tick.process.servers = Some(LiveServers { breakers: servers });
        assert_eq!(snapshot.store_summary(), "redis, breaker of b:2 open");
    }
}
