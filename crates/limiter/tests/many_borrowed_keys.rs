//! Many keys of one node borrow at the same time, from regions whose links carry a bounded number
//! of questions, under virtual time: the more keys, the less each gets, but nothing is lost.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use common::node::SharingNode;
use common::region::{BatchFuture, RTT, regional_rules, run_batches};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_fixtures::faulty_store::FaultyStore;
use tidegate_fixtures::server::ManualMemoryStore;
use tidegate_limiter::{DEFAULT_LEASE_BYTES, LeaseClock, Limiter};
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};

const SECOND: Micros = Micros::from_secs(1);

/// How many questions the server's link to a region has in flight; the others wait in its queue.
const LINK_CAPACITY: usize = 1024;

/// How long a call to another region may take: half of the time for which units are borrowed.
const DEADLINE: Micros = Micros::from_millis(250);

const EVERY: u64 = 100_000;

const LENDERS: [&str; 2] = ["us", "ap"];

/// The questions that a link carries in a second.
const LINK_RATE: u64 = LINK_CAPACITY as u64 * 1_000_000 / RTT.get();

const RULES: &str = "rules:
  - id: r
    key_by: user_id
    limit: 10/s burst 20
    consistency: leased
    regions: { shares: { eu: 50%, us: 30%, ap: 20% }, borrow: {} }";

/// The link to another region.
#[derive(Clone)]
struct NarrowLink {
    store: Arc<ManualMemoryStore>,
    clock: ManualClock,
    state: Arc<Mutex<LinkState>>,
}

#[derive(Default)]
struct LinkState {
    in_flight: usize,
    /// The questions that wait until others have been answered.
    waiting: VecDeque<u64>,
    questions: u64,
    /// The instants at which questions were sent: one for each batch, or less.
    calls: u64,
    last_call: Timestamp,
    most_in_flight: usize,
    wakers: Vec<Waker>,
}

