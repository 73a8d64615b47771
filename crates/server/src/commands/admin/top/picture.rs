//! What there is to see at one instant, worked out of what was heard: rates, shares, times and rows. It knows no
//! terminal; who draws it escapes what others wrote.

use super::history::{History, STEPS};
use super::step::{BANDS, RuleStep, Step};
use super::tick::{Distribution, Key, Node, Rule, Tick, Verdicts};
use super::words::{rate_of, share_of};

/// Rates of all decisions are of so many seconds, those of rules of so many, as on the dashboard.
const NOW: usize = 10;
pub(super) const MINUTE: usize = 60;

/// Which times are told: half, nine of ten and ninety-nine of a hundred decisions took no longer.
pub(super) const QUANTILES: [(&str, u64); 3] = [("p50", 500), ("p90", 900), ("p99", 990)];

/// What is left of a limit, in hundredths, when it is nearly used up.
const SCARCE: u64 = 10;

/// What there is to see.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// How the server is, as it told.
    pub(super) tick: Tick,
    /// Decisions since the start.
    pub(super) total: u64,
    /// Decisions by what was said, in thousandths a second.
    pub(super) bands: [u64; BANDS.len()],
    /// The share of those that were refused, in thousandths.
    pub(super) refused: Option<u64>,
    /// As [`QUANTILES`], in nanoseconds.
    pub(super) times: [Option<u64>; QUANTILES.len()],
    /// The same as `bands` in each of the last steps, oldest first.
    pub(super) past: Vec<[u64; BANDS.len()]>,
    pub(super) rules: Vec<RuleRow>,
    pub(super) keys: Vec<Key>,
    pub(super) nodes: Vec<Node>,
}

/// What a rule did in the last minute.
#[derive(Clone, Debug)]
pub(super) struct RuleRow {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) mode: String,
    pub(super) is_active: bool,
    /// In thousandths a second.
    pub(super) asked: u64,
    pub(super) refused: u64,
    /// The share of those refused, in thousandths.
    pub(super) share: Option<u64>,
    /// How much of the limit was used after a decision, on average, in thousandths.
    pub(super) used: Option<u64>,
    /// The share of decisions after which less than a tenth was left, in thousandths.
    pub(super) scarce: Option<u64>,
    pub(super) most_in_window: Option<u64>,
    /// How often it was asked and refused in each second, in thousandths.
    pub(super) past: Vec<(u64, u64)>,
    /// Since the start.
    pub(super) since_start: Verdicts,
}

impl Picture {
    /// What there is to see of what was heard, if anything was.
    pub(super) fn of(history: &History) -> Option<Self> {
        let tick = history.newest()?.clone();
        let (mut bands, mut micros) = ([0; BANDS.len()], 0);
        let mut durations = Distribution::default();
        for step in history.last(NOW) {
            bands.iter_mut().zip(step.bands).for_each(|(sum, more)| *sum += more);
            durations.add(&step.durations);
            micros += step.micros;
        }
        let rates = |step: &Step| step.bands.map(|count| rate_of(count, step.micros));
        Some(Self {
            total: tick.counts.decided("allowed") + tick.counts.decided("refused"),
            refused: share_of(bands[3] + bands[4], bands.iter().sum()),
            bands: bands.map(|count| rate_of(count, micros)),
            times: QUANTILES.map(|(_, thousandths)| durations.quantile(thousandths)),
            past: history.last(STEPS).map(rates).collect(),
            rules: tick.counts.rules.iter().map(|rule| RuleRow::of(rule, history)).collect(),
            keys: history.keys().to_vec(),
            nodes: history.nodes().to_vec(),
            tick,
        })
    }

    /// For how many seconds the server runs.
    pub(super) const fn up(&self) -> u64 {
        self.tick.at_us.saturating_sub(self.tick.process.started_us) / 1_000_000
    }

    /// What is wrong with the server, if something is.
    pub(super) fn trouble(&self) -> Option<&str> {
        let status = &self.tick.process.status;
        status.store_error.as_deref().or(status.reload_error.as_deref())
    }

