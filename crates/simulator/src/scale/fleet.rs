//! Nodes that run the real limiter in virtual time, with core as the store, to count their calls.
//!
//! Requests arrive at random, independently of each other, and the store answers at once. There are
//! no faults: the rest of this crate is about those.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, Timestamp};
use tidegate_limiter::{DEFAULT_LEASE_BYTES, LeaseClock, Limiter};
use tidegate_rules::{Facts, RuleSet};
use tidegate_testkit::state_table::StateTable;

use super::estimate::StoreCalls;
use crate::random::Random;

/// Nanoseconds between two sweeps, as in the server.
pub(super) const SWEEP_NANOS: u64 = 10_000_000;

/// When a run begins: an instant like any other.
const START_MICROS: u64 = 1_700_000_000_000_000;

/// What a fleet needs to run.
pub(super) struct FleetPlan<'a> {
    pub(super) nodes: u32,
    /// The number of nodes that each node believes to share the store. More than run, if the fleet is
    /// a sample.
    pub(super) node_count: u32,
    /// Requests a second of each key, at all nodes together.
    pub(super) key_rates: &'a [f64],
    /// How many of the first keys start with an exhausted counter.
    pub(super) exhausted: usize,
    /// Compiles the rules for one node.
    pub(super) rules: &'a dyn Fn() -> Result<RuleSet, String>,
}

/// Running nodes.
pub(super) struct Fleet {
    clock: ManualClock,
    nodes: Vec<Node>,
    store: CountingStore,
    random: Random,
    keys: Vec<String>,
    /// The sum of the rates up to each key.
    cumulative: Vec<f64>,
    /// Nanoseconds since the start.
    now: u64,
    next_sweep: u64,
    totals: FleetCounts,
}

struct Node {
    limiter: Limiter<CountingStore>,
}

/// What a fleet did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FleetCounts {
    pub(super) requests: u64,
    pub(super) admitted: u64,
    /// Requests that the node answered.
    pub(super) local: u64,
    /// Operations of the store, each on one counter.
    pub(super) calls: StoreCalls<u64>,
    /// Counters that nodes held, summed over all nodes and sweeps.
    pub(super) held: u64,
    pub(super) sweeps: u64,
}

/// The shared store. Clones share it.
#[derive(Clone)]
struct CountingStore {
    clock: ManualClock,
    node_count: u32,
    state: Arc<Mutex<StoreState>>,
}

#[derive(Default)]
struct StoreState {
    table: StateTable,
    calls: StoreCalls<u64>,
    /// Whether each charge is followed by one for the whole limit.
    exhausts: bool,
}

impl Store for CountingStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let mut state = self.lock();
        let counters = charges.len() as u64;
        let StoreCalls { direct, grants, returns, flushes } = &mut state.calls;
        match op {
            Op::Grant(_) => *grants += counters,
            Op::Refund { .. } => *returns += counters,
            Op::Force => *flushes += counters,
            _ => *direct += counters,
        }
        let now = self.clock.now();
        readings.copy_from_slice(&state.table.apply(op, charges, now));
        let exhausted = if state.exhausts { charges } else { &[] };
        for charge in exhausted {
            let whole = Charge { cost: charge.policy.limit(), ..*charge };
            state.table.apply_one(Op::Force, &whole, now);
        }
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    fn node_count(&self) -> u32 {
        self.node_count
    }
}

impl Fleet {
    /// Starts the nodes.
    ///
    /// # Errors
    /// Why the rules are invalid.
    pub(super) fn start(plan: &FleetPlan<'_>, seed: u64) -> Result<Self, String> {
        let clock = ManualClock::new(Timestamp::from_micros(START_MICROS));
        let (node_count, state) = (plan.node_count, Arc::default());
        let store = CountingStore { clock: clock.clone(), node_count, state };
        let nodes = (0..plan.nodes).map(|_| Ok(Node::start(&store, (plan.rules)()?)));
        let nodes: Vec<Node> = nodes.collect::<Result<_, String>>()?;
        let sum = |total: &mut f64, rate: &f64| {
            *total += rate;
            Some(*total)
        };
        let mut fleet = Self {
            clock,
            nodes,
            store,
            random: Random::new(seed),
            keys: (0..plan.key_rates.len()).map(|key| format!("key-{key}")).collect(),
            cumulative: plan.key_rates.iter().scan(0.0, sum).collect(),
            now: 0,
            next_sweep: SWEEP_NANOS,
            totals: FleetCounts::default(),
        };
        (0..plan.exhausted).try_for_each(|key| fleet.exhaust(key))?;
        Ok(fleet)
    }

