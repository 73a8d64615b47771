//! The store as a node sees it: a connection to the store's machine.
//!
//! The model is one TCP connection per node. Messages arrive in order, late, or not at all because
//! the connection was cut; TCP neither duplicates nor reorders. A message that was sent before the
//! node gave up may still run later. When a connection is cut, or a deadline passes, the node
//! cannot know whether the store ran the request, so its outcome is unknown.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Role, Store, StoreError};
use tidegate_core::time::Timestamp;

use crate::random::Random;
use crate::world::{Event, World};

/// A charge that travels in a message.
#[derive(Clone, Debug)]
pub(crate) struct SentCharge {
    pub(crate) rule: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    pub(crate) role: Role,
    pub(crate) lent: bool,
}

/// A request to the store.
pub(crate) struct StoreMessage {
    pub(crate) node: usize,
    /// The connection on which it travels.
    pub(crate) connection: u64,
    /// `None` asks for the time only.
    pub(crate) op: Option<Op>,
    pub(crate) charges: Vec<SentCharge>,
    pub(crate) call: Call,
}

/// The answer that a caller waits for. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Call(Arc<Mutex<CallState>>);

#[derive(Default)]
struct CallState {
    outcome: Option<Result<(Vec<Reading>, Timestamp), Failure>>,
    waker: Option<Waker>,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request certainly did not run.
    NotApplied,
    /// It may have run.
    Unknown,
}

/// A node's connection. Clones share it.
#[derive(Clone)]
pub(crate) struct NodeLink {
    pub(crate) node: usize,
    world: World,
    state: Arc<Mutex<LinkState>>,
    /// Nodes that this one believes to live.
    pub(crate) nodes: Arc<AtomicU32>,
    /// The cost of charges and refunds whose outcome the node never learned, by counter.
    pub(crate) unknown: Arc<Mutex<Vec<(Fingerprint, u64)>>>,
    calls: Arc<AtomicU64>,
}

struct LinkState {
    random: Random,
    connection: u64,
    pending: Vec<Call>,
    last_request_at: u64,
    last_answer_at: u64,
    deadline: u64,
    usual_delay: u64,
    /// Extra delay of each message while the network is slow.
    extra_delay: u64,
    /// Until when messages do not arrive; those on the way arrive then.
    stalled_until: u64,
    /// Whether connections are refused.
    is_refused: bool,
    failures: u32,
    /// Until when the breaker fails calls at once.
    open_until: u64,
}

