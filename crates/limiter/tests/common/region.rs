//! Regions with a store each, and nodes that borrow across a slow network, under virtual time.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Secret;
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::{FaultyStore, StoreFault, small_store};
use tidegate_fixtures::server::ManualMemoryStore;
use tidegate_limiter::{BorrowBatch, BorrowStats, Decision, LeaseClock, Limiter};
use tidegate_rules::{Document, Facts, RuleSet};

use super::node::SharingNode;
use super::{clock, facts, poll_ready};

pub(crate) const EUROPE: usize = 0;
pub(crate) const AMERICA: usize = 1;
pub(crate) const ASIA: usize = 2;
pub(crate) const REGIONS: [&str; 3] = ["eu", "us", "ap"];

/// The time of a call between two regions.
pub(crate) const RTT: Micros = Micros::from_millis(150);

/// The example of the documents.
pub(crate) const LIMIT: &str = "rules:
  - id: r
    key_by: user_id
    limit: 1000/s burst 2000
    consistency: leased
    regions: { shares: { eu: 50%, us: 30%, ap: 20% }, borrow: {} }";

/// The facts of every request.
pub(crate) fn user() -> Facts<'static> {
    facts(&[("user_id", "ann")])
}

/// The rules of a node in a region, which shares its store with others.
pub(crate) fn regional_rules(source: &str, region: &str) -> RuleSet {
    let mut document = Document::parse("test", source).unwrap_or_else(|error| panic!("{error}"));
    document.set_region(Some(region));
    let rules = RuleSet::compile(&document, Secret::UNSET);
    rules.unwrap_or_else(|error| panic!("{error}")).for_shared_store()
}

/// A connection to the store of another region.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    store: FaultyStore,
    clock: ManualClock,
    one_way: Micros,
}

impl Store for RemoteStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.travel().await;
        let answer = self.store.apply(op, charges, readings).await;
        self.travel().await;
        answer
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }
}

