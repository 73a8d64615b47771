//! What there is to see at one instant, worked out of what was heard: rates, shares, times and rows. It knows no
//! terminal; who draws it escapes what others wrote.

use super::api_types::{LiveHistogram, LiveKey, LiveNode, LiveRule, LiveTick, VerdictTotals};
use super::formatting::{rate_per_second, share_permille};
use super::history::{MAX_DELTAS, TickHistory};
use super::tick_delta::{BANDS, RuleDelta, TickDelta};

/// Rates of all decisions are of so many seconds, those of rules of so many, as on the dashboard.
const RATE_WINDOW_STEPS: usize = 10;
pub(super) const RULE_WINDOW_STEPS: usize = 60;

/// Which times are told: half, nine of ten and ninety-nine of a hundred decisions took no longer.
pub(super) const QUANTILES: [(&str, u64); 3] = [("p50", 500), ("p90", 900), ("p99", 990)];

/// What is left of a limit, in hundredths, when it is nearly used up.
const NEAR_LIMIT_PERCENT: u64 = 10;

/// What there is to see.
#[derive(Clone, Debug)]
pub(super) struct TopSnapshot {
    /// How the server is, as it told.
    pub(super) tick: LiveTick,
    /// Decisions since the start.
    pub(super) total: u64,
    /// Decisions by what was said, in thousandths a second.
    pub(super) bands: [u64; BANDS.len()],
    /// The share of those that were refused, in thousandths.
    pub(super) refused: Option<u64>,
    /// As [`QUANTILES`], in nanoseconds.
    pub(super) latencies: [Option<u64>; QUANTILES.len()],
    /// The same as `bands` in each of the last steps, oldest first.
    pub(super) trend: Vec<[u64; BANDS.len()]>,
    pub(super) rules: Vec<RuleActivity>,
    pub(super) keys: Vec<LiveKey>,
    pub(super) nodes: Vec<LiveNode>,
}

/// What a rule did in the last minute.
#[derive(Clone, Debug)]
pub(super) struct RuleActivity {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) mode: String,
    pub(super) is_active: bool,
    /// In thousandths a second.
    pub(super) requests: u64,
    pub(super) refused: u64,
    /// The share of those refused, in thousandths.
    pub(super) share: Option<u64>,
    /// How much of the limit was used after a decision, on average, in thousandths.
    pub(super) used: Option<u64>,
    /// The share of decisions after which less than a tenth was left, in thousandths.
    pub(super) near_limit: Option<u64>,
    pub(super) most_in_window: Option<u64>,
    /// How often it was asked and refused in each second, in thousandths.
    pub(super) trend: Vec<(u64, u64)>,
    /// Since the start.
    pub(super) since_start: VerdictTotals,
}

