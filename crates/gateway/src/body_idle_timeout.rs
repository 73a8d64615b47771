//! Limits the time between two pieces of a body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timer that is armed only while a body is pending. Progress only sets a flag, which is checked
/// when the timer fires: resetting the timer for every piece would be costly.
#[derive(Debug)]
pub(super) struct IdleTimeout {
    duration: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    progressed: bool,
}

impl IdleTimeout {
    pub(super) const fn new(duration: Duration) -> Self {
        Self { duration, timer: None, progressed: false }
    }

    pub(super) const fn duration(&self) -> Duration {
        self.duration
    }

    /// Records that a piece arrived.
    pub(super) const fn record_progress(&mut self) {
        self.progressed = true;
    }

    /// Ready when nothing has arrived for at least the duration, and at most twice as long.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let duration = self.duration;
        let timer = self.timer.get_or_insert_with(|| {
            self.progressed = false;
            Box::pin(tokio::time::sleep(duration))
        });
        while timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.progressed) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + duration);
        }
        Poll::Pending
    }
}
