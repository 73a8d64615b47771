//! What is counted of decisions: by rule, by verdict, by who answered, and how much was left.
//!
//! Labels are rules, never clients, so what is told does not grow with traffic. Counters are kept in stripes,
//! one for each thread as far as there are enough, because threads that count into one line wait for each other.

mod exposition;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_engine::{Decided, Observer};
use tidegate_rules::{Mode, Rule, RuleSet};

pub use exposition::{Exports, Exposition, Kind};

/// How many stripes there are.
const STRIPES: usize = 8;

const VERDICTS: [Verdict; 5] =
    [Verdict::Allow, Verdict::Deny, Verdict::ShadowDeny, Verdict::Warn, Verdict::Ban];

const ANSWERED_BY: [AnsweredBy; 3] =
    [AnsweredBy::Store, AnsweredBy::DenyCache, AnsweredBy::Fallback];

/// Upper bounds of what is left of a limit, in hundredths.
const HEADROOM: [u64; 6] = [0, 10, 25, 50, 75, 100];

/// Counts decisions.
pub struct Metrics {
    rules: ArcSwap<Table>,
    /// Only one at a time makes the table of a new rule set.
    making: Mutex<()>,
    decisions: Striped<{ 2 * ANSWERED_BY.len() }>,
}

/// The counters of a rule set, by the place of the rule.
struct Table {
    serial: u64,
    counts: Box<[Arc<RuleCounts>]>,
}

struct RuleCounts {
    id: String,
    endpoint: String,
    mode: &'static str,
    verdicts: Striped<{ VERDICTS.len() }>,
    headroom: Striped<{ HEADROOM.len() }>,
    /// The sum of what was left, in hundredths of the limit.
    left: Striped<1>,
}

/// So many counters, in stripes.
struct Striped<const N: usize>(Box<[Stripe<N>; STRIPES]>);

/// Two cache lines apart: processors fetch them in pairs.
#[repr(align(128))]
struct Stripe<const N: usize>([AtomicU64; N]);

impl<const N: usize> Striped<N> {
    fn new() -> Self {
        let stripe = |_| Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Self(Box::new(std::array::from_fn(stripe)))
    }

    fn add(&self, at: usize, count: u64) {
        self.0[stripe()].0[at].fetch_add(count, Ordering::Relaxed);
    }

    fn sum(&self, at: usize) -> u64 {
        self.0.iter().map(|stripe| stripe.0[at].load(Ordering::Relaxed)).sum()
    }
}

/// The stripe of this thread.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    // A thread that is ending counts into the first.
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl Metrics {
    /// Nothing was counted yet.
    #[must_use]
    pub fn new() -> Self {
        let none = Table { serial: 0, counts: Box::default() };
        let (rules, making) = (ArcSwap::from_pointee(none), Mutex::new(()));
        Self { rules, making, decisions: Striped::new() }
    }

    /// The counters of a new rule set: rules that keep their id go on with theirs.
    fn make(&self, rules: &RuleSet) -> Arc<Table> {
        let _one = self.making.lock();
        let known = self.rules.load_full();
        if known.serial >= rules.serial() {
            return known;
        }
        let mut by_id: HashMap<&str, Arc<RuleCounts>> =
            known.counts.iter().map(|counts| (counts.id.as_str(), Arc::clone(counts))).collect();
        let counts = rules.with_variants().iter().map(|rule| {
            let counts = by_id.entry(rule.id()).or_insert_with(|| Arc::new(RuleCounts::new(rule)));
            Arc::clone(counts)
        });
        let table = Arc::new(Table { serial: rules.serial(), counts: counts.collect() });
        self.rules.store(Arc::clone(&table));
        table
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl RuleCounts {
    fn new(rule: &Rule) -> Self {
        let endpoint =
            rule.conditions().find_map(|text| Some(text.strip_prefix("endpoint=")?.to_owned()));
        Self {
            id: rule.id().to_owned(),
            endpoint: endpoint.unwrap_or_else(|| "*".to_owned()),
            mode: match rule.mode() {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Warn(_) => "warn",
            },
            verdicts: Striped::new(),
            headroom: Striped::new(),
            left: Striped::new(),
        }
    }

    fn count(&self, verdict: Verdict, told: Option<&Reading>) {
        let at = VERDICTS.iter().position(|known| *known == verdict).unwrap_or(0);
        self.verdicts.add(at, 1);
        if let Some(told) = told.filter(|told| told.limit > 0) {
            let left = told.remaining.min(told.limit).saturating_mul(100) / told.limit;
            let at = HEADROOM.iter().position(|bound| left <= *bound);
            self.headroom.add(at.unwrap_or(HEADROOM.len() - 1), 1);
            self.left.add(0, left);
        }
    }
}

impl Observer for Metrics {
    fn decided(&self, decided: &Decided<'_, '_>) {
        let known = self.rules.load();
        let made;
        let table = if known.serial == decided.rules.serial() {
            &**known
        } else {
            made = self.make(decided.rules);
            &*made
        };
        let mut refused = false;
        for (at, reading) in decided.places() {
            refused |= reading.verdict.refuses();
            // A request that is still decided under the rules before is counted where those are known.
            if table.serial == decided.rules.serial()
                && let Some(counts) = table.counts.get(at as usize)
            {
                counts.count(reading.verdict, reading.numbers.as_ref());
            }
        }
        let by = ANSWERED_BY.iter().position(|known| *known == decided.answered_by).unwrap_or(0);
        self.decisions.add(2 * by + usize::from(refused), 1);
    }
}

impl Exports for Metrics {
    fn export(&self, to: &mut Exposition) {
        let name = "tidegate_decisions";
        to.family(name, Kind::Counter, "Decisions, by who answered and what came of them.");
        for (at, by) in ANSWERED_BY.iter().enumerate() {
            for (refused, outcome) in ["allowed", "refused"].into_iter().enumerate() {
                let labels = [("answered_by", by.name()), ("outcome", outcome)];
                to.sample("_total", &labels, self.decisions.sum(2 * at + refused));
            }
        }
        let table = self.rules.load();
        let mut rules: Vec<&Arc<RuleCounts>> = table.counts.iter().collect();
        // Variants count with their rule.
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        rules.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let name = "tidegate_rule_verdicts";
        to.family(name, Kind::Counter, "What rules said to requests that they govern.");
        for rule in &rules {
            for (at, verdict) in VERDICTS.iter().enumerate() {
                let labels = [
                    ("rule", rule.id.as_str()),
                    ("endpoint", &rule.endpoint),
                    ("mode", rule.mode),
                    ("verdict", verdict.name()),
                ];
                to.sample("_total", &labels, rule.verdicts.sum(at));
            }
        }
        let name = "tidegate_rule_headroom_ratio";
        let help = "What was left of the limit after a decision, as a share of it.";
        to.family(name, Kind::Histogram, help);
        for rule in &rules {
            let mut count = 0;
            for (at, bound) in HEADROOM.iter().enumerate() {
                count += rule.headroom.sum(at);
                let le = exposition::hundredths(*bound);
                to.sample("_bucket", &[("rule", &rule.id), ("le", &le)], count);
            }
            to.sample("_bucket", &[("rule", &rule.id), ("le", "+Inf")], count);
            to.decimal("_sum", &[("rule", &rule.id)], rule.left.sum(0));
            to.sample("_count", &[("rule", &rule.id)], count);
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
