//! How long to wait for the next piece of something that comes in pieces.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A timer that is set only where there is something to wait for, and touched as seldom as possible:
/// what came meanwhile is looked at when it goes off.
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

    /// Notes that a piece came.
    pub(super) const fn record_progress(&mut self) {
        self.progressed = true;
    }

    /// Ready when nothing has come for the whole span (and at most for two of them).
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let span = self.duration;
        let timer = self.timer.get_or_insert_with(|| {
            self.progressed = false;
            Box::pin(tokio::time::sleep(span))
        });
        while timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.progressed) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + span);
        }
        Poll::Pending
    }
}