impl NarrowLink {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap()
    }

    async fn wait_until(&self, is_over: impl Fn(&Self) -> bool) {
        poll_fn(|context| {
            if is_over(self) {
                return Poll::Ready(());
            }
            self.lock().wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    async fn travel(&self) {
        let arrival = self.clock.now().plus(Micros::new(RTT.get() / 2));
        self.wait_until(|link| link.clock.now() >= arrival).await;
    }

    /// Waits until the link has room for a question. `false` if its deadline passes before.
    async fn enter(&self, deadline: Timestamp) -> bool {
        let number = {
            let mut state = self.lock();
            state.questions += 1;
            state.calls += u64::from(state.last_call != self.clock.now());
            state.last_call = self.clock.now();
            let number = state.questions;
            state.waiting.push_back(number);
            number
        };
        let is_next = |state: &LinkState| {
            state.in_flight < LINK_CAPACITY && state.waiting.front() == Some(&number)
        };
        self.wait_until(|link| link.clock.now() >= deadline || is_next(&link.lock())).await;
        let mut state = self.lock();
        let enters = is_next(&state) && self.clock.now() < deadline;
        state.waiting.retain(|waiting| *waiting != number);
        state.in_flight += usize::from(enters);
        state.most_in_flight = state.most_in_flight.max(state.in_flight + state.waiting.len());
        enters
    }
}

impl Store for NarrowLink {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let deadline = self.clock.now().plus(DEADLINE);
        if !self.enter(deadline).await {
            return Err(StoreError::outcome_unknown("deadline", charges.len()));
        }
        self.travel().await;
        self.store.apply_now(op, charges, readings);
        self.travel().await;
        self.lock().in_flight -= 1;
        match self.clock.now() <= deadline {
            true => Ok(AnsweredBy::Store),
            false => Err(StoreError::outcome_unknown("deadline", charges.len())),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}

/// A node in Europe with demand for many keys, three times what the share of Europe admits.
struct CrowdedNode {
    clock: ManualClock,
    node: Arc<SharingNode>,
    links: Vec<NarrowLink>,
    running: Vec<BatchFuture>,
    names: Vec<String>,
    /// Borrowed units that each key has spent.
    borrowed: Vec<u64>,
    requests: usize,
}

impl CrowdedNode {
    fn new(keys: usize) -> Self {
        let clock = common::clock();
        let store = || Arc::new(MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES));
        let link = |_| NarrowLink { store: store(), clock: clock.clone(), state: Arc::default() };
        let own_store = FaultyStore::new(store(), 1);
        let lease_clock = clock.clone();
        let limiter = Limiter::new(own_store.clone(), regional_rules(RULES, "eu"))
            .with_leases(LeaseClock::new(move || lease_clock.now()), DEFAULT_LEASE_BYTES)
            .with_lenders(LENDERS);
        Self {
            node: Arc::new(SharingNode { limiter, store: own_store }),
            links: LENDERS.iter().map(link).collect(),
            running: Vec::new(),
            names: (0..keys).map(|key| key.to_string()).collect(),
            borrowed: vec![0; keys],
            requests: 0,
            clock,
        }
    }

    /// Each key gets 15 requests a second, all at regular intervals.
    fn run(&mut self, span: Micros) {
        for _ in 0..span.get() / 1_000 {
            self.clock.advance(Micros::from_millis(1));
            for _ in 0..self.names.len() * 15 / 1_000 {
                self.request();
            }
            let passed = self.clock.now().as_micros();
            if passed.is_multiple_of(10_000) {
                self.node.sweep();
                self.node.store.take_recorded_calls();
            }
            if passed.is_multiple_of(EVERY) {
                self.start_batches();
            }
            for link in &self.links {
                let wakers = std::mem::take(&mut link.lock().wakers);
                wakers.into_iter().for_each(Waker::wake);
            }
            let mut context = Context::from_waker(Waker::noop());
            self.running.retain_mut(|batch| batch.as_mut().poll(&mut context).is_pending());
        }
    }

    fn request(&mut self) {
        let key = self.requests % self.names.len();
        self.requests += 1;
        let facts = [("user_id", &*self.names[key])].into_iter().collect();
        let by = self.node.decide_waiting(&facts, 1).answered_by();
        self.borrowed[key] += u64::from(by == AnsweredBy::Borrowed);
    }

    fn start_batches(&mut self) {
        for (lender, link) in LENDERS.iter().zip(&self.links) {
            while let Some(batch) = self.node.limiter.pop_borrow_batch(lender) {
                let (node, link) = (Arc::clone(&self.node), link.clone());
                self.running.push(Box::pin(run_batches(node, lender, link, batch)));
            }
        }
    }

    fn run_second(&mut self) -> CrowdSecond {
        let totals = |crowd: &Self| {
            let lenders = crowd.node.limiter.borrow_stats().unwrap().lenders;
            let questions = lenders.iter().map(|it| (it.questions, it.unanswered));
            (crowd.borrowed.iter().sum::<u64>(), questions.collect::<Vec<_>>())
        };
        let (borrowed, questions) = totals(self);
        self.run(SECOND);
        let after = totals(self);
        let difference = |((asked, lost), before): (&(u64, u64), &(u64, u64))| {
            (asked - before.0, lost - before.1)
        };
        CrowdSecond {
            borrowed: after.0 - borrowed,
            questions: after.1.iter().zip(&questions).map(difference).collect(),
        }
    }

    /// The most questions that a link had at once, sent or waiting for others.
    fn most_in_flight(&self) -> usize {
        self.links.iter().map(|link| link.lock().most_in_flight).max().unwrap()
    }
}

/// What happened in the last second.
#[derive(Debug)]
struct CrowdSecond {
    /// Borrowed units that were spent.
    borrowed: u64,
    /// By region: questions that were answered or given up, and those that were given up.
    questions: Vec<(u64, u64)>,
}

impl CrowdSecond {
    #[track_caller]
    fn assert_links_are_used(&self) {
        for (questions, unanswered) in &self.questions {
            assert_eq!(*unanswered, 0, "{self:?}");
            let carried = LINK_RATE * 8 / 10..=LINK_RATE * 11 / 10;
            assert!(carried.contains(questions), "{LINK_RATE}: {self:?}");
        }
        assert!(self.borrowed >= LINK_RATE * 2 * 8 / 10, "at least one unit a question: {self:?}");
    }
}

#[test]
fn thousand_keys_borrow_all_that_is_lent() {
    let mut crowd = CrowdedNode::new(1_000);
    crowd.run_second();
    let second = crowd.run_second();
    // The other regions lend what refills: five a second for each key.
    assert!((4_500..=5_500).contains(&second.borrowed), "{second:?}");
    assert!(second.questions.iter().all(|(_, unanswered)| *unanswered == 0), "{second:?}");
    assert!(crowd.most_in_flight() <= LINK_CAPACITY);
}

#[test]
fn tenthousand_keys_borrow_what_links_carry() {
    let mut crowd = CrowdedNode::new(10_000);
    crowd.run_second();
    for _ in 0..3 {
        crowd.run_second().assert_links_are_used();
    }
    assert!(crowd.most_in_flight() <= LINK_CAPACITY, "{}", crowd.most_in_flight());
    // Each has had its turn.
    let starved = crowd.borrowed.iter().filter(|units| **units == 0).count();
    assert_eq!(starved, 0, "of 10000 keys");
    for link in &crowd.links {
        let LinkState { questions, calls, .. } = *link.lock();
        assert!(questions >= 128 * calls, "{questions} questions in {calls} batches");
    }
}

/// More than fit into the memory of the node's leases.
#[test]
fn hundredthousand_keys_borrow_what_links_carry() {
    let mut crowd = CrowdedNode::new(100_000);
    crowd.run_second();
    crowd.run_second().assert_links_are_used();
    assert!(crowd.most_in_flight() <= LINK_CAPACITY, "{}", crowd.most_in_flight());
}
