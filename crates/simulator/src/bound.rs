//! The bounds of a rule in true time, in exact integers.
//!
//! Let the store's clock run at 1 + ρ (|ρ| ≤ 200 ppm) and show whole microseconds, and a node's
//! lease clock likewise. L requests per window W, r = L/W, burst B.
//!
//! **Buckets, exact.** The store admits at most B + r·(its time). Its time of a true span T is at
//! most (1+ρ)T + 1 µs, so A(T) ≤ B + r(1+ρ)T + r·1 µs.
//!
//! **Buckets, leased.** A unit spent at t was asked for less than ttl of the node's clock before,
//! which is less than ttl' = ttl/(1 − 200 ppm) of true time, and granted after it was asked for.
//! What is spent in [s, t] was therefore granted in [s − ttl', t], where the store grants at most
//! B − ⌈r·ttl⌉ + r(1+ρ)(t − s + ttl') + r·1 µs. So
//! A(T) ≤ B + r(1+ρ)T + r((1+ρ)ttl' − ttl) + r·1 µs; the third term is below 0.05 % of r·ttl.
//! With `bound: plus_ttl` add r·ttl'.
//!
//! **Counter.** A(T) ≤ L(1 + T/W) has the form of a bucket with burst L. Leased, with L' = L·W/(W +
//! ttl): L'(1 + (T + ttl')(1+ρ)/W) ≤ L + r(1+ρ)T + r((1+ρ)ttl' − ttl).
//!
//! **Log.** Any W of the store's clock holds at most L. Leased it counts W + ttl, so any true span
//! X with (1+ρ)(X + ttl') + 1 µs ≤ W + ttl holds at most L spent units.
//!
//! **Fixed window.** A lease ends with its window, up to the clocks' drift within a ttl. Each visit
//! of the store's clock to a window admits at most L, apart from that sliver at its start.
//!
//! **Asynchronous.** The store counts by force, what the nodes admitted on their view of it. Take
//! an interval in which they admit A units, and of the answers that nodes knew at their last
//! admission in it the latest one, which the store gave at ρ. That node had room for another unit,
//! so the store had counted at most B in its view, less what has drained since the answer; so of
//! the A units at most B + r(1+ρ)T were counted by then. Of each node the others were open at its
//! last admission, and a node has at most its part of B open. So A(T) ≤ 2B + r(1+ρ)T, in windows
//! likewise 2L; the stated bound 2B + r(T + I + RTT) also covers that a request which other rules
//! hold up is decided up to a round trip later than the node counted it. The store may have counted
//! 2B, so a loss of state or a step of its clock adds up to 2B. A flush that the store never counts
//! adds its units once, a killed node what it had open, and so does the excess while the nodes'
//! parts of the limit exceed it, because they do not agree on how many they are. The counter
//! weights the previous window's count, at most 2L, so A(T) ≤ 2L(1 + T/W) over any interval, and 2L
//! in each window.
//!
//! **Disturbances.** A step of the store's clock by s adds min(B, r·s) once if forward. A step back
//! adds nothing to a bucket that only drains, but a refund of a charge dated before it no longer
//! subtracts what has drained since the charge, and in a window that is visited twice it meets the
//! count of the wrong visit, so up to B may be given back. A loss of the store's
//! state adds B once. While nodes differ in rules, the bound is that of `plus_ttl` with the larger
//! limits. Each concerns intervals that begin before its end plus ttl', because a unit may be spent
//! that long after its grant.
//!
//! **`on_fail: local`.** The store and the shares are two limiters, so the burst and the rate at
//! most double (or grow by one request a node, which is the smallest share).

use tidegate_core::policy::Algorithm;

use crate::clock::MAX_DRIFT_PPM;
use crate::rule_spec::RuleSpec;

const MILLION: i128 = 1_000_000;

/// Something that adds to the bound of intervals that begin before `until` and end after `from`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// In scaled units.
    pub(crate) extra: i128,
}

/// The bound of one rule, in force since an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundTerms {
    pub(crate) from: u64,
    /// The capacity of the virtual bucket, or the most in a window.
    pub(crate) base: i128,
    /// What drains in a microsecond of true time.
    pub(crate) per_micro: i128,
}

/// The bound of one rule over a run, on one store.
#[derive(Clone, Debug)]
pub(crate) struct RuleBound {
    pub(crate) spec: RuleSpec,
    pub(crate) terms: Vec<BoundTerms>,
    pub(crate) disturbances: Vec<Disturbance>,
    pub(crate) conditions: BoundConditions,
    /// The disturbance while the nodes' parts exceed the limit, and by how many units.
    part_excess: Option<(usize, u64)>,
}

/// The conditions of a run that bounds depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundConditions {
    pub(crate) store_ppm: i64,
    /// How long other rules hold up a request that an asynchronous rule has admitted.
    pub(crate) longest_hold: u64,
    /// How long after its charge a refund arrives at the latest.
    pub(crate) longest_refund: u64,
}

