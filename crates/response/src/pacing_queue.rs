//! Queues of a leaky bucket, from which requests leave one after the other at a constant rate.
//!
//! The store determines how long each request waits. Timers may fire late, and a late request must
//! not be followed immediately by a punctual one. So each request also waits until its predecessor
//! has left, plus the spacing. When a client disconnects, its successor waits for the predecessor
//! instead.

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

/// How long an empty queue is kept after its last departure.
const IDLE_QUEUE_TTL: Duration = Duration::from_secs(60);

/// All queues of a process.
#[derive(Debug)]
pub(super) struct PacingQueues {
    queues: Mutex<HashMap<Fingerprint, PacingQueue>>,
    waiting: AtomicUsize,
    max_waiting: usize,
    last_eviction: Mutex<Option<Instant>>,
}

/// One queue, represented by its last ticket.
#[derive(Debug)]
struct PacingQueue {
    tail: oneshot::Receiver<PredecessorSignal>,
    position: u64,
    /// The earliest departure of the next request if all requests are punctual.
    next_departure: Instant,
}

/// The signal that a ticket receives from its predecessor.
#[derive(Debug)]
enum PredecessorSignal {
    /// The predecessor has left; the successor may leave at this time.
    DepartAfter(Instant),
    /// The predecessor gave up; wait for its own predecessor instead.
    GaveUp(oneshot::Receiver<PredecessorSignal>),
}

/// A place in a queue. Signals the successor on drop.
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

    /// Appends to a queue; `None` if the limit of waiting requests is reached.
    pub(super) fn enqueue(self: &Arc<Self>, delay: &QueueDelay) -> Option<QueueTicket> {
        if self.waiting.fetch_add(1, Relaxed) >= self.max_waiting {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        let now = Instant::now();
        let (due, spacing) = (now + delay.delay.into(), delay.spacing.into());
        let (successor, tail) = oneshot::channel();
        let mut queues = self.queues.lock();
        self.evict_idle_queues(&mut queues, now);
        let number = queues.get(&delay.queue).map_or(0, |queue| queue.position + 1);
        let last = queues.insert(
            delay.queue,
            PacingQueue { tail, position: number, next_departure: due + spacing },
        );
        let (predecessor, successor) = (last.map(|last| last.tail), Some(successor));
        drop(queues);
        let queues = Arc::clone(self);
        Some(QueueTicket {
            queues,
            queue: delay.queue,
            position: number,
            due,
            spacing,
            predecessor,
            successor,
        })
    }

    /// Removes queues that have been empty for [`IDLE_QUEUE_TTL`].
    fn evict_idle_queues(&self, queues: &mut HashMap<Fingerprint, PacingQueue>, now: Instant) {
        let mut last_eviction = self.last_eviction.lock();
        if last_eviction.is_none_or(|last_eviction| last_eviction + IDLE_QUEUE_TTL < now) {
            *last_eviction = Some(now);
            queues.retain(|_, queue| queue.next_departure + IDLE_QUEUE_TTL > now);
        }
    }
}

impl QueueTicket {
    /// Waits until the request may leave, then signals the successor.
    pub(super) async fn wait_for_departure(&mut self) {
        sleep_until(self.due).await;
        while let Some(predecessor) = &mut self.predecessor {
            match predecessor.await {
                Ok(PredecessorSignal::DepartAfter(at)) => {
                    self.predecessor = None;
                    self.due = self.due.max(at);
                }
                Ok(PredecessorSignal::GaveUp(predecessor)) => self.predecessor = Some(predecessor),
                // The predecessor was dropped without a signal.
                Err(_) => self.predecessor = None,
            }
        }
        sleep_until(self.due).await;
        self.notify_successor(PredecessorSignal::DepartAfter(Instant::now() + self.spacing));
    }

    /// The earliest departure time.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether no ticket was appended after this one.
    pub(super) fn is_last(&self) -> bool {
        let queues = self.queues.queues.lock();
        queues.get(&self.queue).is_some_and(|queue| queue.position == self.position)
    }

    fn notify_successor(&mut self, signal: PredecessorSignal) {
        if let Some(successor) = self.successor.take() {
            // Without a successor, the queue holds the receiver for the next ticket.
            let _ = successor.send(signal);
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.queues.waiting.fetch_sub(1, Relaxed);
        // If the request gave up, the successor may leave when this request would have.
        let signal = self
            .predecessor
            .take()
            .map_or(PredecessorSignal::DepartAfter(self.due), PredecessorSignal::GaveUp);
        self.notify_successor(signal);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Micros;

    use super::*;

    fn delay(delay_ms: u64) -> QueueDelay {
        let queue = Fingerprint { hi: 1, lo: 2 };
        QueueDelay { queue, delay: Micros::from_millis(delay_ms), spacing: Micros::from_millis(10) }
    }

    #[tokio::test(start_paused = true)]
    async fn departures_keep_order_and_spacing() {
        let queues = Arc::new(PacingQueues::new(100));
        let start = Instant::now();
        let tickets: Vec<_> = (0..5).filter_map(|n| queues.enqueue(&delay(n * 10))).collect();
        let (departed, mut departures) = tokio::sync::mpsc::unbounded_channel();
        // Polled in reverse order, and the first one is late by 7 ms.
        for (number, mut ticket) in tickets.into_iter().enumerate().rev() {
            let departed = departed.clone();
            tokio::spawn(async move {
                if number == 0 {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
                ticket.wait_for_departure().await;
                let _ = departed.send((number, start.elapsed().as_millis()));
            });
        }
        drop(departed);
        for (number, at) in [(0, 7), (1, 17), (2, 27), (3, 37), (4, 47)] {
            assert_eq!(departures.recv().await, Some((number, at)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_ticket_passes_predecessor_on() {
        let queues = Arc::new(PacingQueues::new(100));
        let start = Instant::now();
        let [first, second, third, fourth] = [0, 10, 20, 30].map(|ms| queues.enqueue(&delay(ms)));
        let (second, mut fourth) = (second.unwrap(), fourth.unwrap());
        assert!(!second.is_last());
        assert!(fourth.is_last());
        drop(second);
        drop(third);
        tokio::time::sleep(Duration::from_millis(25)).await;
        first.unwrap().wait_for_departure().await;
        fourth.wait_for_departure().await;
        assert_eq!(start.elapsed().as_millis(), 35, "one spacing after the first, which left late");
        let mut next = queues.enqueue(&delay(0)).unwrap();
        next.wait_for_departure().await;
        assert_eq!(start.elapsed().as_millis(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_bounded_and_queues_evicted() {
        let queues = Arc::new(PacingQueues::new(2));
        let (first, second) = (queues.enqueue(&delay(0)), queues.enqueue(&delay(0)));
        assert!(queues.enqueue(&delay(0)).is_none());
        drop(first);
        assert!(queues.enqueue(&delay(0)).is_some(), "the dropped ticket freed a place");
        drop(second);
        tokio::time::sleep(IDLE_QUEUE_TTL * 2).await;
        let other = QueueDelay { queue: Fingerprint { hi: 3, lo: 4 }, ..delay(0) };
        assert!(queues.enqueue(&other).is_some());
        assert_eq!(queues.queues.lock().len(), 1);
    }
}
