//! Who asks most and who is refused most, by rule, at present: bounded lists with honest errors, and bursts.
//!
//! Only as many keys are kept as a sketch has room for, and only of those who they are. Nothing here is written
//! anywhere: what is on record is in the violations log.

mod burst;
mod pace;
mod sample;
mod sketch;
mod watch;
mod who;

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;
use tidegate_engine::{Decided, Observer};
use tidegate_rules::RuleSet;

use crate::by_rule::{Follows, InForce, Row, Rows};
use crate::metrics::{Exports, Exposition, Kind as MetricKind};
use crate::violation::Identities;
pub use burst::Burst;
use burst::Bursts;
use sample::Sample;
use watch::{Bursting, Watch};
pub use who::Sight;
use who::{Veil, Who};

/// The most decisions that are looked at in an eighth of a second before it is one in four: about 16 000 a second.
const BUDGET: u32 = 2_048;

/// Keys that a list has room for in each generation.
const ROOM: usize = 64;

/// Where there are very many rules, lists are shorter: not more entries than this in all of one kind.
const ENTRIES: usize = 1 << 16;
const LEAST_ROOM: usize = 4;

/// Keys that are busiest, or refused most often.
pub struct Top {
    rules: InForce<Table>,
    identities: Identities,
    veil: Veil,
    bursts: Mutex<Bursts>,
    /// Which decisions are looked at.
    sample: Sample,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// What a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKind {
    /// Requests that a rule refused, or would have in shadow.
    Refused,
    /// Requests that a rule governs.
    Busiest,
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug)]
pub struct TopQuery<'q> {
    /// Those of one list; both where it does not say.
    pub kind: Option<TopKind>,
    /// By one rule; by all where it does not say.
    pub rule: Option<&'q str>,
    /// At most so many of each list.
    pub limit: usize,
    /// What is shown of them.
    pub sight: Sight,
}

/// A key, and how often it occurred in the last one to two minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopKey {
    /// Which list it is of.
    pub kind: &'static str,
    /// The rule.
    pub rule: String,
    /// The key's fingerprint, or a hash of it where that must not be seen.
    pub key: String,
    /// Who it is, such as `ip=192.0.2.7`; none for one that was seen only once among very many.
    pub who: Option<String>,
    /// How often it occurred, at most.
    pub count: u64,
    /// By how much that may be too high; it is at least the difference.
    pub error: u64,
    /// Where there was no time to look at all: twice the standard deviation of both.
    pub spread: u64,
    /// Since when it is counted, in microseconds.
    pub since_us: u64,
}

#[derive(Default)]
struct Table {
    serial: u64,
    rows: Rows<Arc<Watches>>,
}

/// What is watched for one rule.
struct Watches {
    refused: Watch,
    busiest: Watch,
    bursts: AtomicU64,
}

impl Follows for Table {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn following(&self, rules: &RuleSet) -> Self {
        let room = (ENTRIES / rules.rules().len().max(1)).clamp(LEAST_ROOM, ROOM);
        let rows = self.rows.following(rules, |_, before| match before {
            Some(known) => Arc::clone(known),
            None => Arc::new(Watches {
                refused: Watch::new(room),
                busiest: Watch::new(room),
                bursts: AtomicU64::new(0),
            }),
        });
        Self { serial: rules.serial(), rows }
    }
}

impl Top {
    /// Nobody was seen yet. `identities` has the secret that API keys are hashed under.
    #[must_use]
    pub fn new(identities: Identities, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        let (rules, bursts) = (InForce::new(Table::default()), Mutex::default());
        Self { rules, identities, veil: Veil::new(), bursts, sample: Sample::new(BUDGET), clock }
    }

