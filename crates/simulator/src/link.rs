//! A node's connection to one store.
//!
//! Messages arrive late, or not at all because the connection was cut. On some networks each
//! message takes its own way, so they overtake each other. What was sent before a cut, or before
//! the node gave up, may still run later: the node cannot know, so the outcome is unknown.
//!
//! The network also repeats messages. A node takes the first answer only. The store runs a repeated
//! request again, except a refund, which would then exceed any bound. That is more than a store
//! ever sees: TCP discards repeated segments, and Tidegate sends no command twice.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Role};
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

impl SentCharge {
    pub(crate) fn new(charge: &Charge<'_>) -> Self {
        Self {
            rule: charge.key.rule.to_owned(),
            fingerprint: charge.key.fingerprint,
            policy: *charge.policy,
            cost: charge.cost,
            role: charge.role,
            lent: charge.lent,
        }
    }
}

/// A request to the store.
#[derive(Clone)]
pub(crate) struct StoreMessage {
    pub(crate) node: usize,
    pub(crate) store: usize,
    /// The connection on which it travels.
    pub(crate) connection: u64,
    /// Whether it still arrives after its connection was cut.
    pub(crate) survives_cut: bool,
    /// Whether the network made this copy.
    pub(crate) is_repeated: bool,
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
    has_run: bool,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request certainly did not run.
    NotApplied,
    /// It may have run. The node does not know whether it has, but the checks do.
    Unknown { has_run: bool },
}

/// A node's connection. Clones share it.
#[derive(Clone)]
pub(crate) struct NodeLink {
    pub(crate) node: usize,
    store: usize,
    world: World,
    state: Arc<Mutex<LinkState>>,
    log: Arc<Mutex<LinkLog>>,
    calls: Arc<AtomicU64>,
}

/// What the checks need to know of a connection.
#[derive(Default)]
pub(crate) struct LinkLog {
    /// The cost of charges and refunds whose outcome the node never learned, by counter.
    pub(crate) unknown: Vec<(Fingerprint, u64)>,
    /// Units of asynchronous counters in flushes that were sent.
    pub(crate) flushed: u64,
    /// Flushes that had not run when the node gave up on them.
    pub(crate) lost_flushes: Vec<LostFlush>,
}

/// A flush that had not run when the node gave up on it: the store may never count the units.
#[derive(Debug)]
pub(crate) struct LostFlush {
    pub(crate) rule: String,
    pub(crate) store: usize,
    pub(crate) units: u64,
}

struct LinkState {
    random: Random,
    connection: u64,
    pending: Vec<Call>,
    last_request_at: u64,
    last_answer_at: u64,
    timing: LinkTiming,
    /// Extra delay of each message while the network is slow.
    extra_delay: u64,
    /// Until when messages do not arrive; those on the way arrive then.
    stalled_until: u64,
    /// Whether connections are refused.
    is_refused: bool,
    /// Which messages vanish.
    lost: LostMessages,
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

