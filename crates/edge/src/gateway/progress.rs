//! How long to wait for an answer while the body of the request is still on its way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::timeout;

/// How many pieces of a body have been passed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Notes one more piece.
    pub(super) fn made(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Waits for an answer for as long as the span says; it begins anew while the body is under way,
    /// because nobody answers before they were asked. Whether the client dawdles is seen elsewhere.
    pub(super) async fn in_time<T>(
        of: Option<Self>,
        span: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(Self(pieces)) = of else { return timeout(span, answer).await.ok() };
        let mut answer = pin!(answer);
        loop {
            let before = pieces.load(Relaxed);
            match timeout(span, answer.as_mut()).await {
                Ok(answer) => return Some(answer),
                Err(_) if pieces.load(Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }
}
