//! The response timeout of an HTTP/1.1 connection.
//!
//! The timer belongs to the connection. Arming and cancelling one per request would cost too much,
//! because hardly any response is late. A timer that fires early is reset to the current deadline.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::upload_progress::UploadProgress;

/// The timer of a connection.
#[derive(Debug, Default)]
pub(super) struct ResponseTimer(Option<Pin<Box<Sleep>>>);

/// The deadline of a response.
#[derive(Debug)]
pub(super) struct ResponseDeadline<'d> {
    progress: Option<UploadProgress>,
    timeout: Duration,
    expires_at: Instant,
    timer: &'d mut ResponseTimer,
}

impl<'d> ResponseDeadline<'d> {
    /// Starts the timeout now; it restarts while pieces of the request body are forwarded.
    pub(super) fn new(
        progress: Option<UploadProgress>,
        timeout: Duration,
        timer: &'d mut ResponseTimer,
    ) -> Self {
        Self { progress, timeout, expires_at: Instant::now() + timeout, timer }
    }

    /// Ready when the timeout has elapsed.
    pub(super) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let expires_at = self.expires_at;
        let timer = self.timer.0.get_or_insert_with(|| Box::pin(sleep_until(expires_at)));
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

    async fn wait_elapsed(deadline: &mut ResponseDeadline<'_>) {
        poll_fn(|cx| deadline.poll_elapsed(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn reused_timer_expires_after_full_timeout() {
        let mut timer = ResponseTimer::default();
        for _ in 0..3 {
            let began = Instant::now();
            let mut deadline = ResponseDeadline::new(None, TIMEOUT, &mut timer);
            let waited = tokio::time::timeout(TIMEOUT / 2, wait_elapsed(&mut deadline)).await;
            assert!(waited.is_err(), "the deadline has not passed");
            wait_elapsed(&mut ResponseDeadline { expires_at: began + TIMEOUT, ..deadline }).await;
            // tokio timers fire up to a millisecond late.
            assert!((TIMEOUT..TIMEOUT + Duration::from_millis(2)).contains(&began.elapsed()));
            // Answered in time; the timer is still armed when the next request begins.
            let mut deadline = ResponseDeadline::new(None, TIMEOUT, &mut timer);
            assert!(tokio::time::timeout(TIMEOUT / 3, wait_elapsed(&mut deadline)).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn upload_progress_restarts_response_timeout() {
        let (mut timer, progress) = (ResponseTimer::default(), UploadProgress::default());
        let began = Instant::now();
        let mut deadline = ResponseDeadline::new(Some(progress.clone()), TIMEOUT, &mut timer);
        progress.record_frame();
        wait_elapsed(&mut deadline).await;
        assert!(began.elapsed() >= TIMEOUT * 2, "{:?}", began.elapsed());
    }
}
