//! Which calls are retried, when, and how many.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Uri};

/// Decides whether a failed call may be retried.
type RetryCondition = Arc<dyn Fn(&FailedCall<'_>) -> bool + Send + Sync>;

/// Retries that a budget holds at first, so that a client with few calls may retry too.
const INITIAL_BUDGET: u32 = 10;

/// Retries that a budget can hold at most, so that a long quiet time does not permit a storm.
const MAX_BUDGET: u32 = 100;

/// Units of the budget that a retry takes.
const RETRY_UNITS: u32 = 100;

/// Which calls are retried, how often and after which back-off.
///
/// By default a call is retried up to three times if its method is idempotent or it has an
/// `Idempotency-Key`, and the server answered 429, 502, 503 or 504 or gRPC's `RESOURCE_EXHAUSTED`
/// or `UNAVAILABLE`, or there was no response. At most 20 % of the calls to a host are retried.
///
/// The wait before the retry `n` is a random part of `base · 2ⁿ` ("full jitter"), after the time in
/// `Retry-After`. If the server asks for more than the layer's ceiling, the call is not retried.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{ClientLayer, RetryPolicy};
///
/// let policy = RetryPolicy::default()
///     .max_retries(5)
///     .base_backoff(Duration::from_millis(50))
///     .budget_percent(10)
///     .retry_if(|call| call.uri.path().starts_with("/search") || call.is_retryable());
/// let layer = ClientLayer::new().clone_bodies().retry(policy);
/// # let _: ClientLayer<tidegate_client::CloneBodies> = layer;
/// ```
#[derive(Clone)]
pub struct RetryPolicy {
    max_retries: u32,
    base_backoff: Duration,
    budget_percent: u32,
    condition: RetryCondition,
}

/// A call that was refused, failed, or got no response.
///
/// ```
/// use tidegate_client::RetryPolicy;
///
/// // Also retries what is not idempotent, but only if the server refused to do the work.
/// let policy = RetryPolicy::default().retry_if(|call| {
///     call.is_retryable() || call.status.is_some_and(|status| status == 429)
/// });
/// # let _ = policy;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FailedCall<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's URI.
    pub uri: &'a Uri,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The response's status; `None` if there was no response.
    pub status: Option<StatusCode>,
    /// Whether the response says that the server did not do the work, because of a limit or of too
    /// much load.
    pub is_refused: bool,
    /// How often the call was retried already.
    pub retries: u32,
}

impl RetryPolicy {
    /// Retries nothing.
    #[must_use]
    pub fn never() -> Self {
        Self::default().max_retries(0)
    }

    /// How often one call is retried: 3 by default.
    #[must_use]
    pub fn max_retries(mut self, count: u32) -> Self {
        self.max_retries = count;
        self
    }

    /// The longest back-off before the first retry: 100 ms by default. It doubles with each retry.
    #[must_use]
    pub fn base_backoff(mut self, backoff: Duration) -> Self {
        self.base_backoff = backoff;
        self
    }

    /// Retries per 100 calls with the same key: 20 by default. Ten more are allowed at first.
    #[must_use]
    pub fn budget_percent(mut self, percent: u32) -> Self {
        self.budget_percent = percent.min(RETRY_UNITS);
        self
    }

    /// Replaces the condition. [`FailedCall::is_retryable`] is the default one.
    #[must_use]
    pub fn retry_if(
        mut self,
        condition: impl Fn(&FailedCall<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Arc::new(condition);
        self
    }

    /// Whether a call that was retried `retries` times may be retried at all.
    pub(crate) const fn has_retries_left(&self, retries: u32) -> bool {
        retries < self.max_retries
    }

    pub(crate) fn allows(&self, call: &FailedCall<'_>) -> bool {
        (self.condition)(call)
    }

    /// A random wait before a retry. `random` is in 0..1.
    pub(crate) fn backoff(&self, retries: u32, ceiling: Duration, random: f64) -> Duration {
        let longest = self.base_backoff.saturating_mul(2_u32.saturating_pow(retries)).min(ceiling);
        longest.mul_f64(random)
    }

    pub(crate) fn new_budget(&self) -> RetryBudget {
        RetryBudget { units: INITIAL_BUDGET * RETRY_UNITS, deposit: self.budget_percent }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base_backoff: Duration::from_millis(100),
            budget_percent: 20,
            condition: Arc::new(|call: &FailedCall<'_>| call.is_retryable()),
        }
    }
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max_retries", &self.max_retries)
            .field("base_backoff", &self.base_backoff)
            .field("budget_percent", &self.budget_percent)
            .finish_non_exhaustive()
    }
}

