//! How long to wait for an answer while the body of the request is still on its way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::timeout;

/// How many pieces of a body have been passed on, and how many there were at the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadProgress {
    frames: Arc<AtomicU64>,
    last_seen: u64,
}

impl UploadProgress {
    /// Notes one more piece.
    pub(super) fn record_frame(&self) {
        self.frames.fetch_add(1, Relaxed);
    }

    /// Whether a piece was passed on since the last look.
    pub(super) fn take_advanced(&mut self) -> bool {
        let pieces = self.frames.load(Relaxed);
        std::mem::replace(&mut self.last_seen, pieces) != pieces
    }

    /// Waits for an answer for as long as the span says; it begins anew while the body is under way,
    /// because nobody answers before they were asked. Whether the client dawdles is seen elsewhere.
    pub(super) async fn timeout_while_idle<T>(
        mut of: Option<Self>,
        span: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            match timeout(span, answer.as_mut()).await {
                Ok(answer) => return Some(answer),
                Err(_) if of.as_mut().is_some_and(Self::take_advanced) => {}
                Err(_) => return None,
            }
        }
    }
}
