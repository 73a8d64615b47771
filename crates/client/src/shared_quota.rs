//! One quota for several processes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The future of [`SharedQuota::acquire`].
pub type QuotaFuture<'a> =
    Pin<Box<dyn Future<Output = Result<QuotaAnswer, SharedQuotaError>> + Send + 'a>>;

/// A quota that several processes share, in addition to what the server reports. The layer asks for
/// every call, in the order of the calls.
///
/// [`TidegateQuota`](crate::TidegateQuota) asks a Tidegate server. A limiter inside the process can
/// implement it as well, if its store is shared.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_client::{ClientLayer, QuotaAnswer, QuotaFuture, SharedQuota};
/// use tokio::sync::Semaphore;
///
/// /// A number of calls that is never restored.
/// struct Allowance(Semaphore);
///
/// impl SharedQuota for Allowance {
///     fn acquire<'a>(&'a self, _key: &'a str, cost: u32) -> QuotaFuture<'a> {
///         Box::pin(async move {
///             Ok(match self.0.try_acquire_many(cost) {
///                 Ok(permit) => {
///                     permit.forget();
///                     QuotaAnswer::granted()
///                 }
///                 Err(_) => QuotaAnswer::NeverFits,
///             })
///         })
///     }
/// }
/// let layer = ClientLayer::new().shared_quota(Arc::new(Allowance(Semaphore::new(100))));
/// # let _ = layer;
/// ```
pub trait SharedQuota: Send + Sync {
    /// Takes `cost` units of the quota of `key`, or says when to ask again.
    fn acquire<'a>(&'a self, key: &'a str, cost: u32) -> QuotaFuture<'a>;
}

/// What a shared quota answers.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::QuotaAnswer;
///
/// assert_eq!(QuotaAnswer::granted(), QuotaAnswer::Granted { delay: Duration::ZERO });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaAnswer {
    /// The units are taken. Send the call after the delay.
    Granted {
        /// The delay, for a quota that spaces calls.
        delay: Duration,
    },
    /// There are not enough units. Nothing was taken.
    RetryAfter(Duration),
    /// The quota never has as many units.
    NeverFits,
}

impl QuotaAnswer {
    /// Granted without a delay.
    #[must_use]
    pub const fn granted() -> Self {
        Self::Granted { delay: Duration::ZERO }
    }
}

/// Why a shared quota did not grant a call.
///
/// ```
/// use tidegate_client::SharedQuotaError;
///
/// let error = SharedQuotaError::Unavailable("connection refused".to_owned());
/// assert_eq!(error.to_string(), "the quota cannot be checked: connection refused");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedQuotaError {
    /// The quota could not be asked. The text says why.
    Unavailable(String),
    /// The call costs more than the whole quota.
    CostTooHigh {
        /// The call's cost.
        cost: u32,
    },
}

impl fmt::Display for SharedQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(reason) => write!(f, "the quota cannot be checked: {reason}"),
            Self::CostTooHigh { cost } => write!(
                f,
                "a call of cost {cost} never fits: lower its cost, or raise the limit of its rule"
            ),
        }
    }
}

impl std::error::Error for SharedQuotaError {}
