//! The budget of one key: its pacer, and the calls that wait for their turn in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::client_error::ClientError;
use crate::client_stats::KeyStats;
use crate::headers::{CallOutcome, ResponseHints};
use crate::key_table::lock;
use crate::pacing::{Pacer, PacingAnswer, SendTicket};
use crate::race::{RaceWinner, race};
use crate::retry::RetryBudget;
use crate::shared_quota::{QuotaAnswer, SharedQuota, SharedQuotaError};

/// The budget of one key.
#[derive(Debug)]
pub(crate) struct HostBudget {
    key: Arc<str>,
    pacer: Mutex<Pacer>,
    retries: Mutex<RetryBudget>,
    waiting: AtomicUsize,
    /// Held by the call whose turn is next. The semaphore serves in order of arrival.
    turn: Semaphore,
    /// Wakes the call whose turn is next, because a response may have changed the pace.
    observed: Notify,
    /// Wakes all waiting calls, because a refusal may have made their deadlines too short.
    refused: Notify,
}

/// A call that wants to be sent.
#[derive(Clone, Copy)]
pub(crate) struct PendingCall<'a> {
    pub(crate) cost: u32,
    pub(crate) deadline: Instant,
    pub(crate) max_waiting: usize,
    pub(crate) quota: Option<&'a SharedQuotaSettings>,
    /// The origin of the pacer's times.
    pub(crate) origin: Instant,
}

/// A quota shared with other processes.
#[derive(Clone)]
pub(crate) struct SharedQuotaSettings {
    pub(crate) quota: Arc<dyn SharedQuota>,
    /// Whether calls are sent if the quota cannot be checked.
    pub(crate) fails_open: bool,
}

/// Why a call is not sent.
pub(crate) enum AdmissionError {
    DeadlineTooShort { needed: Duration, available: Duration },
    QueueFull { waiting: usize },
    Quota(SharedQuotaError),
}

/// How a call was admitted.
pub(crate) struct Admission {
    pub(crate) ticket: SendTicket,
    pub(crate) has_waited: bool,
    pub(crate) quota_failed: bool,
}

/// Counts a waiting call until it is dropped.
struct WaitingCall<'a>(&'a AtomicUsize);