    /// Runs for a while, and returns what happened in it.
    ///
    /// # Errors
    /// If a request waits for a call that was never made.
    pub(super) fn run(&mut self, nanos: u64) -> Result<FleetCounts, String> {
        let (before, end) = (self.totals, self.now + nanos);
        let total = self.cumulative.last().copied().unwrap_or(0.0);
        loop {
            let at = self.now + self.random.exponential(1e9 / total);
            if at >= end {
                self.sweep_until(end);
                // The wait for the next request has no memory, so it may start again here.
                self.now = end;
                break;
            }
            self.sweep_until(at);
            self.now = at;
            self.set_clock(at);
            let node = self.draw_node();
            let key = self.draw_key(total);
            self.decide(node, key, 1)?;
        }
        self.totals.calls = self.store.calls();
        Ok(self.totals.since(&before))
    }

    /// Uses up the limit of a key.
    fn exhaust(&mut self, key: usize) -> Result<(), String> {
        self.store.lock().exhausts = true;
        self.decide(0, key, 1)?;
        let mut state = self.store.lock();
        (state.exhausts, state.calls) = (false, StoreCalls::default());
        drop(state);
        self.totals = FleetCounts::default();
        Ok(())
    }

    fn decide(&mut self, node: usize, key: usize, cost: u32) -> Result<bool, String> {
        let node = &self.nodes[node];
        let mut facts = Facts::new();
        facts.push("user_id", self.keys[key].as_str());
        let mut decision = pin!(node.limiter.decide(&facts, cost));
        let mut decided = poll_once(decision.as_mut());
        if decided.is_none() {
            // It waits for an answer that these tasks bring.
            node.run_tasks()?;
            decided = poll_once(decision);
        }
        let decided = decided.ok_or("a request waits for a call that was never made")?;
        let (admitted, by) = (decided.is_allowed(), decided.answered_by());
        drop(decided);
        node.run_tasks()?;
        self.totals.requests += 1;
        self.totals.admitted += u64::from(admitted);
        self.totals.local += u64::from(by != AnsweredBy::Store);
        Ok(admitted)
    }

    /// Runs the sweeps until an instant. While the nodes hold nothing there is nothing to sweep.
    fn sweep_until(&mut self, at: u64) {
        while self.next_sweep <= at {
            let held: u64 = self.nodes.iter().map(Node::held).sum();
            if held == 0 {
                let skipped = (at - self.next_sweep) / SWEEP_NANOS + 1;
                self.totals.sweeps += skipped;
                self.next_sweep += skipped * SWEEP_NANOS;
                return;
            }
            self.totals.held += held;
            self.totals.sweeps += 1;
            self.set_clock(self.next_sweep);
            for node in &self.nodes {
                node.limiter.sweep_leases();
                // The store answers at once.
                _ = node.run_tasks();
            }
            self.next_sweep += SWEEP_NANOS;
        }
    }

    fn set_clock(&self, nanos: u64) {
        self.clock.set(Timestamp::from_micros(START_MICROS + nanos / 1_000));
    }

    fn draw_node(&mut self) -> usize {
        usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap_or(0)
    }

    fn draw_key(&mut self, total: f64) -> usize {
        if self.keys.len() == 1 {
            return 0;
        }
        let drawn = self.random.fraction() * total;
        self.cumulative.partition_point(|sum| *sum < drawn).min(self.keys.len() - 1)
    }
}

impl Node {
    fn start(store: &CountingStore, rules: RuleSet) -> Self {
        let clock = store.clock.clone();
        let lease_clock = LeaseClock::new(move || clock.now());
        let limiter = Limiter::new(store.clone(), rules);
        Self { limiter: limiter.with_leases(lease_clock, DEFAULT_LEASE_BYTES) }
    }

    fn run_tasks(&self) -> Result<(), String> {
        while let Some(task) = self.limiter.pop_lease_task() {
            poll_once(pin!(self.limiter.run_lease_task(task))).ok_or("the store did not answer")?;
        }
        Ok(())
    }

    /// Counters that the node decides by itself.
    fn held(&self) -> u64 {
        let leased = self.limiter.lease_stats().map_or(0, |stats| stats.counters);
        let views = self.limiter.async_stats().map_or(0, |stats| stats.counters);
        (leased + views) as u64
    }
}

impl CountingStore {
    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> StoreCalls<u64> {
        self.lock().calls
    }
}

impl FleetCounts {
    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            admitted: self.admitted - before.admitted,
            local: self.local - before.local,
            calls: self.calls.since(before.calls),
            held: self.held - before.held,
            sweeps: self.sweeps - before.sweeps,
        }
    }
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
