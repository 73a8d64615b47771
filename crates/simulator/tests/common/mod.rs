//! One node with leases on a memory store, both on one manual clock. Calls to the store take no
//! time; the test decides when they are made.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Timestamp};
use tidegate_limiter::{Decision, LeaseClock, Limiter, StoreTask};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, RuleSet};

/// A node.
pub(crate) struct LeasingNode {
    pub(crate) limiter: Limiter<MemoryStore<ManualClock>>,
    pub(crate) clock: ManualClock,
}

impl LeasingNode {
    pub(crate) fn new(source: &str) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
        let document = Document::parse("rules.yaml", source).expect("the document is valid");
        let rules = RuleSet::compile(&document, Secret::UNSET).expect("the rules are valid");
        let store = MemoryStore::with_shards(clock.clone(), 1 << 20, 1);
        let lease_clock = clock.clone();
        let limiter = Limiter::new(store, rules.for_shared_store())
            .with_leases(LeaseClock::new(move || lease_clock.now()), 1 << 20);
        Self { limiter, clock }
    }

    /// Decides a request, and makes the calls to the store that it waits for. Those that it does
    /// not wait for stay queued.
    pub(crate) fn decide(&self, cost: u32) -> Decision {
        let facts = Facts::new();
        let mut decision = pin!(self.limiter.decide(&facts, cost));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(decision) = decision.as_mut().poll(&mut context) {
                return decision;
            }
            let task = self.limiter.pop_lease_task().expect("the request waits for a call");
            self.run_task(task);
        }
    }

    /// Makes a call to the store.
    pub(crate) fn run_task(&self, task: StoreTask) {
        complete(self.limiter.run_lease_task(task));
    }
}

/// Runs a future that does not wait.
pub(crate) fn complete<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the memory store answers at once"),
    }
}
