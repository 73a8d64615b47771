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
use tidegate_engine::Turn;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// How long a queue in which nobody waits is remembered after its last departure.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Every queue of a gateway.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Mutex<HashMap<Fingerprint, Queue>>,
    waiting: AtomicUsize,
    most: usize,
    tidied: Mutex<Option<Instant>>,
}

/// One queue: its last place.
#[derive(Debug)]
struct Queue {
    tail: oneshot::Receiver<Ahead>,
    number: u64,
    /// When a next one could leave if all were punctual.
    free: Instant,
}

/// What one is told by the one ahead.
#[derive(Debug)]
enum Ahead {
    /// It has left, and the next may from then on.
    From(Instant),
    /// It gave up: whoever was ahead of it is ahead of you.
    Ask(oneshot::Receiver<Ahead>),
}

/// A place in a queue, handed on when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    queues: Arc<Queues>,
    queue: Fingerprint,
    number: u64,
    due: Instant,
    spacing: Duration,
    ahead: Option<oneshot::Receiver<Ahead>>,
    behind: Option<oneshot::Sender<Ahead>>,
}

impl Queues {
    pub(super) fn new(most: usize) -> Self {
        Self {
            queues: Mutex::default(),
            waiting: AtomicUsize::new(0),
            most,
            tidied: Mutex::default(),
        }
    }

    /// A place at the end of a queue; none if more wait already than may wait in all.
    pub(super) fn enter(self: &Arc<Self>, turn: &Turn) -> Option<Place> {
        if self.waiting.fetch_add(1, Relaxed) >= self.most {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        let now = Instant::now();
        let (due, spacing) = (now + turn.delay.into(), turn.spacing.into());
        let (behind, tail) = oneshot::channel();
        let mut queues = self.queues.lock();
        self.tidy(&mut queues, now);
        let number = queues.get(&turn.queue).map_or(0, |queue| queue.number + 1);
        let last = queues.insert(turn.queue, Queue { tail, number, free: due + spacing });
        let (ahead, behind) = (last.map(|last| last.tail), Some(behind));
        drop(queues);
        let queues = Arc::clone(self);
        Some(Place { queues, queue: turn.queue, number, due, spacing, ahead, behind })
    }

    /// Forgets queues in which nobody has been for a while.
    fn tidy(&self, queues: &mut HashMap<Fingerprint, Queue>, now: Instant) {
        let mut tidied = self.tidied.lock();
        if tidied.is_none_or(|tidied| tidied + REMEMBERED < now) {
            *tidied = Some(now);
            queues.retain(|_, queue| queue.free + REMEMBERED > now);
        }
    }
}

impl Place {
    /// Waits until it is this one's turn, and leaves.
    pub(super) async fn leave(&mut self) {
        sleep_until(self.due).await;
        while let Some(ahead) = &mut self.ahead {
            match ahead.await {
                Ok(Ahead::From(at)) => {
                    self.ahead = None;
                    self.due = self.due.max(at);
                }
                Ok(Ahead::Ask(ahead)) => self.ahead = Some(ahead),
                // Nobody is left who could say.
                Err(_) => self.ahead = None,
            }
        }
        sleep_until(self.due).await;
        self.hand_on(Ahead::From(Instant::now() + self.spacing));
    }

    /// When it leaves at the earliest.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether nobody came after.
    pub(super) fn is_last(&self) -> bool {
        let queues = self.queues.queues.lock();
        queues.get(&self.queue).is_some_and(|queue| queue.number == self.number)
    }

    fn hand_on(&mut self, what: Ahead) {
        if let Some(behind) = self.behind.take() {
            // Where nobody is behind, the queue itself keeps it for the next.
            let _ = behind.send(what);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queues.waiting.fetch_sub(1, Relaxed);
        // Given up, whoever is behind leaves when this one would have.
        let what = self.ahead.take().map_or(Ahead::From(self.due), Ahead::Ask);
        self.hand_on(what);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Micros;

    use super::*;

    fn turn(delay_ms: u64) -> Turn {
        let queue = Fingerprint { hi: 1, lo: 2 };
        Turn { queue, delay: Micros::from_millis(delay_ms), spacing: Micros::from_millis(10) }
    }

    #[tokio::test(start_paused = true)]
    async fn they_leave_in_order_and_never_closer_than_their_spacing() {
        let queues = Arc::new(Queues::new(100));
        let start = Instant::now();
        let places: Vec<_> = (0..5).filter_map(|n| queues.enter(&turn(n * 10))).collect();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        // Asked in the wrong order, and the first one late by 7 ms.
        for (number, mut place) in places.into_iter().enumerate().rev() {
            let told = told.clone();
            tokio::spawn(async move {
                if number == 0 {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
                place.leave().await;
                let _ = told.send((number, start.elapsed().as_millis()));
            });
        }
        drop(told);
        for (number, at) in [(0, 7), (1, 17), (2, 27), (3, 37), (4, 47)] {
            assert_eq!(heard.recv().await, Some((number, at)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_gives_up_hands_its_place_on() {
        let queues = Arc::new(Queues::new(100));
        let start = Instant::now();
        let [first, second, third, fourth] = [0, 10, 20, 30].map(|ms| queues.enter(&turn(ms)));
        let (second, mut fourth) = (second.unwrap(), fourth.unwrap());
        assert!(!second.is_last());
        assert!(fourth.is_last());
        drop(second);
        drop(third);
        tokio::time::sleep(Duration::from_millis(25)).await;
        first.unwrap().leave().await;
        fourth.leave().await;
        assert_eq!(start.elapsed().as_millis(), 35, "a spacing after the first, which was late");
        let mut next = queues.enter(&turn(0)).unwrap();
        next.leave().await;
        assert_eq!(start.elapsed().as_millis(), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_wait_than_may_and_queues_are_forgotten() {
        let queues = Arc::new(Queues::new(2));
        let (first, second) = (queues.enter(&turn(0)), queues.enter(&turn(0)));
        assert!(queues.enter(&turn(0)).is_none());
        drop(first);
        assert!(queues.enter(&turn(0)).is_some(), "its place is free again");
        drop(second);
        tokio::time::sleep(REMEMBERED * 2).await;
        let other = Turn { queue: Fingerprint { hi: 3, lo: 4 }, ..turn(0) };
        assert!(queues.enter(&other).is_some());
        assert_eq!(queues.queues.lock().len(), 1);
    }
}
