//! The response timeout while the request body is still being sent.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::timeout;

/// The number of forwarded pieces of a body, and the number at the last check.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadProgress {
    frames: Arc<AtomicU64>,
    last_seen: u64,
}

impl UploadProgress {
    /// Records a piece.
    pub(super) fn record_frame(&self) {
        self.frames.fetch_add(1, Relaxed);
    }

    /// Whether a piece was forwarded since the last call.
    pub(super) fn take_advanced(&mut self) -> bool {
        let frames = self.frames.load(Relaxed);
        std::mem::replace(&mut self.last_seen, frames) != frames
    }

    /// Waits for a response, at most for `span` without upload progress: a server usually responds
    /// only after it has the body. A client that stalls is detected elsewhere, by the body timeout.
    pub(super) async fn timeout_while_idle<T>(
        mut progress: Option<Self>,
        span: Duration,
        response: impl Future<Output = T>,
    ) -> Option<T> {
        let mut response = pin!(response);
        loop {
            match timeout(span, response.as_mut()).await {
                Ok(response) => return Some(response),
                Err(_) if progress.as_mut().is_some_and(Self::take_advanced) => {}
                Err(_) => return None,
            }
        }
    }
}
