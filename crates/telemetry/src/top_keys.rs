//! Who asks most and who is refused most, by rule, at present: bounded lists with honest errors, and bursts.
//!
//! Only as many keys are kept as a sketch has room for, and only of those who they are. Nothing here is written
//! anywhere: what is on record is in the violations log.

mod burst;
mod heavy_hitters;
mod identity;
mod request_rate;
mod sampler;
mod sketch;

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::key::Fingerprint;
use tidegate_core::time::Timestamp;
use tidegate_limiter::{DecisionEvent, DecisionObserver};
use tidegate_rules::RuleSet;

use crate::metrics::{Exposition, MetricKind, MetricsExporter};
use crate::per_rule::{CarryOver, PerRuleEntry, PerRuleSet, PerRuleTable};
use crate::violation::IdentityPolicy;
pub use burst::BurstEvent;
use burst::BurstLog;
use heavy_hitters::{DetectedBurst, HeavyHitters};
pub use identity::Visibility;
use identity::{IdentityMask, KeyIdentity};
use sampler::AdaptiveSampler;

/// The most decisions that are looked at in an eighth of a second before it is one in four: about 16 000 a second.
const SAMPLE_BUDGET: u32 = 2_048;

/// Keys that a list has room for in each generation.
const SKETCH_CAPACITY: usize = 64;

/// Where there are very many rules, lists are shorter: not more entries than this in all of one kind.
const MAX_SKETCH_ENTRIES: usize = 1 << 16;
const MIN_SKETCH_CAPACITY: usize = 4;

/// Keys that are busiest, or refused most often.
pub struct TopKeys {
    rules: PerRuleSet<TopKeysTable>,
    masks: IdentityMask,
    bursts: Mutex<BurstLog>,
    /// Which decisions are looked at.
    sampler: AdaptiveSampler,
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
    pub visibility: Visibility,
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
struct TopKeysTable {
    serial: u64,
    rows: PerRuleTable<Arc<RuleHeavyHitters>>,
}

/// What is watched for one rule.
struct RuleHeavyHitters {
    refused: HeavyHitters,
    busiest: HeavyHitters,
    bursts: AtomicU64,
}

impl CarryOver for TopKeysTable {
    fn serial(&self) -> u64 {
        self.serial
    }

    fn carry_over(&self, rules: &RuleSet) -> Self {
        let room = (MAX_SKETCH_ENTRIES / rules.rules().len().max(1))
            .clamp(MIN_SKETCH_CAPACITY, SKETCH_CAPACITY);
        let rows = self.rows.carry_over(rules, |_, before| match before {
            Some(known) => Arc::clone(known),
            None => Arc::new(RuleHeavyHitters {
                refused: HeavyHitters::new(room),
                busiest: HeavyHitters::new(room),
                bursts: AtomicU64::new(0),
            }),
        });
        Self { serial: rules.serial(), rows }
    }
}

impl TopKeys {
    /// Nobody was seen yet. `identities` has the secret that API keys are hashed under.
    #[must_use]
    pub fn new(
        identities: IdentityPolicy,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (rules, bursts) = (PerRuleSet::new(TopKeysTable::default()), Mutex::default());
        let masks = IdentityMask::new(identities);
        Self { rules, masks, bursts, sampler: AdaptiveSampler::new(SAMPLE_BUDGET), clock }
    }

