//! What all clones of a layer share: the budgets, the counters, and the only clocks of this crate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::Response;
use http::request::Parts;
use tokio::time::Instant;

use crate::client_error::ClientError;
use crate::client_layer::ClientSettings;
use crate::client_stats::{ClientCounters, ClientStats};
use crate::headers::{CallOutcome, ResponseHints};
use crate::host_budget::{Admission, HostBudget, PendingCall};
use crate::key_table::{KeyTable, lock};
use crate::pacing::SendTicket;
use crate::retry::FailedCall;

/// What all clones of a layer share.
pub(crate) struct ClientState {
    /// The origin of the pacers' times.
    pub(crate) origin: Instant,
    keys: KeyTable,
    pub(crate) counters: ClientCounters,
    random: Mutex<fastrand::Rng>,
}

impl ClientState {
    pub(crate) fn new(settings: &ClientSettings) -> Self {
        let random = settings.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self {
            origin: Instant::now(),
            keys: KeyTable::new(settings.max_keys),
            counters: ClientCounters::default(),
            random: Mutex::new(random),
        }
    }

    /// The pacers' time.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// A random number in 0..1.
    pub(crate) fn draw_random(&self) -> f64 {
        lock(&self.random).f64()
    }

    pub(crate) fn budget(&self, request: &Parts, settings: &ClientSettings) -> Arc<HostBudget> {
        let key = (settings.key_function)(request);
        self.keys.get_or_insert(&key, self.now(), |key| {
            HostBudget::new(key, settings.ceiling, settings.retry.new_budget())
        })
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let now = self.now();
        let keys = self.keys.budgets().iter().map(|budget| budget.stats(now)).collect();
        self.counters.snapshot(keys)
    }

    /// Waits for the call's turn.
    pub(crate) async fn admit<E>(
        &self,
        budget: &HostBudget,
        call: PendingCall<'_>,
    ) -> Result<SendTicket, ClientError<E>> {
        let counters = &self.counters;
        let Admission { ticket, has_waited, quota_failed } =
            budget.admit(call).await.inspect_err(|_| counters.gave_up.increment())?;
        counters.sent.increment();
        if has_waited {
            counters.paced.increment();
        }
        if quota_failed {
            counters.quota_failures.increment();
        }
        Ok(ticket)
    }

    #[expect(clippy::disallowed_methods, reason = "for dates, if the server sends no `Date`")]
    pub(crate) fn observe<R>(
        &self,
        budget: &HostBudget,
        ticket: &SendTicket,
        response: &Response<R>,
    ) -> ResponseHints {
        let hints = ResponseHints::from_response(response, Some(SystemTime::now()));
        budget.observe(ticket, &hints, self.now());
        if hints.outcome != CallOutcome::Accepted {
            self.counters.refused.increment();
        }
        hints
    }

    /// When to send a call again; `None` if it must not be retried, or if the deadline or the
    /// ceiling is earlier.
    pub(crate) fn plan_retry(
        &self,
        settings: &ClientSettings,
        failed: &FailedCall<'_>,
        hints: &ResponseHints,
        deadline: Instant,
    ) -> Option<Instant> {
        let ClientSettings { ceiling, retry, .. } = settings;
        let wait = hints.retry_after.unwrap_or_default();
        if hints.forbids_retry || wait > *ceiling || !retry.allows(failed) {
            return None;
        }
        let backoff = retry.backoff(failed.retries, *ceiling, self.draw_random());
        Some(Instant::now() + wait + backoff).filter(|at| *at <= deadline)
    }
}
