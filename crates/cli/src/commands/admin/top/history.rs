//! Keeps the newest tick and the differences between ticks of the last two minutes.
//! [`super::snapshot`] computes the numbers to show.

use std::collections::VecDeque;

use super::api_types::{LiveKey, LiveNode, LiveTick};
use super::feed::PolledDetails;
use super::tick_delta::TickDelta;

/// Number of differences kept; one per second, unless ticks were missed.
pub(super) const MAX_DELTAS: usize = 120;

/// Minimum time between ticks; a shorter interval gives no useful rate per second.
const MIN_TICK_GAP_US: u64 = 200_000;

/// The data received from one server.
#[derive(Debug, Default)]
pub(super) struct TickHistory {
    newest: Option<LiveTick>,
    deltas: VecDeque<TickDelta>,
    details: PolledDetails,
}

impl TickHistory {
    /// Records a tick.
    pub(super) fn push_tick(&mut self, now: LiveTick) {
        let Some(last) = &self.newest else {
            self.newest = Some(now);
            return;
        };
        // The server was restarted, so its counts restarted at 0.
        if last.process.pid != now.process.pid || last.process.started_us != now.process.started_us
        {
            self.deltas.clear();
        } else if now.at_us < last.at_us.saturating_add(MIN_TICK_GAP_US) && now.at_us >= last.at_us
        {
            return;
        } else if now.at_us > last.at_us {
            self.deltas.push_back(TickDelta::from_ticks(last, &now));
        }
        while self.deltas.len() > MAX_DELTAS {
            self.deltas.pop_front();
        }
        self.newest = Some(now);
    }

    /// Replaces keys and nodes.
    pub(super) fn set_details(&mut self, details: PolledDetails) {
        self.details = details;
    }

    /// The newest tick.
    pub(super) const fn newest(&self) -> Option<&LiveTick> {
        self.newest.as_ref()
    }

    /// The most frequent keys.
    pub(super) fn keys(&self) -> &[LiveKey] {
        &self.details.keys
    }

    /// The nodes that use the same rules.
    pub(super) fn nodes(&self) -> &[LiveNode] {
        &self.details.nodes
    }

    /// The last `most` differences, oldest first.
    pub(super) fn last_deltas(&self, most: usize) -> impl Iterator<Item = &TickDelta> + Clone {
        self.deltas.range(self.deltas.len().saturating_sub(most)..)
    }

    /// Whether rates can be computed.
    pub(super) fn has_rates(&self) -> bool {
        !self.deltas.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::sample_tick;
    use super::*;

    fn decisions_per_delta(history: &TickHistory) -> Vec<u64> {
        history.last_deltas(MAX_DELTAS).map(|delta| delta.bands.iter().sum()).collect()
    }

    #[test]
    fn oldest_delta_is_dropped_when_full() {
        let mut history = TickHistory::default();
        for second in 0..200 {
            history.push_tick(sample_tick(second * 1_000_000, second * second, 0));
        }
        assert_eq!(decisions_per_delta(&history).len(), MAX_DELTAS);
        assert_eq!(decisions_per_delta(&history).last(), Some(&(199 * 199 - 198 * 198)));
        assert_eq!(history.last_deltas(1).count(), 1);
    }

    #[test]
    fn early_tick_merges_into_next() {
        let mut history = TickHistory::default();
        history.push_tick(sample_tick(0, 10, 0));
        history.push_tick(sample_tick(1_000, 11, 0));
        assert!(!history.has_rates());
        history.push_tick(sample_tick(1_000_000, 30, 0));
        assert_eq!(decisions_per_delta(&history), [20]);
    }

    #[test]
    fn new_process_resets_history() {
        let mut history = TickHistory::default();
        history.push_tick(sample_tick(0, 10, 0));
        history.push_tick(sample_tick(1_000_000, 20, 0));
        let mut other = sample_tick(2_000_000, 5, 0);
        other.process.pid = 8;
        history.push_tick(other.clone());
        assert_eq!(decisions_per_delta(&history), [0_u64; 0]);
        other.at_us += 1_000_000;
        other.counts.decisions[0].count = 9;
        history.push_tick(other);
        assert_eq!(decisions_per_delta(&history), [4]);
    }

    #[test]
    fn backward_clock_loses_one_delta() {
        let mut history = TickHistory::default();
        history.push_tick(sample_tick(5_000_000, 10, 0));
        history.push_tick(sample_tick(1_000_000, 20, 0));
        history.push_tick(sample_tick(2_000_000, 23, 0));
        assert_eq!(decisions_per_delta(&history), [3]);
    }
}