impl RuleBound {
    pub(crate) fn new(spec: RuleSpec, conditions: BoundConditions) -> Self {
        let (terms, disturbances) = (Vec::new(), Vec::new());
        let mut bound = Self { spec, terms, disturbances, conditions, part_excess: None };
        bound.terms.push(bound.terms_of(&spec, 0));
        bound
    }

    /// Scaled units of one request.
    pub(crate) fn per_request(&self) -> i128 {
        i128::from(self.spec.window_ms) * 1_000 * MILLION
    }

    /// The longest that a unit lives after its grant, in true time.
    pub(crate) fn longest_lease(&self) -> u64 {
        true_ttl(self.spec.ttl_micros())
    }

    /// The length of true time in which a log admits at most its limit.
    pub(crate) fn log_span(&self) -> u64 {
        let ttl = if self.has_lending_window() { self.spec.ttl_micros() } else { 0 };
        let counted = i128::from(self.spec.window_ms) * 1_000 + i128::from(ttl) - 2;
        // An asynchronous node takes a window for over by its clock.
        let ppm = if self.spec.is_async() { 2 * MAX_DRIFT_PPM } else { self.conditions.store_ppm };
        let span = counted * MILLION / (MILLION + i128::from(ppm));
        let live = if self.spec.is_local { true_ttl(1_000) } else { 0 };
        let held = if self.spec.is_async() { self.conditions.longest_hold } else { 0 };
        u64::try_from(span).unwrap_or(0).saturating_sub(true_ttl(ttl) + live + held)
    }

    /// Begins to allow for new rules, of which not all nodes know yet. Returns the index of the
    /// disturbance, which [`finish_edit`](Self::finish_edit) ends.
    pub(crate) fn begin_edit(&mut self, spec: RuleSpec, now: u64) -> usize {
        let (before, after) = (self.terms_of(&self.spec, now), self.terms_of(&spec, now));
        let per_micro = before.per_micro.max(after.per_micro);
        let ttl = self.spec.ttl_micros().max(spec.ttl_micros());
        // The larger limit, and what the faster rate admits in the longer ttl.
        let forgotten = match spec.algorithm {
            Algorithm::SlidingWindowLog => self.spec.most_at_store().max(spec.most_at_store()),
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => 0,
            // Debt is capped at one full bucket of the new burst; the rest is forgotten.
            _ => self.spec.most_at_store().saturating_sub(2 * spec.lent_burst()),
        };
        let extra = i128::from(forgotten) * self.per_request()
            + (before.base - after.base).max(0)
            + per_micro * i128::from(true_ttl(ttl));
        self.terms.push(BoundTerms { per_micro, ..after });
        self.spec.lease = match (self.spec.lease, spec.lease) {
            (Some(old), Some(new)) if old.ttl_ms > new.ttl_ms => Some(old),
            (old, new) => new.or(old),
        };
        self.spec.flush_ms = self.spec.flush_ms.max(spec.flush_ms);
        // Until all nodes know, a loss of state may cost the larger limit.
        self.spec.requests = self.spec.requests.max(spec.requests);
        self.spec.burst = self.spec.burst.max(spec.burst);
        self.disturb(now, u64::MAX, extra);
        self.disturbances.len() - 1
    }

    /// All nodes know the new rules.
    pub(crate) fn finish_edit(&mut self, disturbance: usize, spec: RuleSpec, now: u64) {
        let longest = self.longest_lease();
        self.disturbances[disturbance].until = now + longest + EDIT_GRACE;
        let after = self.terms_of(&spec, now + longest + EDIT_GRACE);
        self.terms.push(after);
        self.spec = spec;
    }

    /// The store's clock steps.
    pub(crate) fn step(&mut self, micros: i64, now: u64) {
        let whole = self.whole_limit();
        let extra = match (micros > 0, self.is_level()) {
            (true, true) => whole.min(self.latest().per_micro * i128::from(micros)),
            _ => whole,
        };
        // Refunds of charges dated before a step back may come until their dates have passed again.
        let refunds = match micros.is_negative() {
            true => micros.unsigned_abs() + 2_000 * self.spec.window_ms,
            false => self.conditions.longest_refund,
        };
        self.disturb(now, now + refunds + self.longest_lease() + 1, extra);
    }

    /// The store loses its state, or part of it. Refunds of what it lost may still come.
    pub(crate) fn lose_state(&mut self, now: u64) {
        let until = now + self.longest_lease() + self.conditions.longest_refund + 1;
        self.disturb(now, until, self.whole_limit());
    }

    /// The store never counts some units that nodes admitted before this instant, or returns them
    /// without having counted them.
    pub(crate) fn lose_units(&mut self, units: u64, now: u64) {
        let until = now + self.conditions.longest_refund + 1;
        self.disturb(0, until, i128::from(units) * self.per_request());
    }

