//! How those who wait for a new version come to know: a bell that whoever hears of one rings, and a
//! pause after which it is time to look in any case.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Signal;

/// Rung when there is a new version. Its copies are the same bell.
#[derive(Clone, Debug, Default)]
pub(super) struct Bell(Arc<Notify>);

impl Bell {
    /// Wakes everybody who waits, and lets whoever comes next go on at once: between two waits
    /// nothing is missed.
    pub(super) fn ring(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }

    /// Waits for the bell, at most for so long. May be given up at any time.
    pub(super) async fn wait(&self, most: Duration) -> Signal {
        match tokio::time::timeout(most, self.0.notified()).await {
            Ok(()) => Signal::Told,
            Err(_) => Signal::Look,
        }
    }
}
