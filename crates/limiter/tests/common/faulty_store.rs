//! A store with injectable faults on top of a memory store, which several nodes may share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_limiter::Limiter;

use super::{ManualMemoryStore, poll_ready, rules, small_store};

/// The fault to simulate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// No fault.
    #[default]
    None,
    /// The store is unreachable: nothing is executed.
    Unreachable,
    /// The operation is executed, but the response is lost; peeks are answered.
    AnswerLost,
    /// The operation is not executed and there is no response; peeks are answered.
    RequestLost,
    /// Only every n-th call is let through, as by a closing breaker; the others are not executed.
    BreakerClosing(u32),
    /// The part of the store with the counters of these rules is unreachable.
    PartUnreachable(&'static [&'static str]),
    /// A deny cache answers refusals.
    DenyCached,
}

/// One node's connection to a shared store.
#[derive(Clone)]
pub(crate) struct FaultyStore(Arc<Inner>);

struct Inner {
    store: Mutex<Arc<ManualMemoryStore>>,
    fault: Mutex<StoreFault>,
    nodes: AtomicU32,
    calls: AtomicU32,
    recorded_calls: Mutex<Vec<(Op, usize)>>,
}

impl FaultyStore {
    pub(crate) fn new(store: Arc<ManualMemoryStore>, nodes: u32) -> Self {
        let (fault, recorded_calls) = (Mutex::default(), Mutex::default());
        let store = Mutex::new(store);
        let (nodes, calls) = (AtomicU32::new(nodes), AtomicU32::default());
        Self(Arc::new(Inner { store, fault, nodes, calls, recorded_calls }))
    }

    pub(crate) fn set_fault(&self, fault: StoreFault) {
        *self.0.fault.lock().unwrap() = fault;
    }

    pub(crate) fn set_nodes(&self, nodes: u32) {
        self.0.nodes.store(nodes, Ordering::SeqCst);
    }

    /// Replaces the store by an empty one, whose clock stays at the current time.
    pub(crate) fn lose_data(&self) {
        let now = poll_ready(self.memory_store().now()).unwrap();
        *self.0.store.lock().unwrap() = Arc::new(small_store(&ManualClock::new(now)));
    }

    fn memory_store(&self) -> Arc<ManualMemoryStore> {
        Arc::clone(&self.0.store.lock().unwrap())
    }

    /// Returns the calls since the last time this was called: each operation with its number of
    /// charges.
    pub(crate) fn take_recorded_calls(&self) -> Vec<(Op, usize)> {
        std::mem::take(&mut self.0.recorded_calls.lock().unwrap())
    }
}

impl Store for FaultyStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.0.recorded_calls.lock().unwrap().push((op, charges.len()));
        for (i, charge) in charges.iter().enumerate() {
            let same = |other: &Charge<'_>| other.key.fingerprint == charge.key.fingerprint;
            assert!(!charges[..i].iter().any(same), "two charges of a batch have the same key");
        }
        let fault = self.0.fault.lock().unwrap().clone();
        let store = self.memory_store();
        match fault {
            StoreFault::None => store.apply_now(op, charges, readings),
            StoreFault::Unreachable => return Err(StoreError::not_applied("connection refused")),
            StoreFault::AnswerLost | StoreFault::RequestLost if op == Op::Peek => {
                store.apply_now(op, charges, readings);
            }
            StoreFault::AnswerLost => {
                store.apply_now(op, charges, readings);
                return Err(StoreError::outcome_unknown("deadline", charges.len()));
            }
            StoreFault::RequestLost => {
                return Err(StoreError::outcome_unknown("deadline", charges.len()));
            }
            StoreFault::BreakerClosing(one_of) => {
                let call = self.0.calls.fetch_add(1, Ordering::SeqCst);
                if !call.is_multiple_of(one_of) {
                    return Err(StoreError::not_applied("the breaker is closing"));
                }
                store.apply_now(op, charges, readings);
            }
            StoreFault::PartUnreachable(lost) => {
                return self.apply_partly(op, charges, readings, lost);
            }
            StoreFault::DenyCached => {
                store.apply_now(Op::Peek, charges, readings);
                if readings.iter().any(|reading| reading.verdict.refuses()) {
                    let others = readings.iter_mut().filter(|reading| !reading.verdict.refuses());
                    others.for_each(|reading| *reading = Reading::default());
                    return Ok(AnsweredBy::DenyCache);
                }
                store.apply_now(op, charges, readings);
            }
        }
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match *self.0.fault.lock().unwrap() {
            StoreFault::Unreachable | StoreFault::AnswerLost | StoreFault::RequestLost => {
                Err(StoreError::not_applied("connection refused"))
            }
            _ => poll_ready(self.memory_store().now()),
        }
    }

    fn node_count(&self) -> u32 {
        self.0.nodes.load(Ordering::SeqCst)
    }
}

impl FaultyStore {
    fn apply_partly(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
        lost: &[&str],
    ) -> Result<AnsweredBy, StoreError> {
        let answered: Vec<usize> =
            (0..charges.len()).filter(|i| !lost.contains(&charges[*i].key.rule)).collect();
        let part: Vec<Charge<'_>> = answered.iter().map(|i| charges[*i]).collect();
        let mut answers = vec![Reading::default(); part.len()];
        self.memory_store().apply_now(op, &part, &mut answers);
        answered.iter().zip(answers).for_each(|(i, reading)| readings[*i] = reading);
        if answered.len() == charges.len() {
            return Ok(AnsweredBy::Store);
        }
        Err(StoreError { answered, ..StoreError::not_applied("a node is unreachable") })
    }
}

/// One node of a fleet: its limiter and its connection to the store.
pub(crate) struct TestNode {
    pub(crate) limiter: Limiter<FaultyStore, ManualMemoryStore>,
    pub(crate) store: FaultyStore,
}

/// Creates nodes that share a store, each with its own local store.
pub(crate) fn fleet(source: &str, nodes: u32, clock: &ManualClock) -> Vec<TestNode> {
    let shared = Arc::new(small_store(clock));
    let node = |_| {
        let store = FaultyStore::new(Arc::clone(&shared), nodes);
        let limiter = Limiter::new(store.clone(), rules(source)).with_local(small_store(clock));
        TestNode { limiter, store }
    };
    (0..nodes).map(node).collect()
}

/// Creates a single node.
pub(crate) fn single_node(source: &str, clock: &ManualClock) -> TestNode {
    fleet(source, 1, clock).remove(0)
}