    /// The parts of the limit that nodes may have open together exceed it by this much.
    pub(crate) fn set_part_excess(&mut self, units: u64, now: u64) {
        if self.part_excess.is_some_and(|(_, known)| known == units) {
            return;
        }
        if let Some((disturbance, _)) = self.part_excess.take() {
            self.disturbances[disturbance].until = now + 1;
        }
        if units > 0 {
            self.part_excess = Some((self.disturbances.len(), units));
            self.disturb(now, u64::MAX, i128::from(units) * self.per_request());
        }
    }

    /// Whether each window of the store's clock has a limit.
    pub(crate) fn has_visits(&self) -> bool {
        match self.spec.algorithm {
            Algorithm::FixedWindow => true,
            Algorithm::SlidingWindowCounter => self.spec.is_async() && !self.spec.is_local,
            _ => false,
        }
    }

    /// Whether the bound is that of a bucket.
    pub(crate) const fn is_level(&self) -> bool {
        !matches!(self.spec.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindowLog)
    }

    /// The terms in force at an instant.
    pub(crate) fn terms_at(&self, at: u64) -> BoundTerms {
        let known = self.terms.iter().rev().find(|terms| terms.from <= at);
        known.copied().unwrap_or(self.terms[0])
    }

    /// What drains between two instants.
    pub(crate) fn drained(&self, from: u64, to: u64) -> i128 {
        let mut sum = 0;
        for (i, terms) in self.terms.iter().enumerate() {
            let end = self.terms.get(i + 1).map_or(u64::MAX, |next| next.from);
            let span = to.min(end).saturating_sub(from.max(terms.from));
            sum += terms.per_micro * i128::from(span);
        }
        sum
    }

    /// What disturbances add to an interval.
    pub(crate) fn extra(&self, from: u64, to: u64) -> i128 {
        let concerns = |one: &&Disturbance| one.from <= to && one.until > from;
        self.disturbances.iter().filter(concerns).map(|one| one.extra).sum()
    }

    fn disturb(&mut self, from: u64, until: u64, extra: i128) {
        self.disturbances.push(Disturbance { from, until, extra });
    }

    fn latest(&self) -> BoundTerms {
        self.terms_at(u64::MAX)
    }

    fn whole_limit(&self) -> i128 {
        i128::from(self.spec.most_at_store()) * self.per_request()
    }

    const fn has_lending_window(&self) -> bool {
        matches!(self.spec.lease, Some(lease) if !lease.is_plus_ttl)
    }

    fn terms_of(&self, spec: &RuleSpec, from: u64) -> BoundTerms {
        // Shares are rounded down, but each node has at least one request.
        let shares = |whole: u64| if spec.is_local { whole.max(MAX_NODES) } else { 0 };
        let requests = i128::from(spec.requests);
        let per_request = i128::from(spec.window_ms) * 1_000 * MILLION;
        // A window of the store's clock overlaps two windows of a node's own clock.
        let windows = if spec.algorithm == Algorithm::FixedWindow { 2 } else { 1 };
        let most = spec.most_at_store() + windows * shares(spec.limit());
        let base = i128::from(most) * per_request;
        let plus_ttl = spec.lease.is_some_and(|lease| lease.is_plus_ttl);
        if matches!(spec.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindowLog) {
            // An interval of a log's window and a ttl can overlap two windows of grants.
            let doubled = plus_ttl && spec.algorithm == Algorithm::SlidingWindowLog;
            return BoundTerms { from, base: if doubled { 2 * base } else { base }, per_micro: 0 };
        }
        let (ttl, ttl_true) =
            (i128::from(spec.ttl_micros()), i128::from(true_ttl(spec.ttl_micros())));
        let drift = MILLION + i128::from(MAX_DRIFT_PPM);
        let slack = requests * (drift * ttl_true - MILLION * ttl) + 4 * requests * MILLION;
        let more = if plus_ttl { requests * drift * ttl_true } else { 0 };
        // Nodes count what drains by their own clocks.
        let by_node = spec.is_local || spec.is_async();
        let ppm = if by_node { MAX_DRIFT_PPM } else { self.conditions.store_ppm };
        let is_doubled = spec.is_async() && spec.algorithm == Algorithm::SlidingWindowCounter;
        let counted = if is_doubled { 2 * spec.requests } else { spec.requests };
        let drained = i128::from(counted + shares(spec.requests));
        let per_micro = drained * (MILLION + i128::from(ppm));
        let hold = if spec.is_async() { self.conditions.longest_hold } else { 0 };
        let held = per_micro * i128::from(hold);
        BoundTerms { from, base: base + slack + more + held, per_micro }
    }
}

/// The most nodes of a run.
pub(crate) const MAX_NODES: u64 = 6;

/// Requests that began under old rules end within this time.
const EDIT_GRACE: u64 = 500_000;

/// The longest true time that passes while the slowest clock counts `ttl`.
pub(crate) fn true_ttl(ttl: u64) -> u64 {
    let slowest = 1_000_000_u64.saturating_add_signed(-MAX_DRIFT_PPM);
    match ttl {
        0 => 0,
        ttl => (ttl * 1_000_000).div_ceil(slowest) + 1,
    }
}
