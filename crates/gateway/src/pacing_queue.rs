//! Requests that wait their turn: a leaky bucket that queues lets them leave one after the other, at a
//! constant rate.
//!
//! The store says how long each waits. Timers are late now and then, and a late request must not be
//! followed at once by a punctual one; so each also waits until the one before it has left, and a
//! spacing longer. A client that gives up hands its place on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::key::Fingerprint;
use tidegate_limiter::QueueDelay;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How long a queue in which nobody waits is remembered after its last departure.
const IDLE_QUEUE_TTL: Duration = Duration::from_secs(60);

/// Every queue of a gateway.
#[derive(Debug)]
pub(super) struct PacingQueues {
    queues: Mutex<HashMap<Fingerprint, PacingQueue>>,
    waiting: AtomicUsize,
    max_waiting: usize,
    last_eviction: Mutex<Option<Instant>>,
}

/// One queue: its last place.
#[derive(Debug)]
struct PacingQueue {
    tail: oneshot::Receiver<PredecessorSignal>,
    position: u64,
    /// When a next one could leave if all were punctual.
    next_departure: Instant,
}

/// What one is told by the one ahead.
#[derive(Debug)]
enum PredecessorSignal {
    /// It has left, and the next may from then on.
    DepartAfter(Instant),
    /// It gave up: whoever was ahead of it is ahead of you.
    GaveUp(oneshot::Receiver<PredecessorSignal>),
}

/// A place in a queue, handed on when it is dropped.
#[derive(Debug)]
pub(super) struct QueueTicket {
    queues: Arc<PacingQueues>,
    queue: Fingerprint,
    position: u64,
    due: Instant,
    spacing: Duration,
    predecessor: Option<oneshot::Receiver<PredecessorSignal>>,
    successor: Option<oneshot::Sender<PredecessorSignal>>,
}

impl PacingQueues {
    pub(super) fn new(max_waiting: usize) -> Self {
        Self {
            queues: Mutex::default(),
            waiting: AtomicUsize::new(0),
            max_waiting,
            last_eviction: Mutex::default(),
        }
    }

    /// A place at the end of a queue; none if more wait already than may wait in all.
    pub(super) fn enqueue(self: &Arc<Self>, turn: &QueueDelay) -> Option<QueueTicket> {
        if self.waiting.fetch_add(1, Relaxed) >= self.max_waiting {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        let now = Instant::now();
        let (due, spacing) = (now + turn.delay.into(), turn.spacing.into());
        let (behind, tail) = oneshot::channel();
        let mut queues = self.queues.lock();
        self.evict_idle_queues(&mut queues, now);
        let number = queues.get(&turn.queue).map_or(0, |queue| queue.position + 1);
        let last = queues.insert(
            turn.queue,
            PacingQueue { tail, position: number, next_departure: due + spacing },
        );
        let (ahead, behind) = (last.map(|last| last.tail), Some(behind));
        drop(queues);
        let queues = Arc::clone(self);
        Some(QueueTicket {
            queues,
            queue: turn.queue,
            position: number,
            due,
            spacing,
            predecessor: ahead,
            successor: behind,
        })
    }

    /// Forgets queues in which nobody has been for a while.
    fn evict_idle_queues(&self, queues: &mut HashMap<Fingerprint, PacingQueue>, now: Instant) {
        let mut tidied = self.last_eviction.lock();
        if tidied.is_none_or(|tidied| tidied + IDLE_QUEUE_TTL < now) {
            *tidied = Some(now);
            queues.retain(|_, queue| queue.next_departure + IDLE_QUEUE_TTL > now);
        }
    }
}

impl QueueTicket {
    /// Waits until it is this one's turn, and leaves.
    pub(super) async fn wait_for_departure(&mut self) {
        sleep_until(self.due).await;
        while let Some(ahead) = &mut self.predecessor {
            match ahead.await {
                Ok(PredecessorSignal::DepartAfter(at)) => {
                    self.predecessor = None;
                    self.due = self.due.max(at);
                }
                Ok(PredecessorSignal::GaveUp(ahead)) => self.predecessor = Some(ahead),
                // Nobody is left who could say.
                Err(_) => self.predecessor = None,
            }
        }
        sleep_until(self.due).await;
        self.notify_successor(PredecessorSignal::DepartAfter(Instant::now() + self.spacing));
    }

    /// When it leaves at the earliest.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether nobody came after.
    pub(super) fn is_last(&self) -> bool {
        let queues = self.queues.queues.lock();
        queues.get(&self.queue).is_some_and(|queue| queue.position == self.position)
    }

    fn notify_successor(&mut self, what: PredecessorSignal) {
        if let Some(behind) = self.successor.take() {
            // Where nobody is behind, the queue itself keeps it for the next.
            let _ = behind.send(what);
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.queues.waiting.fetch_sub(1, Relaxed);
        // Given up, whoever is behind leaves when this one would have.
        let what = self
            .predecessor
            .take()
            .map_or(PredecessorSignal::DepartAfter(self.due), PredecessorSignal::GaveUp);
        self.notify_successor(what);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Micros;

    use super::*;

    fn turn(delay_ms: u64) -> QueueDelay {
        let queue = Fingerprint { hi: 1, lo: 2 };
        QueueDelay { queue, delay: Micros::from_millis(delay_ms), spacing: Micros::from_millis(10) }
    }

    #[tokio::test(start_paused = true)]
    async fn departures_keep_order_and_spacing() {
        let queues = Arc::new(PacingQueues::new(100));
        let start = Instant::now();
        let places: Vec<_> = (0..5).filter_map(|n| queues.enqueue(&turn(n * 10))).collect();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        // Asked in the wrong order, and the first one late by 7 ms.
        for (number, mut place) in places.into_iter().enumerate().rev() {
            let told = told.clone();
            tokio::spawn(async move {
                if number == 0 {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
                place.wait_for_departure().await;
                let _ = told.send((number, start.elapsed().as_millis()));
            });
        }
        drop(told);
        for (number, at) in [(0, 7), (1, 17), (2, 27), (3, 37), (4, 47)] {
            assert_eq!(heard.recv().await, Some((number, at)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_ticket_passes_predecessor_on() {
        let queues = Arc::new(PacingQueues::new(100));
        let start = Instant::now();
        let [first, second, third, fourth] = [0, 10, 20, 30].map(|ms| queues.enqueue(&turn(ms)));
        let (second, mut fourth) = (second.unwrap(), fourth.unwrap());
        assert!(!second.is_last());
        assert!(fourth.is_last());
        drop(second);
        drop(third);
        tokio::time::sleep(Duration::from_millis(25)).await;
        first.unwrap().wait_for_departure().await;
        fourth.wait_for_departure().await;
        assert_eq!(start.elapsed().as_millis(), 35, "a spacing after the first, which was late");
        let mut next = queues.enqueue(&turn(0)).unwrap();
        next.wait_for_departure().await;
        assert_eq!(start.elapsed().as_millis(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_bounded_and_queues_evicted() {
        let queues = Arc::new(PacingQueues::new(2));
        let (first, second) = (queues.enqueue(&turn(0)), queues.enqueue(&turn(0)));
        assert!(queues.enqueue(&turn(0)).is_none());
        drop(first);
        assert!(queues.enqueue(&turn(0)).is_some(), "its place is free again");
        drop(second);
        tokio::time::sleep(IDLE_QUEUE_TTL * 2).await;
        let other = QueueDelay { queue: Fingerprint { hi: 3, lo: 4 }, ..turn(0) };
        assert!(queues.enqueue(&other).is_some());
        assert_eq!(queues.queues.lock().len(), 1);
    }
}
