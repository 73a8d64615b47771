//! What was admitted on one counter, checked against the rule's bound over every interval.
//!
//! Admissions are processed in the order of their true times. The store dates a charge that it
//! decided itself, which the simulation learns when the answer arrives, so the ledger holds
//! admissions back for a while and starts again if one comes later still.

use std::collections::BTreeMap;

use tidegate_core::policy::Algorithm;

use crate::bound::RuleBound;
use crate::clock::MachineClock;

/// One admission, or the refund of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LedgerEvent {
    at: u64,
    sequence: usize,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Admit {
        request: u64,
        cost: u64,
    },
    /// The request no longer counts: a bucket returns no more than it would hold had the request
    /// never been, so those that stay keep the bound.
    Refund {
        request: u64,
    },
}

/// An admission that counts.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at: u64,
    request: u64,
    cost: u64,
}

/// The admissions of one counter.
#[derive(Debug, Default)]
pub(crate) struct AdmissionLedger {
    events: Vec<LedgerEvent>,
    done: usize,
    counted: Vec<Counted>,
    levels: Vec<ClassLevel>,
    visits: BTreeMap<Visit, u64>,
    known_disturbances: (usize, u64),
}

/// The visit of every clock to a window: how often the clock was stepped before, and the window's
/// number.
type Visit = Vec<(usize, u64)>;

/// The largest excess of any interval that begins within one class, that is, between the ends of
/// two disturbances.
#[derive(Clone, Copy, Debug)]
struct ClassLevel {
    begins: u64,
    ends: u64,
    level: Option<i128>,
    at: u64,
}

impl AdmissionLedger {
    pub(crate) fn admit(&mut self, at: u64, request: u64, cost: u64) {
        self.insert(at, Change::Admit { request, cost });
    }

    pub(crate) fn refund(&mut self, at: u64, request: u64) {
        self.insert(at, Change::Refund { request });
    }

    /// The cost admitted between two instants, refunds not considered.
    pub(crate) fn admitted_between(&self, from: u64, to: u64) -> u64 {
        let cost = |event: &LedgerEvent| match event.change {
            Change::Admit { cost, .. } if (from..to).contains(&event.at) => cost,
            _ => 0,
        };
        self.events.iter().map(cost).sum()
    }

    /// Checks everything that happened before `until`. `clocks` are those of the stores that count.
    ///
    /// # Errors
    /// If an interval exceeds the bound.
    pub(crate) fn check(
        &mut self,
        bound: &RuleBound,
        clocks: &[MachineClock],
        until: u64,
    ) -> Result<(), String> {
        let last = bound.disturbances.iter().map(|one| one.until).fold(0, u64::wrapping_add);
        let known = (bound.disturbances.len(), last);
        if known != self.known_disturbances {
            self.known_disturbances = known;
            self.start_again();
        }
        if self.levels.is_empty() {
            self.levels = classes(bound);
        }
        while let Some(event) = self.events.get(self.done).copied().filter(|next| next.at < until) {
            self.done += 1;
            match event.change {
                Change::Admit { request, cost } => {
                    let counted = Counted { at: event.at, request, cost };
                    self.counted.push(counted);
                    self.add(counted, bound, clocks);
                    self.check_now(event.at, bound, clocks)?;
                }
                Change::Refund { request } => self.forget(request, bound, clocks),
            }
        }
        Ok(())
    }

    fn insert(&mut self, at: u64, change: Change) {
        let event = LedgerEvent { at, sequence: self.events.len(), change };
        let place = self.events.partition_point(|other| *other < event);
        self.events.insert(place, event);
        if place < self.done {
            self.start_again();
        }
    }

    fn start_again(&mut self) {
        self.done = 0;
        self.counted.clear();
        self.levels.clear();
        self.visits.clear();
    }

    fn forget(&mut self, request: u64, bound: &RuleBound, clocks: &[MachineClock]) {
        let Some(place) = self.counted.iter().position(|one| one.request == request) else {
            return;
        };
        self.counted.remove(place);
        self.levels = classes(bound);
        self.visits.clear();
        for one in std::mem::take(&mut self.counted) {
            self.counted.push(one);
            self.add(one, bound, clocks);
        }
    }

    fn add(&mut self, one: Counted, bound: &RuleBound, clocks: &[MachineClock]) {
        if bound.has_visits()
            && let Some((visit, _)) = joint_visit(one.at, bound, clocks)
        {
            *self.visits.entry(visit).or_default() += one.cost;
        }
        if bound.is_level() {
            let cost = i128::from(one.cost) * bound.per_request();
            for class in self.levels.iter_mut().filter(|class| class.begins <= one.at) {
                let drained = bound.drained(class.at, one.at);
                let before = class.level.map(|level| level - drained);
                class.level = match (before, one.at < class.ends) {
                    (before, true) => Some(before.unwrap_or(0).max(0) + cost),
                    (Some(before), false) => Some(before + cost),
                    (None, false) => None,
                };
                class.at = one.at;
            }
        }
    }

