//! Answers over HTTP/2 that the other side may leave lying.
//!
//! It says for each stream how much it takes, so it can hold one with the connection free: no write
//! is ever blocked, and an upstream's connection is held with it. What shows it is that nobody asks
//! for the next piece of the body.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

/// The answers under way on a connection.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// A number for every step of every answer.
    steps: AtomicU64,
    under_way: Mutex<Vec<Option<Arc<AtomicU64>>>>,
}

/// One answer under way.
#[derive(Debug)]
pub(super) struct Flow {
    flows: Arc<Flows>,
    /// The number of its last step, doubled, and one more if the other side is to take the next.
    last: Arc<AtomicU64>,
    place: usize,
}

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct Seen(Vec<(u64, Duration)>);

/// Who is to take the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Whoever makes the answer.
    Ours,
    /// Whoever gets it.
    Theirs,
}

impl Flows {
    /// One more answer, whose head is ready.
    pub(super) fn begin(self: &Arc<Self>) -> Flow {
        let last = Arc::new(AtomicU64::new(self.step(Next::Theirs)));
        let mut under_way = self.under_way.lock();
        let free = under_way.iter().position(Option::is_none);
        let place = free.unwrap_or(under_way.len());
        match under_way.get_mut(place) {
            Some(free) => *free = Some(Arc::clone(&last)),
            None => under_way.push(Some(Arc::clone(&last))),
        }
        drop(under_way);
        Flow { flows: Arc::clone(self), last, place }
    }

    /// For how long, over looks that are `apart` from each other, an answer has lain there.
    pub(super) fn longest(&self, seen: &mut Seen, apart: Duration) -> Duration {
        let under_way = self.under_way.lock();
        seen.0.resize(under_way.len(), (0, Duration::ZERO));
        for (flow, (last, spent)) in under_way.iter().zip(&mut seen.0) {
            let now = flow.as_ref().map_or(0, |flow| flow.load(Relaxed));
            let lies = now == *last && now % 2 == 1;
            *spent = if lies { *spent + apart } else { Duration::ZERO };
            *last = now;
        }
        seen.0.iter().map(|(_, spent)| *spent).max().unwrap_or_default()
    }

    /// No two are the same, so that one answer is not taken for another in its place.
    fn step(&self, next: Next) -> u64 {
        self.steps.fetch_add(1, Relaxed) * 2 + u64::from(next == Next::Theirs)
    }
}

impl Flow {
    /// Notes that the body was asked for its next piece.
    pub(super) fn asked(&self, next: Next) {
        self.last.store(self.flows.step(next), Relaxed);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(place) = self.flows.under_way.lock().get_mut(self.place) {
            *place = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_lies_there_is_found_and_others_are_not() {
        const LOOK: Duration = Duration::from_secs(5);
        let (flows, mut seen) = (Arc::new(Flows::default()), Seen::default());
        let (moving, waiting, lying) = (flows.begin(), flows.begin(), flows.begin());
        waiting.asked(Next::Ours);
        for look in 0..3 {
            moving.asked(Next::Theirs);
            assert_eq!(flows.longest(&mut seen, LOOK), LOOK * look);
        }
        lying.asked(Next::Theirs);
        assert_eq!(flows.longest(&mut seen, LOOK), LOOK, "the one that moved lies now");
        drop((moving, waiting, lying));
        for _ in 0..3 {
            let _short = flows.begin();
            assert_eq!(flows.longest(&mut seen, LOOK), Duration::ZERO, "a new one in its place");
        }
        assert_eq!(flows.under_way.lock().len(), 3);
    }
}
