//! Notifications when a server becomes unavailable or recovers.

use std::fmt;
use std::sync::Arc;

/// Callback for [`StoreEvent`]s.
#[derive(Clone)]
pub struct StoreObserver(Arc<dyn Fn(&StoreEvent) + Send + Sync>);

/// A change of a server's availability; reported once per change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The server is unavailable; rules follow their `on_fail`.
    Lost {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The server answers again, or has left the cluster and others own its slots.
    Recovered {
        /// The server.
        server: String,
    },
}

impl StoreObserver {
    /// Creates an observer that calls a function.
    pub fn new(callback: impl Fn(&StoreEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn notify(&self, event: &StoreEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for StoreObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreObserver(..)")
    }
}
