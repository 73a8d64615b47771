//! The store as a node's limiter sees it: one machine, or several that share the counters.
//!
//! With several, it does what the Redis store does on a cluster: it asks all machines that hold
//! counters of a request at once, and refunds the others if one refuses.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use tidegate_core::decision::{AnsweredBy, Reading, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::{Charge, Op, Role, Store, StoreError};
use tidegate_core::time::Timestamp;

use crate::link::{Failure, NodeLink, SentCharge};

/// A node's connections to all stores. Clones share them.
#[derive(Clone)]
pub(crate) struct SimStore {
    pub(crate) links: Arc<[NodeLink]>,
    /// Nodes that this one believes to live.
    pub(crate) nodes: Arc<AtomicU32>,
}

/// The charges of a request that one store holds, and what became of them.
struct StoreShare {
    store: usize,
    which: Vec<usize>,
    outcome: Result<Vec<Reading>, Failure>,
}

/// The store that holds a counter.
pub(crate) fn store_of(fingerprint: Fingerprint, stores: usize) -> usize {
    usize::try_from(fingerprint.lo % stores.max(1) as u64).unwrap_or(0)
}

impl SimStore {
    pub(crate) fn new(links: Vec<NodeLink>) -> Self {
        Self { links: links.into(), nodes: Arc::new(AtomicU32::new(1)) }
    }

    /// Sends each store its charges.
    async fn ask_stores(&self, op: Op, charges: &[Charge<'_>]) -> Vec<StoreShare> {
        let stores = self.links.len();
        let mut calls = Vec::new();
        for store in 0..stores {
            let is_here = |i: &usize| store_of(charges[*i].key.fingerprint, stores) == store;
            let which: Vec<usize> = (0..charges.len()).filter(is_here).collect();
            if !which.is_empty() {
                let sent = which.iter().map(|i| SentCharge::new(&charges[*i])).collect();
                calls.push((store, which, self.links[store].call(Some(op), sent)));
            }
        }
        let asked = calls.into_iter().map(|(store, which, call)| async move {
            StoreShare { store, which, outcome: call.await.map(|(readings, _)| readings) }
        });
        join_all(asked.map(|share| Box::pin(share) as Pin<Box<_>>).collect()).await
    }

    /// Refunds the charges of a request that another store refused.
    async fn roll_back(&self, charges: &[Charge<'_>], shares: &[StoreShare]) {
        let mut refunds: Vec<PinnedCall<'_>> = Vec::new();
        for StoreShare { store, which, outcome } in shares {
            let Ok(readings) = outcome else { continue };
            if readings.iter().any(|reading| reading.verdict.refuses()) {
                continue;
            }
            let made = which.iter().zip(readings).filter(|(i, reading)| {
                reading.verdict == Verdict::Allow && charges[**i].role != Role::Always
            });
            let made: Vec<Charge<'_>> = made.map(|(i, _)| charges[*i]).collect();
            let charged_at = readings.first().map_or(Timestamp::EPOCH, |reading| reading.now);
            if !made.is_empty() {
                refunds.push(Box::pin(self.refund_at(*store, made, charged_at)));
            }
        }
        join_all(refunds).await;
    }

    async fn refund_at(&self, store: usize, charges: Vec<Charge<'_>>, charged_at: Timestamp) {
        let (op, link) = (Op::Refund { charged_at }, &self.links[store]);
        let sent = charges.iter().map(SentCharge::new).collect();
        if link.call(Some(op), sent).await.is_err() {
            link.note_unknown(&charges.iter().collect::<Vec<_>>());
        }
    }

    /// Notes what the node does not know of a request that failed.
    fn note_failure(&self, op: Op, charges: &[&Charge<'_>], store: usize, failure: Failure) {
        let link = &self.links[store];
        match failure {
            // A charge whose refund does not reach the store stays.
            Failure::NotApplied if matches!(op, Op::Refund { .. }) => link.note_unknown(charges),
            Failure::NotApplied => {}
            Failure::Unknown { has_run } => {
                if matches!(op, Op::Charge | Op::Refund { .. } | Op::Force) {
                    link.note_unknown(charges);
                }
                if op == Op::Force && !has_run {
                    link.note_lost_flush(charges);
                }
            }
        }
    }
}

impl Store for SimStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let shares = self.ask_stores(op, charges).await;
        let refuses = |share: &StoreShare| {
            let readings = share.outcome.as_ref().into_iter().flatten();
            readings.into_iter().any(|reading| reading.verdict.refuses())
        };
        if op == Op::Charge && shares.len() > 1 && shares.iter().any(refuses) {
            self.roll_back(charges, &shares).await;
        }
        let mut error = StoreError::not_applied("no answer");
        let mut has_failed = false;
        for StoreShare { store, which, outcome } in shares {
            match outcome {
                Ok(answer) => {
                    which.iter().zip(answer).for_each(|(i, reading)| readings[*i] = reading);
                    error.answered.extend(which);
                }
                Err(failure) => {
                    has_failed = true;
                    let failed: Vec<&Charge<'_>> = which.iter().map(|i| &charges[*i]).collect();
                    self.note_failure(op, &failed, store, failure);
                    if matches!(failure, Failure::Unknown { .. }) {
                        error.unknown.extend(which);
                    }
                }
            }
        }
        if has_failed { Err(error) } else { Ok(AnsweredBy::Store) }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let answer = self.links[0].call(None, Vec::new()).await;
        answer.map(|(_, now)| now).map_err(|_| StoreError::not_applied("no answer"))
    }

    fn node_count(&self) -> u32 {
        self.nodes.load(Relaxed)
    }
}

type PinnedCall<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs calls at the same time, and returns their results in the same order.
async fn join_all<F: Future + Unpin>(mut calls: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = calls.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (call, result) in calls.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = Pin::new(call).poll(context)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}