    /// The store runs the request.
    pub(crate) fn mark_run(&self) {
        self.lock().has_run = true;
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeLink {
    pub(crate) fn new(
        (node, store): (usize, usize),
        world: &World,
        random: Random,
        timing: LinkTiming,
    ) -> Self {
        let state = LinkState {
            random,
            connection: 0,
            pending: Vec::new(),
            last_request_at: 0,
            last_answer_at: 0,
            timing,
            extra_delay: 0,
            stalled_until: 0,
            is_refused: false,
            lost: LostMessages::None,
            failures: 0,
            open_until: 0,
        };
        Self {
            node,
            store,
            world: world.clone(),
            state: Arc::new(Mutex::new(state)),
            log: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Cuts the connection: answers on the way are lost, and some requests.
    pub(crate) fn cut(&self, is_refused: bool) {
        let mut state = self.lock();
        state.connection += 1;
        state.is_refused = is_refused;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for call in pending {
            let has_run = call.lock().has_run;
            call.finish(Err(Failure::Unknown { has_run }));
        }
    }

    /// Messages do not arrive before an instant.
    pub(crate) fn stall_until(&self, at: u64) {
        self.lock().stalled_until = at;
    }

    pub(crate) fn set_extra_delay(&self, micros: u64) {
        self.lock().extra_delay = micros;
    }

    /// These messages vanish from now on, without an error.
    pub(crate) fn lose(&self, lost: LostMessages) {
        self.lock().lost = lost;
    }

    /// Whether answers of the store vanish.
    pub(crate) fn loses_answers(&self) -> bool {
        self.lock().lost.answers()
    }

    pub(crate) fn reconnect(&self) {
        let mut state = self.lock();
        state.lost = LostMessages::None;
        (state.is_refused, state.stalled_until, state.extra_delay) = (false, 0, 0);
    }

    pub(crate) fn is_up(&self) -> bool {
        let state = self.lock();
        let is_carrying = !state.is_refused && state.lost == LostMessages::None;
        is_carrying && state.stalled_until <= self.world.now()
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
        let mut at = (now + state.delay()).max(state.stalled_until);
        if !state.timing.reorders {
            at = at.max(state.last_answer_at);
            state.last_answer_at = at;
        }
        at
    }

    /// Whether the network repeats a message.
    pub(crate) fn repeats(&self) -> bool {
        self.lock().repeats(self.world.now())
    }

    /// Delivers an answer to the call.
    pub(crate) fn deliver(&self, call: &Call, connection: u64, answer: (Vec<Reading>, Timestamp)) {
        if self.carries(connection) {
            call.finish(Ok(answer));
        }
    }

    pub(crate) async fn call(
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
                return Poll::Ready(Err(Failure::Unknown { has_run: state.has_run }));
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
        let mut at = (now + state.delay()).max(state.stalled_until);
        if !state.timing.reorders {
            at = at.max(state.last_request_at);
            state.last_request_at = at;
        }
        state.pending.push(call.clone());
        let message = StoreMessage {
            node: self.node,
            store: self.store,
            connection: state.connection,
            survives_cut: state.random.percent(50),
            is_repeated: false,
            op,
            charges,
            call: call.clone(),
        };
        if !matches!(op, Some(Op::Refund { .. })) && state.repeats(now) && !state.lost.requests() {
            let again = Box::new(StoreMessage { is_repeated: true, ..message.clone() });
            let later = at + state.delay();
            self.world.schedule(later, Event::Message(again));
        }
        self.log().flushed += message.flushed_units();
        if !state.lost.requests() {
            self.world.schedule(at, Event::Message(Box::new(message)));
        }
        Some(now + state.timing.deadline)
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

    /// Notes charges or refunds whose outcome the node never learns.
    pub(crate) fn note_unknown(&self, charges: &[&Charge<'_>]) {
        let unknown = charges.iter().map(|charge| (charge.key.fingerprint, charge.cost));
        self.log().unknown.extend(unknown);
    }

    /// Notes flushes that had not run when the node gave up.
    pub(crate) fn note_lost_flush(&self, charges: &[&Charge<'_>]) {
        let lost = charges.iter().filter(|charge| charge.lent && charge.cost > 0);
        let lost = lost.map(|charge| LostFlush {
            rule: charge.key.rule.to_owned(),
            store: self.store,
            units: charge.cost,
        });
        self.log().lost_flushes.extend(lost);
    }

    /// What the checks need to know.
    pub(crate) fn log(&self) -> MutexGuard<'_, LinkLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkState {
    fn repeats(&mut self, now: u64) -> bool {
        let LinkTiming { repeated_percent, repeats_until, .. } = self.timing;
        self.random.percent(repeated_percent) && now < repeats_until
    }

    fn delay(&mut self) -> u64 {
        let usual = self.random.long_tailed(self.timing.usual_delay, self.timing.tail);
        usual + self.random.below(self.extra_delay + 1)
    }
}

impl StoreMessage {
    /// Units of asynchronous counters that it reports.
    pub(crate) fn flushed_units(&self) -> u64 {
        match self.op {
            Some(Op::Force) => self.charges.iter().filter(|it| it.lent).map(|it| it.cost).sum(),
            _ => 0,
        }
    }
}

/// Which messages between a node and a store vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostMessages {
    /// None.
    None,
    /// Those to the store.
    Requests,
    /// Those to the node: the store does what it is asked, and the node never learns it.
    Answers,
    /// All.
    All,
}

impl LostMessages {
    fn requests(self) -> bool {
        matches!(self, Self::Requests | Self::All)
    }

    fn answers(self) -> bool {
        matches!(self, Self::Answers | Self::All)
    }
}

/// How a connection carries messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkTiming {
    /// How long a node waits for an answer.
    pub(crate) deadline: u64,
    /// One way, usually.
    pub(crate) usual_delay: u64,
    /// How many times as long a message takes at most.
    pub(crate) tail: u64,
    /// Whether messages overtake each other.
    pub(crate) reorders: bool,
    /// How many of 100 messages the network repeats, until an instant.
    pub(crate) repeated_percent: u64,
    pub(crate) repeats_until: u64,
}