    fn check_now(
        &self,
        now: u64,
        bound: &RuleBound,
        clocks: &[MachineClock],
    ) -> Result<(), String> {
        if bound.has_visits() {
            self.check_visit(now, bound, clocks)?;
        }
        match bound.spec.algorithm {
            Algorithm::FixedWindow => Ok(()),
            Algorithm::SlidingWindowLog => self.check_log(now, bound),
            _ => self.check_levels(now, bound),
        }
    }

    fn check_levels(&self, now: u64, bound: &RuleBound) -> Result<(), String> {
        for class in self.levels.iter().filter(|class| class.begins <= now) {
            let Some(level) = class.level else { continue };
            let last_begin = class.ends.saturating_sub(1).min(now);
            let allowed = bound.terms_at(now).base + bound.extra(last_begin, now);
            if level > allowed {
                let unit = bound.per_request();
                return Err(format!(
                    "rule {}: {:.3} units above the rate since an instant after {} µs, at most \
                     {:.3} may be",
                    bound.spec.id,
                    in_units(level, unit),
                    class.begins,
                    in_units(allowed, unit)
                ));
            }
        }
        Ok(())
    }

    fn check_log(&self, now: u64, bound: &RuleBound) -> Result<(), String> {
        let (span, unit) = (bound.log_span(), bound.per_request());
        let mut sum = 0;
        for one in self.counted.iter().rev().take_while(|one| now - one.at < span) {
            sum += one.cost;
            let allowed = (bound.terms_at(now).base + bound.extra(one.at, now)) / unit;
            if i128::from(sum) > allowed {
                return Err(format!(
                    "rule {}: {sum} admitted within {} µs, at most {allowed} may be in {span} µs",
                    bound.spec.id,
                    now - one.at
                ));
            }
        }
        Ok(())
    }

    fn check_visit(
        &self,
        now: u64,
        bound: &RuleBound,
        clocks: &[MachineClock],
    ) -> Result<(), String> {
        let Some((visit, begins)) = joint_visit(now, bound, clocks) else { return Ok(()) };
        let sum = self.visits.get(&visit).copied().unwrap_or(0);
        let allowed = (bound.terms_at(now).base + bound.extra(begins, now)) / bound.per_request();
        if i128::from(sum) > allowed {
            return Err(format!(
                "rule {}: {sum} admitted in one window of each store, at most {allowed} may be",
                bound.spec.id
            ));
        }
        Ok(())
    }
}

/// The visit of all clocks to their windows, and since when in true time at the latest.
fn joint_visit(at: u64, bound: &RuleBound, clocks: &[MachineClock]) -> Option<(Visit, u64)> {
    let visits = clocks.iter().map(|clock| visit(at, bound, clock));
    let visits: Vec<_> = visits.collect::<Option<_>>()?;
    let begins = visits.iter().map(|(_, begins)| *begins).max()?;
    Some((visits.into_iter().map(|(visit, _)| visit).collect(), begins))
}

/// The visit of a store's clock to a window, and since when in true time at the latest. `None` in
/// the sliver at its start to which a lease of the window before may extend, and in the one at its
/// end where an asynchronous node may take it for over.
fn visit(at: u64, bound: &RuleBound, clock: &MachineClock) -> Option<((usize, u64), u64)> {
    let (local, segment) = clock.at(at);
    let window = bound.spec.window_ms * 1_000;
    let into = local.as_micros() % window;
    let sliver = bound.longest_lease() / 2_000 + 3;
    let begins = at.saturating_sub(into + into / 4_000 + 2);
    let is_previous = bound.spec.lease.is_some() && into <= sliver;
    let is_next = bound.spec.is_async() && into + window / 1_000 + 3 > window;
    let visit = (segment, local.as_micros() / window);
    (!is_previous && !is_next).then_some((visit, begins))
}

/// One class for each span between the ends of disturbances.
fn classes(bound: &RuleBound) -> Vec<ClassLevel> {
    let mut ends: Vec<u64> = bound.disturbances.iter().map(|one| one.until).collect();
    ends.extend([0, u64::MAX]);
    ends.sort_unstable();
    ends.dedup();
    let class = |pair: &[u64]| ClassLevel { begins: pair[0], ends: pair[1], level: None, at: 0 };
    ends.windows(2).map(class).collect()
}

#[expect(clippy::cast_precision_loss, reason = "only for a message")]
fn in_units(scaled: i128, unit: i128) -> f64 {
    scaled as f64 / unit as f64
}
