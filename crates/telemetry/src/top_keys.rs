//! Top keys: the busiest and the most refused keys of each rule in the last one to two minutes,
//! with bounds on the counting error; and keys whose request rate bursts.
//!
//! Memory is bounded: a sketch has a fixed number of keys, and a key's identity is kept only while
//! the key is in the sketch. Nothing is persisted; that is the purpose of the violation log.

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
use tidegate_limiter::{CounterReading, DecisionEvent, DecisionObserver};
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

/// Number of decisions sampled in an eighth of a second before only one in four is sampled: about
/// 16 000 a second.
const SAMPLE_BUDGET: u32 = 2_048;

/// Number of keys in a sketch, for each generation.
const SKETCH_CAPACITY: usize = 64;

/// Maximum number of entries in all sketches of one kind. With very many rules, each sketch is
/// smaller.
const MAX_SKETCH_ENTRIES: usize = 1 << 16;
const MIN_SKETCH_CAPACITY: usize = 4;

/// Tracks the busiest and the most refused keys.
pub struct TopKeys {
    rules: PerRuleSet<TopKeysTable>,
    masks: IdentityMask,
    bursts: Mutex<BurstLog>,
    /// Selects the decisions to look at.
    sampler: AdaptiveSampler,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// What a list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKind {
    /// Requests that a rule refused, or would have refused outside of shadow mode.
    Refused,
    /// Requests that a rule matches.
    Busiest,
}

/// Selects the keys that a query returns.
#[derive(Clone, Copy, Debug)]
pub struct TopQuery<'q> {
    /// Only this list; both if `None`.
    pub kind: Option<TopKind>,
    /// Only the rule with this ID; all rules if `None`.
    pub rule: Option<&'q str>,
    /// Maximum number of keys in each list.
    pub limit: usize,
    /// How identities are shown.
    pub visibility: Visibility,
}

/// A key, and how often it occurred in the last one to two minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopKey {
    /// The list: `refused` or `busiest`.
    pub kind: &'static str,
    /// The rule's ID.
    pub rule: String,
    /// The key's fingerprint, or a hash of it if the caller may not see the fingerprint.
    pub key: String,
    /// The client, such as `ip=192.0.2.7`; `None` for a key that was seen only once among very
    /// many.
    pub client: Option<String>,
    /// Upper bound of the number of occurrences.
    pub count: u64,
    /// Maximum error of `count`; `count - error` is a lower bound.
    pub error: u64,
    /// Twice the standard deviation of both bounds if decisions were sampled; 0 if all were
    /// counted.
    pub spread: u64,
    /// Start of the counting period, in microseconds since the Unix epoch.
    pub since_us: u64,
}

#[derive(Default)]
struct TopKeysTable {
    serial: u64,
    rows: PerRuleTable<Arc<RuleHeavyHitters>>,
}

/// The sketches of one rule.
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
        let capacity = (MAX_SKETCH_ENTRIES / rules.rules().len().max(1))
            .clamp(MIN_SKETCH_CAPACITY, SKETCH_CAPACITY);
        let rows = self.rows.carry_over(rules, |_, before| match before {
            Some(known) => Arc::clone(known),
            None => Arc::new(RuleHeavyHitters {
                refused: HeavyHitters::new(capacity),
                busiest: HeavyHitters::new(capacity),
                bursts: AtomicU64::new(0),
            }),
        });
        Self { serial: rules.serial(), rows }
    }
}

impl TopKeys {
    /// Creates empty lists. `identities` holds the secret for hashing API keys.
    #[must_use]
    pub fn new(
        identities: IdentityPolicy,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (rules, bursts) = (PerRuleSet::new(TopKeysTable::default()), Mutex::default());
        let masks = IdentityMask::new(identities);
        Self { rules, masks, bursts, sampler: AdaptiveSampler::new(SAMPLE_BUDGET), clock }
    }

    /// The top keys: first the list of refused keys, then the busiest, each in descending order.
    #[must_use]
    pub fn query(&self, query: &TopQuery<'_>) -> Vec<TopKey> {
        let now = (self.clock)();
        let table = self.rules.load();
        let rows = table.rows.by_id();
        let matches = |row: &&&Arc<PerRuleEntry<Arc<RuleHeavyHitters>>>| {
            query.rule.is_none_or(|rule| rule == row.id)
        };
        let mut keys = Vec::new();
        for kind in [TopKind::Refused, TopKind::Busiest] {
            if query.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            let mut list = Vec::new();
            for row in rows.iter().filter(matches) {
                list.extend(self.list(kind, row, now, query.visibility));
            }
            list.sort_by_key(|key: &TopKey| Reverse(key.count));
            list.truncate(query.limit);
            keys.extend(list);
        }
        keys
    }

    fn list(
        &self,
        kind: TopKind,
        row: &PerRuleEntry<Arc<RuleHeavyHitters>>,
        now: Timestamp,
        visibility: Visibility,
    ) -> impl Iterator<Item = TopKey> {
        let (since, hitters) = row.value.for_kind(kind).list(now);
        hitters.into_iter().map(move |hitter| TopKey {
            kind: kind.name(),
            rule: row.id.clone(),
            key: self.masks.render_key(hitter.key, hitter.identity.as_deref(), visibility),
            client: hitter.identity.as_deref().map(|identity| identity.render(visibility)),
            count: hitter.count,
            error: hitter.error,
            spread: hitter.spread,
            since_us: since.as_micros(),
        })
    }

    /// The bursts with numbers above `after`, oldest first. Only the latest bursts are kept.
    #[must_use]
    pub fn bursts(&self, after: u64, visibility: Visibility) -> Vec<BurstEvent> {
        self.bursts.lock().list_after(after, &self.masks, visibility)
    }

    /// Counts a sampled decision, which represents `times` decisions.
    fn observe(&self, decided: &DecisionEvent<'_, '_>, times: u32) {
        let Some(table) = self.rules.get_or_install(decided.rules) else { return };
        let now = (self.clock)();
        self.sampler.record_sampled(now);
        for CounterReading { reading, key, .. } in decided.counters() {
            let Some(row) = table.rows.get(reading.rule) else { continue };
            let identity = || KeyIdentity::from_decision(decided, reading.rule, &self.masks);
            if let Some(burst) = row.value.busiest.count(times, now, || key, &identity) {
                self.record_burst(row, burst);
            }
            if reading.verdict.is_violation() {
                row.value.refused.count(times, now, || key, &identity);
            }
        }
        // A rule that refuses without counting has no counter, but it has a key.
        let uncounted = decided.indexed_readings().filter(|(_, reading)| reading.numbers.is_none());
        for (rule, _) in uncounted.filter(|(_, reading)| reading.verdict.is_violation()) {
            let Some(row) = table.rows.get(rule) else { continue };
            let identity = || KeyIdentity::from_decision(decided, rule, &self.masks);
            row.value.refused.count(times, now, || rule_key(decided, rule), &identity);
        }
    }

    #[cold]
    fn record_burst(&self, row: &PerRuleEntry<Arc<RuleHeavyHitters>>, burst: DetectedBurst) {
        row.value.bursts.fetch_add(1, Ordering::Relaxed);
        self.bursts.lock().push(&row.id, burst);
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
        let help = "Bursts: keys of a rule whose request rate rose at least tenfold.";
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
    /// The name of the list in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Busiest => "busiest",
        }
    }

    /// The list with this name.
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
