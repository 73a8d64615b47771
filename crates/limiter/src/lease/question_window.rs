//! How many questions to one region may be in flight: a state machine without clock, lock or I/O.
//!
//! A store answers only so many questions before their deadline. Sent all at once, the questions
//! of many keys wait for each other until none of them is answered in time. So those beyond the
//! window wait in the node's queue, and ask for what is needed when they leave it. The window
//! shrinks while the store leaves questions unanswered, because each of them may lose units.

use std::sync::{Arc, Mutex, PoisonError};

use super::borrow_batch::MAX_BATCH;

/// The most questions in flight. The server's connection to a region carries as many at once.
const MAX_SIZE: usize = 4 * MAX_BATCH;

/// The fewest questions that may be in flight: enough to find out whether the store answers again.
const MIN_SIZE: usize = 64;

/// The questions that may be in flight, and those that are.
#[derive(Debug)]
pub(super) struct QuestionWindow {
    size: usize,
    in_flight: usize,
}

/// A window that batches share.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedWindow(Arc<Mutex<QuestionWindow>>);

/// The questions of one batch. They leave the window when this is dropped.
#[derive(Debug)]
pub(super) struct QuestionsInFlight {
    window: SharedWindow,
    asked: usize,
    answered: usize,
}

impl Default for QuestionWindow {
    fn default() -> Self {
        Self { size: MAX_SIZE, in_flight: 0 }
    }
}

impl QuestionWindow {
    /// How many more questions may be sent.
    const fn room(&self) -> usize {
        self.size.saturating_sub(self.in_flight)
    }

    /// The questions of a batch were answered, or their deadline has passed. A region that answers
    /// less than half of them gets half as many, and slowly more once it answers again.
    fn end(&mut self, asked: usize, answered: usize) {
        self.in_flight = self.in_flight.saturating_sub(asked);
        self.size = match 2 * answered < asked {
            true => (self.size / 2).max(MIN_SIZE),
            false => (self.size + answered.div_ceil(4)).min(MAX_SIZE),
        };
    }
}

impl SharedWindow {
    /// Takes room for at most this many questions.
    pub(super) fn reserve(&self, most: usize) -> QuestionsInFlight {
        self.reserve_if(most, |_| true)
    }

    /// Takes room for a whole batch, or none.
    pub(super) fn reserve_batch(&self) -> QuestionsInFlight {
        self.reserve_if(MAX_BATCH, |room| room >= MAX_BATCH)
    }

    fn reserve_if(&self, most: usize, fits: impl Fn(usize) -> bool) -> QuestionsInFlight {
        let asked = self.with(|window| {
            let asked = if fits(window.room()) { window.room().min(most) } else { 0 };
            window.in_flight += asked;
            asked
        });
        QuestionsInFlight { window: self.clone(), asked, answered: 0 }
    }

    fn with<T>(&self, change: impl FnOnce(&mut QuestionWindow) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl QuestionsInFlight {
    /// The number of questions.
    pub(super) const fn count(&self) -> usize {
        self.asked
    }

    /// Gives back the room for all but this many questions.
    pub(super) fn shrink_to(&mut self, asked: usize) {
        let unused = self.asked.saturating_sub(asked);
        self.window.with(|window| window.in_flight = window.in_flight.saturating_sub(unused));
        self.asked -= unused;
    }

    /// Counts the questions that were answered.
    pub(super) const fn set_answered(&mut self, answered: usize) {
        self.answered = answered;
    }
}

impl Drop for QuestionsInFlight {
    fn drop(&mut self) {
        if self.asked > 0 {
            self.window.with(|window| window.end(self.asked, self.answered));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends questions and ends them. Returns how many were sent.
    fn exchange(window: &SharedWindow, most: usize, answered: impl Fn(usize) -> usize) -> usize {
        let mut questions = window.reserve(most);
        let asked = questions.count();
        questions.set_answered(answered(asked));
        asked
    }

    fn size(window: &SharedWindow) -> usize {
        window.with(|window| window.size)
    }

    #[test]
    fn questions_beyond_window_wait() {
        let window = SharedWindow::default();
        let mut batches: Vec<_> = (0..5).map(|_| window.reserve(MAX_BATCH)).collect();
        let counts: Vec<_> = batches.iter().map(QuestionsInFlight::count).collect();
        assert_eq!(counts, [256, 256, 256, 256, 0]);
        batches[1].shrink_to(200);
        assert_eq!(window.reserve_batch().count(), 0, "there is room for 56");
        batches.push(window.reserve(MAX_BATCH));
        assert_eq!(batches[5].count(), 56);
        batches[0].set_answered(256);
        batches.remove(0);
        assert_eq!(window.reserve_batch().count(), 256);
    }

    #[test]
    fn window_shrinks_while_questions_are_unanswered() {
        let window = SharedWindow::default();
        let sizes: Vec<_> = (0..6).map(|_| exchange(&window, MAX_SIZE, |_| 0)).collect();
        assert_eq!(sizes, [1024, 512, 256, 128, 64, 64]);
        let sizes: Vec<_> = (0..14).map(|_| exchange(&window, MAX_SIZE, |asked| asked)).collect();
        assert_eq!(sizes[..4], [64, 80, 100, 125]);
        assert_eq!(sizes[12..], [947, 1024]);
    }

    /// One shard of a cluster may be unreachable.
    #[test]
    fn window_stays_while_half_is_answered() {
        let window = SharedWindow::default();
        exchange(&window, 9, |_| 5);
        assert_eq!(size(&window), MAX_SIZE);
        exchange(&window, 9, |_| 4);
        assert_eq!(size(&window), MAX_SIZE / 2);
    }

    #[test]
    fn dropped_batch_leaves_window() {
        let window = SharedWindow::default();
        drop(window.reserve(MAX_BATCH));
        assert_eq!(window.with(|window| (window.size, window.in_flight)), (512, 0));
        drop(SharedWindow::default().reserve(0));
        assert_eq!(size(&window), 512, "no question is no loss");
    }
}
