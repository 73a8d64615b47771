//! Why a call failed.

use std::fmt;
use std::time::Duration;

use crate::shared_quota::SharedQuotaError;

/// Why a call failed. Only [`Service`](Self::Service) may have reached the server.
///
/// A response such as 429 is not an error: the caller gets it if the call is not retried.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::ClientError;
///
/// let error: ClientError<std::io::Error> = ClientError::DeadlineTooShort {
///     needed: Duration::from_millis(3_200),
///     available: Duration::from_secs(1),
/// };
/// assert_eq!(
///     error.to_string(),
///     "the call would wait 3.2s for its turn, but its deadline is in 1s: \
///      allow it more time, or send fewer calls"
/// );
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError<E> {
    /// The wrapped service failed.
    Service(E),
    /// The call's turn is later than its deadline, or than the layer's
    /// [`max_wait`](crate::ClientLayer::max_wait).
    DeadlineTooShort {
        /// How long the call would have to wait.
        needed: Duration,
        /// How long it may wait.
        available: Duration,
    },
    /// Too many calls with the same key wait already.
    QueueFull {
        /// The number of calls that wait.
        waiting: usize,
    },
    /// The [shared quota](crate::SharedQuota) did not permit the call, and does not fail open.
    Quota(SharedQuotaError),
}

impl<E: fmt::Display> fmt::Display for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(error) => write!(f, "the call failed: {error}"),
            Self::DeadlineTooShort { needed, available } => write!(
                f,
                "the call would wait {needed:?} for its turn, but its deadline is in \
                 {available:?}: allow it more time, or send fewer calls"
            ),
            Self::QueueFull { waiting } => write!(
                f,
                "{waiting} calls to this server wait already: send fewer calls, or raise \
                 `max_waiting`"
            ),
            Self::Quota(error) => write!(f, "the shared quota did not permit the call: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ClientError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Service(error) => Some(error),
            Self::Quota(error) => Some(error),
            Self::DeadlineTooShort { .. } | Self::QueueFull { .. } => None,
        }
    }
}
