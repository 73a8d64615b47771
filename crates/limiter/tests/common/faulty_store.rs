//! A store that fails as it is told to and otherwise is a memory store, which several may share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_limiter::Limiter;

use super::{ManualMemoryStore, poll_ready, rules, small_store};

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// Nothing.
    #[default]
    None,
    /// It cannot be reached: nothing is done.
    Unreachable,
    /// What is asked is done, but the answer is lost; looks are answered.
    AnswerLost,
    /// What is asked may have been done, but is not; looks are answered.
    RequestLost,
    /// One call of this number is let through, as by a breaker that closes; the others are not made.
    BreakerClosing(u32),
    /// The part that holds the counters of these rules cannot be reached.
    PartUnreachable(&'static [&'static str]),
    /// Refusals are answered from memory.
    DenyCached,
}

/// One node's connection to a store.
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
        let (fault, asked) = (Mutex::default(), Mutex::default());
        let store = Mutex::new(store);
        let (nodes, calls) = (AtomicU32::new(nodes), AtomicU32::default());
        Self(Arc::new(Inner { store, fault, nodes, calls, recorded_calls: asked }))
    }

    pub(crate) fn set_fault(&self, fault: StoreFault) {
        *self.0.fault.lock().unwrap() = fault;
    }

    pub(crate) fn set_nodes(&self, nodes: u32) {
        self.0.nodes.store(nodes, Ordering::SeqCst);
    }

    /// The store forgets everything; a clock that stands still is still its clock.
    pub(crate) fn lose_data(&self) {
        let now = poll_ready(self.memory_store().now()).unwrap();
        *self.0.store.lock().unwrap() = Arc::new(small_store(&ManualClock::new(now)));
    }

    fn memory_store(&self) -> Arc<ManualMemoryStore> {
        Arc::clone(&self.0.store.lock().unwrap())
    }

    /// What was asked since the last look: each operation with the number of charges.
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
                if readings.iter().any(|told| told.verdict.refuses()) {
                    let others = readings.iter_mut().filter(|told| !told.verdict.refuses());
                    others.for_each(|told| *told = Reading::default());
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
        let mut told = vec![Reading::default(); part.len()];
        self.memory_store().apply_now(op, &part, &mut told);
        answered.iter().zip(told).for_each(|(i, told)| readings[*i] = told);
        if answered.len() == charges.len() {
            return Ok(AnsweredBy::Store);
        }
        Err(StoreError { answered, ..StoreError::not_applied("a node is gone") })
    }
}

/// One node of a fleet: its limiter and its connection to the store.
pub(crate) struct TestNode {
    pub(crate) limiter: Limiter<FaultyStore, ManualMemoryStore>,
    pub(crate) store: FaultyStore,
}

/// Nodes that share a store, each with a local one.
pub(crate) fn fleet(source: &str, nodes: u32, clock: &ManualClock) -> Vec<TestNode> {
    let shared = Arc::new(small_store(clock));
    let node = |_| {
        let store = FaultyStore::new(Arc::clone(&shared), nodes);
        let limiter = Limiter::new(store.clone(), rules(source)).with_local(small_store(clock));
        TestNode { limiter, store }
    };
    (0..nodes).map(node).collect()
}

/// The only node there is.
pub(crate) fn single_node(source: &str, clock: &ManualClock) -> TestNode {
    fleet(source, 1, clock).remove(0)
}
