//! What was heard: the newest tick and what happened in the last two minutes. What is shown of it is made in
//! [`super::picture`].

use std::collections::VecDeque;

use super::feed::Asked;
use super::step::Step;
use super::tick::{Key, Node, Tick};

/// How many steps are kept: as many seconds, unless ticks were missed.
pub(super) const STEPS: usize = 120;

/// Ticks that come sooner one after the other say nothing of how much there is in a second.
const SOONEST_US: u64 = 200_000;

/// What was heard of one server.
#[derive(Debug, Default)]
pub(super) struct History {
    newest: Option<Tick>,
    steps: VecDeque<Step>,
    asked: Asked,
}

impl History {
    /// Hears a tick.
    pub(super) fn tick(&mut self, now: Tick) {
        let Some(last) = &self.newest else {
            self.newest = Some(now);
            return;
        };
        // Another process, or the same one started anew: what it counts has begun again.
        if last.process.pid != now.process.pid || last.process.started_us != now.process.started_us
        {
            self.steps.clear();
        } else if now.at_us < last.at_us.saturating_add(SOONEST_US) && now.at_us >= last.at_us {
            return;
        } else if now.at_us > last.at_us {
            self.steps.push_back(Step::between(last, &now));
        }
        while self.steps.len() > STEPS {
            self.steps.pop_front();
        }
        self.newest = Some(now);
    }

    /// Hears what was asked for.
    pub(super) fn asked(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// The newest tick.
    pub(super) const fn newest(&self) -> Option<&Tick> {
        self.newest.as_ref()
    }

    /// The keys that occur most.
    pub(super) fn keys(&self) -> &[Key] {
        &self.asked.keys
    }

    /// Who follows the same rules.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.asked.nodes
    }

    /// The last so many steps, oldest first.
    pub(super) fn last(&self, most: usize) -> impl Iterator<Item = &Step> + Clone {
        self.steps.range(self.steps.len().saturating_sub(most)..)
    }

    /// Whether there is something to tell rates of.
    pub(super) fn is_moving(&self) -> bool {
        !self.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tick;
    use super::*;

    fn decided(history: &History) -> Vec<u64> {
        history.last(STEPS).map(|step| step.bands.iter().sum()).collect()
    }

    #[test]
    fn steps_are_between_ticks_and_the_oldest_go() {
        let mut history = History::default();
        for second in 0..200 {
            history.tick(tick(second * 1_000_000, second * second, 0));
        }
        assert_eq!(decided(&history).len(), STEPS);
        assert_eq!(decided(&history).last(), Some(&(199 * 199 - 198 * 198)));
        assert_eq!(history.last(1).count(), 1);
    }

    #[test]
    fn a_tick_that_comes_at_once_is_counted_with_the_next() {
        let mut history = History::default();
        history.tick(tick(0, 10, 0));
        history.tick(tick(1_000, 11, 0));
        assert!(!history.is_moving());
        history.tick(tick(1_000_000, 30, 0));
        assert_eq!(decided(&history), [20]);
    }

    #[test]
    fn another_process_begins_anew() {
        let mut history = History::default();
        history.tick(tick(0, 10, 0));
        history.tick(tick(1_000_000, 20, 0));
        let mut other = tick(2_000_000, 5, 0);
        other.process.pid = 8;
        history.tick(other.clone());
        assert_eq!(decided(&history), [0_u64; 0]);
        other.at_us += 1_000_000;
        other.counts.decisions[0].count = 9;
        history.tick(other);
        assert_eq!(decided(&history), [4]);
    }

    #[test]
    fn a_clock_that_goes_back_loses_a_step_and_no_more() {
        let mut history = History::default();
        history.tick(tick(5_000_000, 10, 0));
        history.tick(tick(1_000_000, 20, 0));
        history.tick(tick(2_000_000, 23, 0));
        assert_eq!(decided(&history), [3]);
    }
}
