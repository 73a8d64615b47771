//! When an answer over a connection of HTTP/1.1 is late.
//!
//! The timer stays with the connection: to set and cancel one for every request would cost more than all
//! of them are worth, because hardly any answer is late. One that goes off early is set to the deadline.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::progress::Progress;

/// The timer of a connection.
#[derive(Debug, Default)]
pub(super) struct Deadline(Option<Pin<Box<Sleep>>>);

/// How long to wait for an answer.
#[derive(Debug)]
pub(super) struct Waiting<'d> {
    progress: Option<Progress>,
    span: Duration,
    until: Instant,
    timer: &'d mut Deadline,
}

impl<'d> Waiting<'d> {
    /// From now on, and anew while pieces of the request's body are passed on.
    pub(super) fn new(progress: Option<Progress>, span: Duration, timer: &'d mut Deadline) -> Self {
        Self { progress, span, until: Instant::now() + span, timer }
    }

    /// Ready when the span is over.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        let timer = self.timer.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.until {
                if !self.progress.as_mut().is_some_and(Progress::was_made) {
                    return Poll::Ready(());
                }
                self.until = now + self.span;
            }
            timer.as_mut().reset(self.until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SPAN: Duration = Duration::from_secs(60);

    async fn late(waiting: &mut Waiting<'_>) {
        poll_fn(|cx| waiting.poll_late(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_late_after_the_span_whoever_set_the_timer() {
        let mut timer = Deadline::default();
        for _ in 0..3 {
            let began = Instant::now();
            let mut waiting = Waiting::new(None, SPAN, &mut timer);
            let answered = tokio::time::timeout(SPAN / 2, late(&mut waiting)).await;
            assert!(answered.is_err(), "it is not late yet");
            late(&mut Waiting { until: began + SPAN, ..waiting }).await;
            // Timers of tokio go off up to a millisecond late.
            assert!((SPAN..SPAN + Duration::from_millis(2)).contains(&began.elapsed()));
            // Answered in time; the timer is still set when the next request begins.
            let mut waiting = Waiting::new(None, SPAN, &mut timer);
            assert!(tokio::time::timeout(SPAN / 3, late(&mut waiting)).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_under_way_begins_the_span_anew() {
        let (mut timer, progress) = (Deadline::default(), Progress::default());
        let began = Instant::now();
        let mut waiting = Waiting::new(Some(progress.clone()), SPAN, &mut timer);
        progress.made();
        late(&mut waiting).await;
        assert!(began.elapsed() >= SPAN * 2, "{:?}", began.elapsed());
    }
}