impl Call {
    fn finish(&self, outcome: Result<(Vec<Reading>, Timestamp), Failure>) {
        let mut state = self.lock();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
        }
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeLink {
    pub(crate) fn new(node: usize, world: &World, random: Random, timing: LinkTiming) -> Self {
        let state = LinkState {
            random,
            connection: 0,
            pending: Vec::new(),
            last_request_at: 0,
            last_answer_at: 0,
            deadline: timing.deadline,
            usual_delay: timing.usual_delay,
            extra_delay: 0,
            stalled_until: 0,
            is_refused: false,
            failures: 0,
            open_until: 0,
        };
        Self {
            node,
            world: world.clone(),
            state: Arc::new(Mutex::new(state)),
            nodes: Arc::new(AtomicU32::new(1)),
            unknown: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Cuts the connection: messages on the way are lost.
    pub(crate) fn cut(&self, is_refused: bool) {
        let mut state = self.lock();
        state.connection += 1;
        state.is_refused = is_refused;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        pending.iter().for_each(|call| call.finish(Err(Failure::Unknown)));
    }

    /// Messages do not arrive before an instant.
    pub(crate) fn stall_until(&self, at: u64) {
        self.lock().stalled_until = at;
    }

    pub(crate) fn set_extra_delay(&self, micros: u64) {
        self.lock().extra_delay = micros;
    }

    pub(crate) fn reconnect(&self) {
        let mut state = self.lock();
        (state.is_refused, state.stalled_until, state.extra_delay) = (false, 0, 0);
    }

    pub(crate) fn is_up(&self) -> bool {
        let state = self.lock();
        !state.is_refused && state.stalled_until <= self.world.now()
    }

    /// Whether a message that was sent on this connection still arrives.
    pub(crate) fn carries(&self, connection: u64) -> bool {
        self.lock().connection == connection
    }

    /// The number of calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// When an answer that is sent now arrives at the node.
    pub(crate) fn answer_arrives_at(&self) -> u64 {
        let now = self.world.now();
        let mut state = self.lock();
        let at = (now + state.delay()).max(state.last_answer_at).max(state.stalled_until);
        state.last_answer_at = at;
        at
    }

    /// Delivers an answer to the call.
    pub(crate) fn deliver(&self, call: &Call, connection: u64, answer: (Vec<Reading>, Timestamp)) {
        if self.carries(connection) {
            call.finish(Ok(answer));
        }
    }

    async fn call(
        &self,
        op: Option<Op>,
        charges: Vec<SentCharge>,
    ) -> Result<(Vec<Reading>, Timestamp), Failure> {
        self.calls.fetch_add(1, Relaxed);
        let call = Call::default();
        let Some(deadline) = self.send(op, charges, &call) else {
            return Err(Failure::NotApplied);
        };
        let mut has_timer = false;
        let outcome = poll_fn(|context| {
            let mut state = call.lock();
            // An answer that has arrived counts, even if the node was stopped past the deadline.
            if let Some(outcome) = state.outcome.take() {
                return Poll::Ready(outcome);
            }
            if self.world.now() >= deadline {
                return Poll::Ready(Err(Failure::Unknown));
            }
            state.waker = Some(context.waker().clone());
            if !has_timer {
                has_timer = true;
                self.world.schedule(deadline, Event::Wake(context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
        self.note_outcome(&call, outcome.is_ok());
        outcome
    }

    /// Sends a message, and returns the deadline. `None` if it was not sent.
    fn send(&self, op: Option<Op>, charges: Vec<SentCharge>, call: &Call) -> Option<u64> {
        let now = self.world.now();
        let mut state = self.lock();
        if state.is_refused || now < state.open_until {
            return None;
        }
        let at = (now + state.delay()).max(state.last_request_at).max(state.stalled_until);
        state.last_request_at = at;
        state.pending.push(call.clone());
        let (node, connection, call) = (self.node, state.connection, call.clone());
        let message = StoreMessage { node, connection, op, charges, call };
        self.world.schedule(at, Event::Message(Box::new(message)));
        Some(now + state.deadline)
    }

    /// A breaker: after three failures in a row calls fail at once for a while.
    fn note_outcome(&self, call: &Call, is_ok: bool) {
        let now = self.world.now();
        let mut state = self.lock();
        state.pending.retain(|pending| !Arc::ptr_eq(&pending.0, &call.0));
        state.failures = if is_ok { 0 } else { state.failures + 1 };
        if state.failures >= 3 {
            state.failures = 0;
            state.open_until = now + 20_000 + state.random.below(30_000);
        }
    }

    fn note_unknown(&self, charges: &[Charge<'_>]) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.extend(charges.iter().map(|charge| (charge.key.fingerprint, charge.cost)));
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkState {
    fn delay(&mut self) -> u64 {
        let usual = self.random.long_tailed(self.usual_delay, 8);
        usual + self.random.below(self.extra_delay + 1)
    }
}

/// How fast a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkTiming {
    /// How long a node waits for an answer.
    pub(crate) deadline: u64,
    /// One way, usually.
    pub(crate) usual_delay: u64,
}

/// The store that a node's limiter uses.
pub(crate) struct SimStore(pub(crate) NodeLink);

impl Store for SimStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let sent = charges.iter().map(|charge| SentCharge {
            rule: charge.key.rule.to_owned(),
            fingerprint: charge.key.fingerprint,
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            lent: charge.lent,
        });
        match self.0.call(Some(op), sent.collect()).await {
            Ok((answer, _)) => {
                readings.copy_from_slice(&answer);
                Ok(AnsweredBy::Store)
            }
            Err(Failure::NotApplied) => {
                // A charge whose refund does not reach the store stays.
                if matches!(op, Op::Refund { .. }) {
                    self.0.note_unknown(charges);
                }
                Err(StoreError::not_applied("connection refused"))
            }
            Err(Failure::Unknown) => {
                if matches!(op, Op::Charge | Op::Refund { .. } | Op::Force) {
                    self.0.note_unknown(charges);
                }
                Err(StoreError::outcome_unknown("no answer", charges.len()))
            }
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let answer = self.0.call(None, Vec::new()).await;
        answer.map(|(_, now)| now).map_err(|_| StoreError::not_applied("no answer"))
    }

    fn node_count(&self) -> u32 {
        self.0.nodes.load(Relaxed)
    }
}
