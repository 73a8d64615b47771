//! What is counted of decisions: by door, by rule, by verdict, by endpoint pattern, by who answered, how much was
//! left, and how long they took.
//!
//! Labels are rules, never clients, so what is told does not grow with traffic. Counters are kept in stripes,
//! because threads that count into one line wait for each other.

mod counts;
mod durations;
mod export;
mod exposition;
mod striped;
mod table;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::{AnsweredBy, Verdict};
use tidegate_core::time::Timestamp;
use tidegate_engine::{Decided, Observer, Stopwatch};
use tidegate_rules::{Door, RuleSet};

use crate::by_rule::InForce;
pub use counts::{Counts, DecisionCount, Distribution, EndpointCount, RuleCount, VerdictCounts};
pub(crate) use durations::{Bounds, Durations};
pub use exposition::{Exports, Exposition, Kind, Unit};
use striped::Striped;
use table::Table;

const ANSWERED_BY: [AnsweredBy; 3] =
    [AnsweredBy::Store, AnsweredBy::DenyCache, AnsweredBy::Fallback];

const OUTCOMES: [&str; 2] = ["allowed", "refused"];

/// Upper bounds of how long a decision takes, in microseconds.
const DURATION: Bounds =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000];

/// Counts decisions.
pub struct Metrics {
    rules: InForce<Table>,
    decisions: Striped<{ Door::ALL.len() * ANSWERED_BY.len() * OUTCOMES.len() }>,
    durations: Durations,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// One decision in so many is timed.
    timed: u32,
}

impl Metrics {
    /// Nothing was counted yet. As a [`Stopwatch`] it times one decision in `timed` of each thread, by the clock.
    #[must_use]
    pub fn new(timed: u32, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self {
            rules: InForce::new(Table::default()),
            decisions: Striped::new(),
            durations: Durations::new(&DURATION),
            clock,
            timed: timed.max(1),
        }
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let table = self.rules.load();
        Counts {
            decisions: self.decisions(),
            duration_us: self.durations.told(),
            endpoints: table.endpoints(),
            rules: table.rules(),
        }
    }

    fn decisions(&self) -> Vec<DecisionCount> {
        let mut told = Vec::new();
        for door in Door::ALL {
            for by in ANSWERED_BY {
                for (refused, outcome) in OUTCOMES.into_iter().enumerate() {
                    let count = self.decisions.sum(place(door, by, refused == 1));
                    let (door, answered_by) = (door.name(), by.name());
                    told.push(DecisionCount { door, answered_by, outcome, count });
                }
            }
        }
        told
    }
}

impl Observer for Metrics {
    fn installed(&self, rules: &RuleSet) {
        self.rules.follow(rules);
    }

    fn decided(&self, decided: &Decided<'_, '_>) {
        let table = self.rules.of(decided.rules);
        let (mut refused, mut endpoint) = (false, usize::MAX);
        for (at, reading) in decided.places() {
            refused |= reading.verdict.refuses();
            if let Some(table) = table {
                let named = table.count(at, reading.verdict, reading.numbers.as_ref());
                endpoint = endpoint.min(named);
            }
        }
        if let Some(table) = table {
            table.count_request(endpoint, refused);
        }
        let place = place(decided.facts.door(), decided.answered_by, refused);
        self.decisions.add(place, 1);
    }

    fn charged_ad_hoc(&self, door: Door, by: AnsweredBy, verdict: Verdict) {
        self.decisions.add(place(door, by, verdict.refuses()), 1);
    }
}

impl Stopwatch for Metrics {
    fn started(&self) -> Option<Timestamp> {
        thread_local! {
            static UNTIL_TIMED: Cell<u32> = const { Cell::new(0) };
        }
        let timed = UNTIL_TIMED.try_with(|left| match left.get() {
            0 => {
                left.set(self.timed - 1);
                true
            }
            more => {
                left.set(more - 1);
                false
            }
        });
        timed.unwrap_or(false).then(|| (self.clock)())
    }

    fn stopped(&self, started: Timestamp) {
        self.durations.add((self.clock)().since(started).get());
    }
}

/// Where decisions of a kind are counted.
fn place(door: Door, by: AnsweredBy, refused: bool) -> usize {
    let door = Door::ALL.iter().position(|known| *known == door).unwrap_or(0);
    let by = ANSWERED_BY.iter().position(|known| *known == by).unwrap_or(0);
    (door * ANSWERED_BY.len() + by) * OUTCOMES.len() + usize::from(refused)
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