impl<'a> FailedCall<'a> {
    /// Describes a call; `None` if it succeeded, or failed in a way that a retry does not change.
    pub(crate) fn classify(
        request: &'a Parts,
        status: Option<StatusCode>,
        is_refused: bool,
        retries: u32,
    ) -> Option<Self> {
        let is_temporary =
            status.is_none_or(|status| matches!(status.as_u16(), 429 | 502 | 503 | 504));
        let Parts { method, uri, headers, .. } = request;
        (is_refused || is_temporary).then_some(Self {
            method,
            uri,
            headers,
            status,
            is_refused,
            retries,
        })
    }

    /// Whether the request is idempotent by its method (RFC 9110 section 9.2.2) or by an
    /// `Idempotency-Key`.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key("idempotency-key")
    }
}

/// Limits retries to a share of the calls. Every call deposits, every retry withdraws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    units: u32,
    deposit: u32,
}

impl RetryBudget {
    pub(crate) fn deposit(&mut self) {
        self.units = (self.units + self.deposit).min(MAX_BUDGET * RETRY_UNITS);
    }

    /// Takes one retry, if there is one.
    pub(crate) fn withdraw(&mut self) -> bool {
        let left = self.units.checked_sub(RETRY_UNITS);
        self.units = left.unwrap_or(self.units);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_random_and_doubles_to_ceiling() {
        let policy = RetryPolicy::default();
        let ceiling = Duration::from_secs(1);
        let backoff = |retries, random| policy.backoff(retries, ceiling, random).as_millis();
        assert_eq!([backoff(0, 0.5), backoff(1, 0.5), backoff(2, 0.5)], [50, 100, 200]);
        assert_eq!([backoff(0, 0.0), backoff(30, 0.5), backoff(u32::MAX, 0.5)], [0, 500, 500]);
    }

    #[test]
    fn budget_allows_a_fifth_after_the_first_ten() {
        let mut budget = RetryPolicy::default().new_budget();
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.withdraw());
        }
        assert_eq!(retries, 210);
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!((0..1_000).filter(|_| budget.withdraw()).count(), 100);
    }

    #[test]
    fn only_idempotent_calls_are_retryable() {
        let is_retryable = |request: http::request::Builder| {
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let status = Some(StatusCode::TOO_MANY_REQUESTS);
            FailedCall::classify(&parts, status, true, 0).unwrap().is_retryable()
        };
        let request = http::Request::builder;
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
            assert!(is_retryable(request().method(method)), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "UNKNOWN"] {
            assert!(!is_retryable(request().method(method)), "{method}");
        }
        assert!(is_retryable(request().method("POST").header("idempotency-key", "1")));
    }

    #[test]
    fn only_temporary_failures_are_classified() {
        let (parts, ()) = http::Request::new(()).into_parts();
        let fails = |status: Option<u16>, is_refused| {
            let status = status.map(|status| StatusCode::from_u16(status).unwrap());
            FailedCall::classify(&parts, status, is_refused, 0).is_some()
        };
        let failures = [None, Some(429), Some(502), Some(503), Some(504)];
        assert!(failures.iter().all(|status| fails(*status, false)));
        assert!([200, 302, 400, 403, 404, 500, 501].iter().all(|at| !fails(Some(*at), false)));
        assert!(fails(Some(403), true) && fails(Some(200), true));
    }
}
