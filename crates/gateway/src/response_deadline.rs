//! When an answer over a connection of HTTP/1.1 is late.
//!
//! The timer stays with the connection: to set and cancel one for every request would cost more than all
//! of them are worth, because hardly any answer is late. One that goes off early is set to the deadline.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::upload_progress::UploadProgress;

/// The timer of a connection.
#[derive(Debug, Default)]
pub(super) struct ResponseTimer(Option<Pin<Box<Sleep>>>);

/// How long to wait for an answer.
#[derive(Debug)]
pub(super) struct ResponseDeadline<'d> {
    progress: Option<UploadProgress>,
    timeout: Duration,
    expires_at: Instant,
    timer: &'d mut ResponseTimer,
}

impl<'d> ResponseDeadline<'d> {
    /// From now on, and anew while pieces of the request's body are passed on.
    pub(super) fn new(
        progress: Option<UploadProgress>,
        timeout: Duration,
        timer: &'d mut ResponseTimer,
    ) -> Self {
        Self { progress, timeout, expires_at: Instant::now() + timeout, timer }
    }

    /// Ready when the span is over.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.expires_at;
        let timer = self.timer.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.expires_at {
                if !self.progress.as_mut().is_some_and(UploadProgress::take_advanced) {
                    return Poll::Ready(());
                }
                self.expires_at = now + self.timeout;
            }
            timer.as_mut().reset(self.expires_at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    async fn wait_elapsed(waiting: &mut ResponseDeadline<'_>) {
        poll_fn(|cx| waiting.poll_elapsed(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn reused_timer_expires_after_full_timeout() {
        let mut timer = ResponseTimer::default();
        for _ in 0..3 {
            let began = Instant::now();
            let mut waiting = ResponseDeadline::new(None, TIMEOUT, &mut timer);
            let answered = tokio::time::timeout(TIMEOUT / 2, wait_elapsed(&mut waiting)).await;
            assert!(answered.is_err(), "it is not late yet");
            wait_elapsed(&mut ResponseDeadline { expires_at: began + TIMEOUT, ..waiting }).await;
            // Timers of tokio go off up to a millisecond late.
            assert!((TIMEOUT..TIMEOUT + Duration::from_millis(2)).contains(&began.elapsed()));
            // Answered in time; the timer is still set when the next request begins.
            let mut waiting = ResponseDeadline::new(None, TIMEOUT, &mut timer);
            assert!(tokio::time::timeout(TIMEOUT / 3, wait_elapsed(&mut waiting)).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn upload_progress_restarts_response_timeout() {
        let (mut timer, progress) = (ResponseTimer::default(), UploadProgress::default());
        let began = Instant::now();
        let mut waiting = ResponseDeadline::new(Some(progress.clone()), TIMEOUT, &mut timer);
        progress.record_frame();
        wait_elapsed(&mut waiting).await;
        assert!(began.elapsed() >= TIMEOUT * 2, "{:?}", began.elapsed());
    }
}