impl TopSnapshot {
    /// What there is to see of what was heard, if anything was.
    pub(super) fn from_history(history: &TickHistory) -> Option<Self> {
        let tick = history.newest()?.clone();
        let (mut bands, mut micros) = ([0; BANDS.len()], 0);
        let mut durations = LiveHistogram::default();
        for step in history.last_deltas(RATE_WINDOW_STEPS) {
            bands.iter_mut().zip(step.bands).for_each(|(sum, more)| *sum += more);
            durations.merge(&step.durations);
            micros += step.micros;
        }
        let rates = |step: &TickDelta| step.bands.map(|count| rate_per_second(count, step.micros));
        Some(Self {
            total: tick.counts.count_outcome("allowed") + tick.counts.count_outcome("refused"),
            refused: share_permille(bands[3] + bands[4], bands.iter().sum()),
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

    /// For how many seconds the server runs.
    pub(super) const fn uptime_seconds(&self) -> u64 {
        self.tick.at_us.saturating_sub(self.tick.process.started_us) / 1_000_000
    }

    /// What is wrong with the server, if something is.
    pub(super) fn server_error(&self) -> Option<&str> {
        let status = &self.tick.process.status;
        status.store_error.as_deref().or(status.reload_error.as_deref())
    }

    /// The store and what its breakers are at, in words.
    pub(super) fn store_summary(&self) -> String {
        let process = &self.tick.process;
        let breakers = process.servers.as_ref().map_or(&[][..], |servers| &servers.breakers);
        let mut not_closed = breakers.iter().filter(|one| one.breaker != "closed");
        let state = match (process.status.store_error.is_some(), not_closed.next()) {
            (_, Some(one)) => format!(", breaker of {} {}", one.server, one.breaker),
            (true, None) => ", down".to_owned(),
            (false, None) if breakers.is_empty() => String::new(),
            (false, None) => ", breaker closed".to_owned(),
        };
        format!("{}{state}", process.store)
    }
}

/// How many nodes there are and how they are, in words; nothing where nobody asked yet.
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
    /// Its mode, or that it is switched off.
    pub(super) fn mode_or_disabled(&self) -> &str {
        if self.is_active { &self.mode } else { "disabled" }
    }

    fn from_history(rule: &LiveRule, history: &TickHistory) -> Self {
        let (mut verdicts, mut headroom, mut micros) =
            (VerdictTotals::default(), LiveHistogram::default(), 0);
        let mut trend = Vec::new();
        for step in history.last_deltas(RULE_WINDOW_STEPS) {
            let Some(RuleDelta { verdicts: said, headroom: left }) = step.rules.get(&rule.id)
            else {
                continue;
            };
            verdicts = verdicts.plus(*said);
            headroom.merge(left);
            micros += step.micros;
            let rate = |count| rate_per_second(count, step.micros);
            trend.push((rate(said.decisions()), rate(said.refused())));
        }
        let read = headroom.count();
        let scarce = headroom.bounds.iter().zip(&headroom.counts);
        let scarce = scarce
            .filter(|(bound, _)| **bound <= NEAR_LIMIT_PERCENT)
            .map(|(_, count)| *count)
            .sum();
        Self {
            id: rule.id.clone(),
            endpoint: rule.endpoint.clone(),
            mode: rule.mode.clone(),
            is_active: rule.is_active,
            requests: rate_per_second(verdicts.decisions(), micros),
            refused: rate_per_second(verdicts.refused(), micros),
            share: share_permille(verdicts.refused(), verdicts.decisions()),
            used: share_permille(headroom.sum, read * 100).map(|left| 1_000 - left),
            near_limit: share_permille(scarce, read),
            most_in_window: rule.most_in_window,
            trend,
            since_start: rule.verdicts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_types::{LiveBreaker, LiveServers};
    use super::super::fixtures::{sample_rule, sample_tick};
    use super::*;

    /// Two seconds in which a rule passed one and refused three.
    fn two_tick_history() -> TickHistory {
        let (mut before, mut after) = (sample_tick(1_000_000, 1, 0), sample_tick(3_000_000, 2, 3));
        let said = VerdictTotals { allow: 1, ..VerdictTotals::default() };
        before.counts.rules = vec![sample_rule("a", said)];
        after.counts.rules = vec![sample_rule("a", VerdictTotals { allow: 2, deny: 3, ..said })];
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
        let picture = TopSnapshot::from_history(&two_tick_history()).unwrap();
        assert_eq!(picture.total, 5);
        assert_eq!(picture.bands, [500, 0, 0, 1_500, 0]);
        assert_eq!((picture.refused, picture.uptime_seconds()), (Some(750), 3));
        assert_eq!(picture.latencies, [Some(2_500), Some(4_500), Some(4_950)]);
        let row = &picture.rules[0];
        assert_eq!((row.requests, row.refused, row.share), (2_000, 1_500, Some(750)));
        assert_eq!((row.used, row.near_limit), (Some(875), Some(750)));
        assert_eq!(row.trend, [(2_000, 1_500)]);
        assert_eq!(row.since_start.decisions(), 5);
    }

    #[test]
    fn rates_need_two_ticks() {
        assert!(TopSnapshot::from_history(&TickHistory::default()).is_none());
        let mut history = TickHistory::default();
        let mut first = sample_tick(1_000_000, 4, 4);
        first.counts.rules =
            vec![sample_rule("a", VerdictTotals { allow: 8, ..VerdictTotals::default() })];
        history.push_tick(first);
        let picture = TopSnapshot::from_history(&history).unwrap();
        assert_eq!((picture.total, picture.bands, picture.refused), (8, [0; 5], None));
        assert_eq!((picture.rules[0].requests, picture.rules[0].used), (0, None));
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
        let mut picture = TopSnapshot::from_history(&two_tick_history()).unwrap();
        assert_eq!(picture.store_summary(), "memory");
        let breaker = |server: &str, breaker: &str| LiveBreaker {
            server: server.to_owned(),
            breaker: breaker.to_owned(),
        };
        let process = &mut picture.tick.process;
        process.store = "redis".to_owned();
        process.servers = Some(LiveServers { breakers: vec![breaker("a:1", "closed")] });
        assert_eq!(picture.store_summary(), "redis, breaker closed");
        picture.tick.process.status.store_error = Some("it does not answer".to_owned());
        assert_eq!(picture.store_summary(), "redis, down");
        assert_eq!(picture.server_error(), Some("it does not answer"));
        let servers = vec![breaker("a:1", "closed"), breaker("b:2", "open")];
        picture.tick.process.servers = Some(LiveServers { breakers: servers });
        assert_eq!(picture.store_summary(), "redis, breaker of b:2 open");
    }
}
