//! Change notification: a `Notify` combined with a poll interval.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::WakeReason;

/// Signals that there is a new version. Clones share the same signal.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeNotifier(Arc<Notify>);

impl ChangeNotifier {
    /// Wakes all waiting tasks, and lets the next `wait` return at once, so a notification between
    /// two waits is not lost.
    pub(super) fn notify(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }

    /// Waits for a notification, at most for `timeout`. Cancel safe.
    pub(super) async fn wait(&self, timeout: Duration) -> WakeReason {
        match tokio::time::timeout(timeout, self.0.notified()).await {
            Ok(()) => WakeReason::Notified,
            Err(_) => WakeReason::PollDue,
        }
    }
}