    /// The keys that occur most: those refused most first, then the busiest, each list by count.
    #[must_use]
    pub fn told(&self, query: &TopQuery<'_>) -> Vec<TopKey> {
        let now = (self.clock)();
        let table = self.rules.load();
        let rows = table.rows.by_id();
        let asked = |row: &&&Arc<Row<Arc<Watches>>>| query.rule.is_none_or(|rule| rule == row.id);
        let mut told = Vec::new();
        for kind in [TopKind::Refused, TopKind::Busiest] {
            if query.kind.is_some_and(|asked| asked != kind) {
                continue;
            }
            let mut list = Vec::new();
            for row in rows.iter().filter(asked) {
                list.extend(self.list(kind, row, now, query.sight));
            }
            list.sort_by_key(|key: &TopKey| Reverse(key.count));
            list.truncate(query.limit);
            told.extend(list);
        }
        told
    }

    fn list(
        &self,
        kind: TopKind,
        row: &Row<Arc<Watches>>,
        now: Timestamp,
        sight: Sight,
    ) -> impl Iterator<Item = TopKey> {
        let (since, watched) = row.kept.watch(kind).told(now);
        watched.into_iter().map(move |watched| TopKey {
            kind: kind.name(),
            rule: row.id.clone(),
            key: self.veil.key(watched.key, watched.who.as_deref(), sight),
            who: watched.who.as_deref().map(|who| self.veil.who(who, sight)),
            count: watched.count,
            error: watched.error,
            spread: watched.spread,
            since_us: since.as_micros(),
        })
    }

    /// The latest bursts after the one of a number, oldest first. They are kept while there is room.
    #[must_use]
    pub fn bursts(&self, after: u64, sight: Sight) -> Vec<Burst> {
        self.bursts.lock().told(after, self.veil, sight)
    }

    /// Looks at a decision that stands for so many.
    fn look(&self, decided: &Decided<'_, '_>, times: u32) {
        let Some(table) = self.rules.of(decided.rules) else { return };
        let now = (self.clock)();
        self.sample.looked_at(now);
        for (rule, reading, key) in decided.counters() {
            let Some(row) = table.rows.get(rule) else { continue };
            let who = || Who::of(decided, rule, &self.identities);
            if let Some(bursting) = row.kept.busiest.count(times, now, || key, &who) {
                self.burst(row, bursting);
            }
            if reading.verdict.is_violation() {
                row.kept.refused.count(times, now, || key, &who);
            }
        }
        // Rules that refuse without counting have no counter, but they have keys.
        let uncounted = decided.places().filter(|(_, reading)| reading.numbers.is_none());
        for (rule, _) in uncounted.filter(|(_, reading)| reading.verdict.is_violation()) {
            let Some(row) = table.rows.get(rule) else { continue };
            let who = || Who::of(decided, rule, &self.identities);
            row.kept.refused.count(times, now, || key_of(decided, rule), &who);
        }
    }

    #[cold]
    fn burst(&self, row: &Row<Arc<Watches>>, bursting: Bursting) {
        row.kept.bursts.fetch_add(1, Ordering::Relaxed);
        self.bursts.lock().put(&row.id, bursting);
    }
}

impl Observer for Top {
    fn installed(&self, rules: &RuleSet) {
        self.rules.follow(rules);
    }

    fn decided(&self, decided: &Decided<'_, '_>) {
        if let Some(times) = self.sample.draw() {
            self.look(decided, times);
        }
    }
}

fn key_of(decided: &Decided<'_, '_>, rule: u32) -> Fingerprint {
    let Decided { rules, facts, .. } = decided;
    rules.completing(facts, |facts| rules[rule].fingerprint(facts, rules))
}

impl Exports for Top {
    fn export(&self, to: &mut Exposition) {
        let help = "Keys of a rule whose requests came ten times as fast as before.";
        to.family("tidegate_rule_bursts", MetricKind::Counter, help);
        for row in self.rules.load().rows.by_id() {
            let count = row.kept.bursts.load(Ordering::Relaxed);
            to.sample("_total", &[("rule", &row.id)], count);
        }
    }
}

impl Watches {
    const fn watch(&self, kind: TopKind) -> &Watch {
        match kind {
            TopKind::Refused => &self.refused,
            TopKind::Busiest => &self.busiest,
        }
    }
}

impl TopKind {
    /// The name in what is told.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Busiest => "busiest",
        }
    }

    /// The list of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Refused, Self::Busiest].into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Debug for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Top").finish_non_exhaustive()
    }
}
