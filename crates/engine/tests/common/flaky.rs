//! A store that fails as it is told to and otherwise is a memory store, which several may share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_engine::Limiter;

use super::{Memory, ready, rules, small};

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It cannot be reached: nothing is done.
    Gone,
    /// What is asked is done, but the answer is lost; looks are answered.
    Mute,
    /// What is asked may have been done, but is not; looks are answered.
    Lost,
    /// One call of this number is let through, as by a breaker that closes; the others are not made.
    Closing(u32),
    /// The part that holds the counters of these rules cannot be reached.
    Without(&'static [&'static str]),
    /// Refusals are answered from memory.
    Remembers,
}

/// One node's connection to a store.
#[derive(Clone)]
pub(crate) struct Flaky(Arc<Inner>);

struct Inner {
    store: Mutex<Arc<Memory>>,
    fault: Mutex<Fault>,
    nodes: AtomicU32,
    calls: AtomicU32,
    asked: Mutex<Vec<(Op, usize)>>,
}

impl Flaky {
    pub(crate) fn new(store: Arc<Memory>, nodes: u32) -> Self {
        let (fault, asked) = (Mutex::default(), Mutex::default());
        let store = Mutex::new(store);
        let (nodes, calls) = (AtomicU32::new(nodes), AtomicU32::default());
        Self(Arc::new(Inner { store, fault, nodes, calls, asked }))
    }

    pub(crate) fn fault(&self, fault: Fault) {
        *self.0.fault.lock().unwrap() = fault;
    }

    pub(crate) fn set_nodes(&self, nodes: u32) {
        self.0.nodes.store(nodes, Ordering::SeqCst);
    }

    /// The store forgets everything; a clock that stands still is still its clock.
    pub(crate) fn lose_data(&self) {
        let now = ready(self.memory().now()).unwrap();
        *self.0.store.lock().unwrap() = Arc::new(small(&ManualClock::new(now)));
    }

    fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.0.store.lock().unwrap())
    }

    /// What was asked since the last look: each operation with the number of charges.
    pub(crate) fn asked(&self) -> Vec<(Op, usize)> {
        std::mem::take(&mut self.0.asked.lock().unwrap())
    }
}

impl Store for Flaky {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.0.asked.lock().unwrap().push((op, charges.len()));
        for (i, charge) in charges.iter().enumerate() {
            let same = |other: &Charge<'_>| other.key.fingerprint == charge.key.fingerprint;
            assert!(!charges[..i].iter().any(same), "two charges of a batch have the same key");
        }
        let fault = self.0.fault.lock().unwrap().clone();
        let store = self.memory();
        match fault {
            Fault::None => store.apply_now(op, charges, readings),
            Fault::Gone => return Err(StoreError::nothing("connection refused")),
            Fault::Mute | Fault::Lost if op == Op::Peek => {
                store.apply_now(op, charges, readings);
            }
            Fault::Mute => {
                store.apply_now(op, charges, readings);
                return Err(StoreError::unknown("deadline", charges.len()));
            }
            Fault::Lost => return Err(StoreError::unknown("deadline", charges.len())),
            Fault::Closing(one_of) => {
                let call = self.0.calls.fetch_add(1, Ordering::SeqCst);
                if !call.is_multiple_of(one_of) {
                    return Err(StoreError::nothing("the breaker is closing"));
                }
                store.apply_now(op, charges, readings);
            }
            Fault::Without(lost) => return self.partly(op, charges, readings, lost),
            Fault::Remembers => {
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
            Fault::Gone | Fault::Mute | Fault::Lost => {
                Err(StoreError::nothing("connection refused"))
            }
            _ => ready(self.memory().now()),
        }
    }

    fn nodes(&self) -> u32 {
        self.0.nodes.load(Ordering::SeqCst)
    }
}

impl Flaky {
    fn partly(
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
        self.memory().apply_now(op, &part, &mut told);
        answered.iter().zip(told).for_each(|(i, told)| readings[*i] = told);
        if answered.len() == charges.len() {
            return Ok(AnsweredBy::Store);
        }
        Err(StoreError { answered, ..StoreError::nothing("a node is gone") })
    }
}

/// One node of a fleet: its limiter and its connection to the store.
pub(crate) struct Node {
    pub(crate) limiter: Limiter<Flaky, Memory>,
    pub(crate) store: Flaky,
}

/// Nodes that share a store, each with a local one.
pub(crate) fn fleet(source: &str, nodes: u32, clock: &ManualClock) -> Vec<Node> {
    let shared = Arc::new(small(clock));
    let node = |_| {
        let store = Flaky::new(Arc::clone(&shared), nodes);
        let limiter = Limiter::new(store.clone(), rules(source)).with_local(small(clock));
        Node { limiter, store }
    };
    (0..nodes).map(node).collect()
}

/// The only node there is.
pub(crate) fn alone(source: &str, clock: &ManualClock) -> Node {
    fleet(source, 1, clock).remove(0)
}