impl RemoteStore {
    async fn travel(&self) {
        let arrival = self.clock.now().plus(self.one_way);
        poll_fn(|context| {
            if self.clock.now() >= arrival {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Runs a batch, and those that had to wait for it.
pub(crate) async fn run_batches<R: Store>(
    node: Arc<SharingNode>,
    lender: &str,
    store: R,
    first: BorrowBatch,
) {
    let mut next = Some(first);
    while let Some(batch) = next {
        node.limiter.run_borrow_batch(batch, &store).await;
        next = node.limiter.pop_full_borrow_batch(lender);
    }
}

pub(crate) type BatchFuture = Pin<Box<dyn Future<Output = ()>>>;

/// All regions.
pub(crate) struct Continent {
    pub(crate) clock: ManualClock,
    /// By region.
    pub(crate) nodes: Vec<Vec<Arc<SharingNode>>>,
    remotes: Vec<RemoteStore>,
    running: Vec<BatchFuture>,
    /// The number of batches, by the region of the node.
    pub(crate) batches: BTreeMap<usize, usize>,
    steps: u64,
    next_batch: Timestamp,
    /// The level of a bucket with the whole limit that counts what was admitted.
    used: f64,
    pub(crate) most_used: f64,
    /// The admitted requests, by what decided them and by region.
    pub(crate) by: BTreeMap<&'static str, u64>,
    pub(crate) admitted: Vec<u64>,
}

impl Continent {
    /// Regions with this many nodes each, 75 ms from each other.
    pub(crate) fn new(source: &str, nodes: u32) -> Self {
        let clock = clock();
        let stores: Vec<Arc<ManualMemoryStore>> =
            REGIONS.iter().map(|_| Arc::new(small_store(&clock))).collect();
        let remote = |store: &Arc<ManualMemoryStore>| RemoteStore {
            store: FaultyStore::new(Arc::clone(store), nodes),
            clock: clock.clone(),
            one_way: Micros::new(RTT.get() / 2),
        };
        let region = |at: usize| {
            let node = |_| {
                let store = FaultyStore::new(Arc::clone(&stores[at]), nodes);
                let lease_clock = clock.clone();
                let lease_clock = LeaseClock::new(move || lease_clock.now());
                let others = REGIONS.iter().filter(|name| **name != REGIONS[at]).copied();
                let limiter = Limiter::new(store.clone(), regional_rules(source, REGIONS[at]))
                    .with_leases(lease_clock, 1 << 24)
                    .with_lenders(others);
                Arc::new(SharingNode { limiter, store })
            };
            (0..nodes).map(node).collect()
        };
        Self {
            nodes: (0..REGIONS.len()).map(region).collect(),
            remotes: stores.iter().map(remote).collect(),
            running: Vec::new(),
            batches: BTreeMap::new(),
            steps: 0,
            next_batch: clock.now(),
            used: 0.0,
            most_used: 0.0,
            by: BTreeMap::new(),
            admitted: vec![0; REGIONS.len()],
            clock,
        }
    }

    /// Passes time. In each millisecond, this many requests arrive in these regions. Returns how
    /// many were admitted.
    pub(crate) fn run(&mut self, span: Micros, demand: &[(usize, u64)]) -> u64 {
        let mut admitted = 0;
        for _ in 0..span.get() / 1_000 {
            self.used = (self.used - 1.0).max(0.0);
            for (region, requests) in demand {
                for _ in 0..*requests {
                    admitted += u64::from(self.request(*region).is_allowed());
                }
            }
            self.step();
        }
        admitted
    }

    /// A request to one of a region's nodes, in turn.
    pub(crate) fn request(&mut self, region: usize) -> Decision {
        self.steps += 1;
        let nodes = &self.nodes[region];
        let at = usize::try_from(self.steps).unwrap() % nodes.len();
        let decision = nodes[at].decide_waiting(&user(), 1);
        if decision.is_allowed() {
            self.admitted[region] += 1;
            self.used += 1.0;
            self.most_used = self.most_used.max(self.used);
            *self.by.entry(decision.answered_by().name()).or_default() += 1;
        }
        decision
    }

    /// Passes a millisecond, with the tasks that a server runs.
    pub(crate) fn step(&mut self) {
        self.clock.advance(Micros::from_millis(1));
        let now = self.clock.now();
        let is_due = now >= self.next_batch;
        if is_due {
            self.next_batch = now.plus(Micros::from_millis(100));
        }
        for region in 0..REGIONS.len() {
            for node in self.nodes[region].clone() {
                node.sweep();
                if is_due {
                    self.start_batches(region, &node);
                }
            }
        }
        let mut context = Context::from_waker(Waker::noop());
        self.running.retain_mut(|batch| batch.as_mut().poll(&mut context).is_pending());
    }

    fn start_batches(&mut self, region: usize, node: &Arc<SharingNode>) {
        for (at, name) in REGIONS.iter().enumerate().filter(|(at, _)| *at != region) {
            while let Some(batch) = node.limiter.pop_borrow_batch(name) {
                *self.batches.entry(region).or_default() += 1;
                let (node, store) = (Arc::clone(node), self.remotes[at].clone());
                self.running.push(Box::pin(run_batches(node, name, store, batch)));
            }
        }
    }

    /// The fault of all connections between regions.
    pub(crate) fn set_remote_fault(&self, fault: &StoreFault) {
        self.remotes.iter().for_each(|remote| remote.store.set_fault(fault.clone()));
    }

    /// What a region's store has left.
    pub(crate) fn left(&self, region: usize) -> u64 {
        let peek = poll_ready(self.nodes[region][0].limiter.peek(&user(), None, 1));
        peek.tightest().unwrap().1.numbers.unwrap().remaining
    }

    pub(crate) fn stats(&self, region: usize) -> BorrowStats {
        self.nodes[region][0].limiter.borrow_stats().unwrap()
    }
}