    /// The keys that occur most: those refused most first, then the busiest, each list by count.
    #[must_use]
    pub fn query(&self, query: &TopQuery<'_>) -> Vec<TopKey> {
        let now = (self.clock)();
        let table = self.rules.load();
        let rows = table.rows.by_id();
        let asked = |row: &&&Arc<PerRuleEntry<Arc<RuleHeavyHitters>>>| {
            query.rule.is_none_or(|rule| rule == row.id)
        };
        let mut told = Vec::new();
        for kind in [TopKind::Refused, TopKind::Busiest] {
            if query.kind.is_some_and(|asked| asked != kind) {
                continue;
            }
            let mut list = Vec::new();
            for row in rows.iter().filter(asked) {
                list.extend(self.list(kind, row, now, query.visibility));
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
        row: &PerRuleEntry<Arc<RuleHeavyHitters>>,
        now: Timestamp,
        sight: Visibility,
    ) -> impl Iterator<Item = TopKey> {
        let (since, watched) = row.value.for_kind(kind).list(now);
        watched.into_iter().map(move |watched| TopKey {
            kind: kind.name(),
            rule: row.id.clone(),
            key: self.masks.render_key(watched.key, watched.identity.as_deref(), sight),
            who: watched.identity.as_deref().map(|who| who.render(sight)),
            count: watched.count,
            error: watched.error,
            spread: watched.spread,
            since_us: since.as_micros(),
        })
    }

    /// The latest bursts after the one of a number, oldest first. They are kept while there is room.
    #[must_use]
    pub fn bursts(&self, after: u64, sight: Visibility) -> Vec<BurstEvent> {
        self.bursts.lock().list_after(after, &self.masks, sight)
    }

    /// Looks at a decision that stands for so many.
    fn observe(&self, decided: &DecisionEvent<'_, '_>, times: u32) {
        let Some(table) = self.rules.get_or_install(decided.rules) else { return };
        let now = (self.clock)();
        self.sampler.record_sampled(now);
        for (rule, reading, key) in decided.counters() {
            let Some(row) = table.rows.get(rule) else { continue };
            let who = || KeyIdentity::from_decision(decided, rule, &self.masks);
            if let Some(bursting) = row.value.busiest.count(times, now, || key, &who) {
                self.record_burst(row, bursting);
            }
            if reading.verdict.is_violation() {
                row.value.refused.count(times, now, || key, &who);
            }
        }
        // Rules that refuse without counting have no counter, but they have keys.
        let uncounted = decided.indexed_readings().filter(|(_, reading)| reading.numbers.is_none());
        for (rule, _) in uncounted.filter(|(_, reading)| reading.verdict.is_violation()) {
            let Some(row) = table.rows.get(rule) else { continue };
            let who = || KeyIdentity::from_decision(decided, rule, &self.masks);
            row.value.refused.count(times, now, || rule_key(decided, rule), &who);
        }
    }

    #[cold]
    fn record_burst(&self, row: &PerRuleEntry<Arc<RuleHeavyHitters>>, bursting: DetectedBurst) {
        row.value.bursts.fetch_add(1, Ordering::Relaxed);
        self.bursts.lock().push(&row.id, bursting);
    }
}

impl DecisionObserver for TopKeys {
    fn on_rules_installed(&self, rules: &RuleSet) {
        self.rules.install(rules);
    }

    fn on_decision(&self, decided: &DecisionEvent<'_, '_>) {
        if let Some(times) = self.sampler.draw() {
            self.observe(decided, times);
        }
    }
}

fn rule_key(decided: &DecisionEvent<'_, '_>, rule: u32) -> Fingerprint {
    let DecisionEvent { rules, facts, .. } = decided;
    rules.with_enriched_facts(facts, |facts| rules[rule].fingerprint(facts, rules))
}

impl MetricsExporter for TopKeys {
    fn export(&self, to: &mut Exposition) {
        let help = "Keys of a rule whose requests came ten times as fast as before.";
        to.family("tidegate_rule_bursts", MetricKind::Counter, help);
        for row in self.rules.load().rows.by_id() {
            let count = row.value.bursts.load(Ordering::Relaxed);
            to.sample("_total", &[("rule", &row.id)], count);
        }
    }
}

impl RuleHeavyHitters {
    const fn for_kind(&self, kind: TopKind) -> &HeavyHitters {
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
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Refused, Self::Busiest].into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys").finish_non_exhaustive()
    }
}
