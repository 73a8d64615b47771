//! A node on a store that it shares with others, so that leased, asynchronous and split rules are
//! in effect. The test runs its calls to the store.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::time::{Clock as _, ManualClock};
use tidegate_fixtures::faulty_store::{FaultyStore, small_store};
use tidegate_fixtures::server::compile_rules;
use tidegate_limiter::{AsyncStats, Decision, LeaseClock, Limiter};
use tidegate_rules::Facts;

use super::poll_ready;

/// A node with its connection to the store.
pub(crate) struct SharingNode {
    pub(crate) limiter: Limiter<FaultyStore>,
    pub(crate) store: FaultyStore,
}

/// Creates nodes that share a store and a lease clock.
pub(crate) fn sharing_nodes(source: &str, nodes: u32, clock: &ManualClock) -> Vec<SharingNode> {
    let shared = Arc::new(small_store(clock));
    let node = |number: u32| {
        let store = FaultyStore::new(Arc::clone(&shared), nodes);
        let rules = compile_rules(source).for_shared_store();
        let lease_clock = clock.clone();
        let lease_clock = LeaseClock::new(move || lease_clock.now());
        let limiter = Limiter::new(store.clone(), rules).with_leases(lease_clock, 1 << 20);
        let limiter = limiter.with_part_seed(number.into());
        SharingNode { limiter, store }
    };
    (0..nodes).map(node).collect()
}

impl SharingNode {
    /// Decides a request that may wait for an answer of the store.
    pub(crate) fn decide_waiting(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        let mut decision = pin!(self.limiter.decide(facts, cost));
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(decision) = decision.as_mut().poll(&mut context) {
                return decision;
            }
            self.run_tasks();
        }
    }

    pub(crate) fn decide(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        poll_ready(self.limiter.decide(facts, cost))
    }

    /// Decides a request, and makes the calls to the store that it waits for.
    pub(crate) fn decide_with_tasks(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        let mut decision = pin!(self.limiter.decide(facts, cost));
        for _ in 0..20 {
            match decision.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decision) => return decision,
                Poll::Pending => self.run_tasks(),
            }
        }
        panic!("the request waits although the store has answered");
    }

    /// Starts the flushes that are due, and runs all calls to the store.
    pub(crate) fn sweep(&self) {
        self.limiter.sweep_leases();
        self.run_tasks();
    }

    pub(crate) fn run_tasks(&self) {
        while let Some(task) = self.limiter.pop_lease_task() {
            poll_ready(self.limiter.run_lease_task(task));
        }
    }

    pub(crate) fn stats(&self) -> AsyncStats {
        self.limiter.async_stats().unwrap()
    }
}
