//! Counters for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a layer did so far, for metrics.
///
/// ```
/// use tidegate_client::ClientLayer;
///
/// let stats = ClientLayer::new().stats();
/// assert_eq!((stats.sent, stats.keys.len()), (0, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientStats {
    /// Calls sent to servers, retries included.
    pub sent: u64,
    /// Calls that waited for their turn before they were sent.
    pub paced: u64,
    /// Responses that refused a call because of a limit or of too much load.
    pub refused: u64,
    /// Retries.
    pub retried: u64,
    /// Calls that failed before they were sent or sent again: deadline too short, queue full, or no
    /// shared quota.
    pub gave_up: u64,
    /// Checks of the shared quota that failed.
    pub quota_failures: u64,
    /// One entry for each key in use, in the order of the keys.
    pub keys: Vec<KeyStats>,
}

/// The state of one key.
///
/// ```
/// use tidegate_client::KeyStats;
///
/// let describe = |stats: &KeyStats| match stats.rate_per_sec {
///     Some(rate) => format!("{}: {rate:.1}/s, {} waiting", stats.key, stats.waiting),
///     None => format!("{}: not limited", stats.key),
/// };
/// let stats = KeyStats { key: "api.example".to_owned(), rate_per_sec: Some(25.0), waiting: 3 };
/// assert_eq!(describe(&stats), "api.example: 25.0/s, 3 waiting");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyStats {
    /// The host, or what the key function returned.
    pub key: String,
    /// Calls per second that may be sent now; 0 while the server refuses all calls, `None` if
    /// nothing limits them.
    pub rate_per_sec: Option<f64>,
    /// Calls that wait for their turn.
    pub waiting: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    pub(crate) sent: Counter,
    pub(crate) paced: Counter,
    pub(crate) refused: Counter,
    pub(crate) retried: Counter,
    pub(crate) gave_up: Counter,
    pub(crate) quota_failures: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ClientCounters {
    pub(crate) fn snapshot(&self, keys: Vec<KeyStats>) -> ClientStats {
        ClientStats {
            sent: self.sent.get(),
            paced: self.paced.get(),
            refused: self.refused.get(),
            retried: self.retried.get(),
            gave_up: self.gave_up.get(),
            quota_failures: self.quota_failures.get(),
            keys,
        }
    }
}
