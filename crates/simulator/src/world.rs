//! What all parts of a simulation share: true time, the events to come, and the trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::clock::TrueTime;
use crate::link::StoreMessage;
use crate::store_server::StoreAnswer;
use crate::trace::Trace;

/// Handle to the shared parts. Clones share them.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) time: TrueTime,
    events: Arc<Mutex<EventQueue>>,
    pub(crate) trace: Trace,
}

#[derive(Default)]
struct EventQueue {
    heap: BinaryHeap<Reverse<QueuedEvent>>,
    sequence: u64,
}

/// Ordered by true time, then by when the event was scheduled.
struct QueuedEvent {
    at: u64,
    sequence: u64,
    event: Event,
}

/// Something that happens at an instant.
pub(crate) enum Event {
    /// A timer ends.
    Wake(Waker),
    /// A message reaches the store's machine.
    Message(Box<StoreMessage>),
    /// An answer reaches a node.
    Answer(Box<StoreAnswer>),
    /// The next request of a stream arrives.
    Arrival { stream: usize },
    /// A fault begins or ends.
    Fault(usize),
    /// The nodes report to the store that they live.
    Heartbeat,
    /// The checks run.
    Check,
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl World {
    pub(crate) fn new(keeps_trace: bool) -> Self {
        let time = TrueTime::default();
        Self { trace: Trace::new(time.clone(), keeps_trace), time, events: Arc::default() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(crate) fn schedule(&self, at: u64, event: Event) {
        let mut queue = self.lock();
        queue.sequence += 1;
        let sequence = queue.sequence;
        queue.heap.push(Reverse(QueuedEvent { at: at.max(self.now()), sequence, event }));
    }

    /// Moves time to the next event before `end`, and returns it.
    pub(crate) fn next_event(&self, end: u64) -> Option<Event> {
        let mut queue = self.lock();
        if queue.heap.peek().is_none_or(|Reverse(next)| next.at >= end) {
            return None;
        }
        let Reverse(next) = queue.heap.pop()?;
        self.time.advance_to(next.at);
        Some(next.event)
    }

    /// Completes at an instant of true time.
    pub(crate) async fn sleep_until(&self, at: u64) {
        let mut is_scheduled = false;
        poll_fn(|context| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !is_scheduled {
                is_scheduled = true;
                self.schedule(at, Event::Wake(context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }

    pub(crate) async fn sleep(&self, micros: u64) {
        self.sleep_until(self.now() + micros).await;
    }

    fn lock(&self) -> MutexGuard<'_, EventQueue> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