impl HostBudget {
    pub(crate) fn new(key: Arc<str>, ceiling: Duration, retries: RetryBudget) -> Self {
        Self {
            key,
            pacer: Mutex::new(Pacer::new(ceiling)),
            retries: Mutex::new(retries),
            waiting: AtomicUsize::new(0),
            turn: Semaphore::new(1),
            observed: Notify::new(),
            refused: Notify::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn deposit_retry(&self) {
        lock(&self.retries).deposit();
    }

    pub(crate) fn withdraw_retry(&self) -> bool {
        lock(&self.retries).withdraw()
    }

    pub(crate) fn stats(&self, now: Duration) -> KeyStats {
        KeyStats {
            key: self.key.to_string(),
            rate_per_sec: lock(&self.pacer).current_rate(now),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    /// Learns from a response.
    pub(crate) fn observe(&self, ticket: &SendTicket, hints: &ResponseHints, now: Duration) {
        lock(&self.pacer).observe(ticket, hints, now);
        self.observed.notify_one();
        if hints.outcome != CallOutcome::Accepted {
            self.refused.notify_waiters();
        }
    }

    /// Whether the call would get its turn before its deadline.
    pub(crate) fn has_turn(&self, call: PendingCall<'_>) -> bool {
        self.ask(call, self.waiting.load(Ordering::Relaxed)).is_ok()
    }

    /// Waits until the call may be sent, and counts it. The calls before it are sent first.
    pub(crate) async fn admit(&self, call: PendingCall<'_>) -> Result<Admission, AdmissionError> {
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = WaitingCall(&self.waiting);
        if ahead >= call.max_waiting {
            return Err(AdmissionError::QueueFull { waiting: ahead });
        }
        let turn = self.wait_for_turn(call, ahead).await?;
        let (mut has_waited, mut quota_failed) = (ahead > 0, false);
        loop {
            has_waited |= self.wait_for_pace(call).await?;
            match self.acquire_shared(call).await? {
                SharedVerdict::Granted => break,
                SharedVerdict::Failed => {
                    quota_failed = true;
                    break;
                }
                SharedVerdict::AskAgain => {}
            }
        }
        let now = Instant::now();
        let ticket = lock(&self.pacer).record_send(call.since_origin(now), call.cost);
        drop((turn, waiting));
        Ok(Admission { ticket, has_waited, quota_failed })
    }

    /// Waits until all calls before this one are sent.
    async fn wait_for_turn(
        &self,
        call: PendingCall<'_>,
        ahead: usize,
    ) -> Result<SemaphorePermit<'_>, AdmissionError> {
        // Acquire once: each new attempt would start at the end of the queue.
        let mut acquired = std::pin::pin!(self.turn.acquire());
        let mut ahead = ahead;
        loop {
            // Before `ask`, so that no refusal is missed in between.
            let refused = self.refused.notified();
            self.ask(call, ahead)?;
            // Calls before it may be sent or dropped, so later only the next turn is certain.
            ahead = 0;
            let changed = race(refused, sleep_until(call.deadline));
            match race(acquired.as_mut(), changed).await {
                RaceWinner::First(Ok(permit)) => return Ok(permit),
                // The semaphore is never closed.
                RaceWinner::First(Err(_)) | RaceWinner::Second(RaceWinner::Second(())) => {
                    return Err(call.too_short(Duration::ZERO));
                }
                RaceWinner::Second(RaceWinner::First(())) => {}
            }
        }
    }

    /// Waits until the pacer permits the next call. Returns whether it had to wait.
    async fn wait_for_pace(&self, call: PendingCall<'_>) -> Result<bool, AdmissionError> {
        let mut has_waited = false;
        while let Some(at) = self.ask(call, 0)? {
            has_waited = true;
            race(self.observed.notified(), sleep_until(call.origin + at)).await;
        }
        Ok(has_waited)
    }

    /// When to ask again; `None` if the call may be sent now.
    fn ask(&self, call: PendingCall<'_>, ahead: usize) -> Result<Option<Duration>, AdmissionError> {
        let now = call.since_origin(Instant::now());
        let deadline = call.since_origin(call.deadline);
        match lock(&self.pacer).ask(now, Some(deadline), ahead) {
            PacingAnswer::SendNow => Ok(None),
            PacingAnswer::WaitUntil(at) => Ok(Some(at)),
            PacingAnswer::GiveUp { needed } => Err(call.too_short(needed)),
        }
    }

    /// Asks the shared quota, and waits as long as it delays the call.
    async fn acquire_shared(&self, call: PendingCall<'_>) -> Result<SharedVerdict, AdmissionError> {
        let Some(shared) = call.quota else { return Ok(SharedVerdict::Granted) };
        let answer = timeout_at(call.deadline, shared.quota.acquire(&self.key, call.cost)).await;
        match answer.map_err(|_| call.too_short(Duration::ZERO))? {
            Ok(QuotaAnswer::Granted { delay }) => {
                let available = call.deadline.saturating_duration_since(Instant::now());
                if delay > available {
                    return Err(call.too_short(delay));
                }
                sleep(delay).await;
                Ok(SharedVerdict::Granted)
            }
            Ok(QuotaAnswer::RetryAfter(wait)) => {
                let now = call.since_origin(Instant::now());
                lock(&self.pacer).block_until(now.saturating_add(wait));
                self.refused.notify_waiters();
                Ok(SharedVerdict::AskAgain)
            }
            Ok(QuotaAnswer::NeverFits) => {
                Err(AdmissionError::Quota(SharedQuotaError::CostTooHigh { cost: call.cost }))
            }
            Err(_) if shared.fails_open => Ok(SharedVerdict::Failed),
            Err(error) => Err(AdmissionError::Quota(error)),
        }
    }
}

/// What the shared quota says about the next call.
enum SharedVerdict {
    Granted,
    AskAgain,
    /// It could not be checked, and the call is sent nevertheless.
    Failed,
}

impl PendingCall<'_> {
    fn since_origin(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.origin)
    }

    fn too_short(&self, needed: Duration) -> AdmissionError {
        let available = self.deadline.saturating_duration_since(Instant::now());
        AdmissionError::DeadlineTooShort { needed: needed.max(available), available }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E> From<AdmissionError> for ClientError<E> {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::DeadlineTooShort { needed, available } => {
                Self::DeadlineTooShort { needed, available }
            }
            AdmissionError::QueueFull { waiting } => Self::QueueFull { waiting },
            AdmissionError::Quota(error) => Self::Quota(error),
        }
    }
}