    /// The store and what its breakers are at, in words.
    pub(super) fn store(&self) -> String {
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
pub(super) fn in_words(nodes: &[Node]) -> String {
    let count =
        |is: fn(&Node) -> bool, word: &str| match nodes.iter().filter(|node| is(node)).count() {
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

impl RuleRow {
    /// Its mode, or that it is switched off.
    pub(super) fn state(&self) -> &str {
        if self.is_active { &self.mode } else { "disabled" }
    }

    fn of(rule: &Rule, history: &History) -> Self {
        let (mut verdicts, mut headroom, mut micros) =
            (Verdicts::default(), Distribution::default(), 0);
        let mut past = Vec::new();
        for step in history.last(MINUTE) {
            let Some(RuleStep { verdicts: said, headroom: left }) = step.rules.get(&rule.id) else {
                continue;
            };
            verdicts = verdicts.and(*said);
            headroom.add(left);
            micros += step.micros;
            let rate = |count| rate_of(count, step.micros);
            past.push((rate(said.asked()), rate(said.refused())));
        }
        let read = headroom.count();
        let scarce = headroom.bounds.iter().zip(&headroom.counts);
        let scarce = scarce.filter(|(bound, _)| **bound <= SCARCE).map(|(_, count)| *count).sum();
        Self {
            id: rule.id.clone(),
            endpoint: rule.endpoint.clone(),
            mode: rule.mode.clone(),
            is_active: rule.is_active,
            asked: rate_of(verdicts.asked(), micros),
            refused: rate_of(verdicts.refused(), micros),
            share: share_of(verdicts.refused(), verdicts.asked()),
            used: share_of(headroom.sum, read * 100).map(|left| 1_000 - left),
            scarce: share_of(scarce, read),
            most_in_window: rule.most_in_window,
            past,
            since_start: rule.verdicts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{rule, tick};
    use super::super::tick::{Breaker, Servers};
    use super::*;

    /// Two seconds in which a rule passed one and refused three.
    fn history() -> History {
        let (mut before, mut after) = (tick(1_000_000, 1, 0), tick(3_000_000, 2, 3));
        let said = Verdicts { allow: 1, ..Verdicts::default() };
        before.counts.rules = vec![rule("a", said)];
        after.counts.rules = vec![rule("a", Verdicts { allow: 2, deny: 3, ..said })];
        after.counts.rules[0].headroom_percent.counts = vec![4, 0, 1, 0];
        after.counts.rules[0].headroom_percent.sum = 50;
        after.counts.duration_us.counts = vec![4, 0, 0];
        let mut history = History::default();
        history.tick(before);
        history.tick(after);
        history
    }

    #[test]
    fn rates_shares_and_times_are_of_what_happened_and_not_of_what_is() {
        let picture = Picture::of(&history()).unwrap();
        assert_eq!(picture.total, 5);
        assert_eq!(picture.bands, [500, 0, 0, 1_500, 0]);
        assert_eq!((picture.refused, picture.up()), (Some(750), 3));
        assert_eq!(picture.times, [Some(2_500), Some(4_500), Some(4_950)]);
        let row = &picture.rules[0];
        assert_eq!((row.asked, row.refused, row.share), (2_000, 1_500, Some(750)));
        assert_eq!((row.used, row.scarce), (Some(875), Some(750)));
        assert_eq!(row.past, [(2_000, 1_500)]);
        assert_eq!(row.since_start.asked(), 5);
    }

    #[test]
    fn before_the_second_tick_there_are_no_rates_and_before_the_first_nothing() {
        assert!(Picture::of(&History::default()).is_none());
        let mut history = History::default();
        let mut first = tick(1_000_000, 4, 4);
        first.counts.rules = vec![rule("a", Verdicts { allow: 8, ..Verdicts::default() })];
        history.tick(first);
        let picture = Picture::of(&history).unwrap();
        assert_eq!((picture.total, picture.bands, picture.refused), (8, [0; 5], None));
        assert_eq!((picture.rules[0].asked, picture.rules[0].used), (0, None));
    }

    #[test]
    fn nodes_are_counted_with_those_that_are_not_as_they_should_be() {
        let node = |behind, silent| Node { name: "n".to_owned(), version: 1, behind, silent };
        assert_eq!(in_words(&[]), "");
        assert_eq!(in_words(&[node(false, false)]), "1 node");
        let fleet = [node(false, false), node(true, true), node(true, false)];
        assert_eq!(in_words(&fleet), "3 nodes, 2 behind, 1 silent");
    }

    #[test]
    fn the_store_is_told_with_what_its_breakers_are_at() {
        let mut picture = Picture::of(&history()).unwrap();
        assert_eq!(picture.store(), "memory");
        let breaker = |server: &str, breaker: &str| Breaker {
            server: server.to_owned(),
            breaker: breaker.to_owned(),
        };
        let process = &mut picture.tick.process;
        process.store = "redis".to_owned();
        process.servers = Some(Servers { breakers: vec![breaker("a:1", "closed")] });
        assert_eq!(picture.store(), "redis, breaker closed");
        picture.tick.process.status.store_error = Some("it does not answer".to_owned());
        assert_eq!(picture.store(), "redis, down");
        assert_eq!(picture.trouble(), Some("it does not answer"));
        let servers = vec![breaker("a:1", "closed"), breaker("b:2", "open")];
        picture.tick.process.servers = Some(Servers { breakers: servers });
        assert_eq!(picture.store(), "redis, breaker of b:2 open");
    }
}
