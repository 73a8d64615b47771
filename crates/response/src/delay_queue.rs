//! Holds admitted requests until they may leave, and refunds those that never do.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, Limiter, QueueDelay};
use tokio::time::Instant;

use crate::pacing_queue::{PacingQueues, QueueTicket};
use tidegate_web::ProcessStatus;
use tidegate_web::problem::HttpError;

/// The part of the drain timeout that is reserved for a request after it leaves its queue.
const FINISH_MARGIN: Duration = Duration::from_secs(1);

/// Delays admitted requests.
#[derive(Debug)]
pub struct DelayQueue {
    queues: Arc<PacingQueues>,
    status: Arc<ProcessStatus>,
    drain_timeout: Duration,
}

/// A request in the queue. If it is dropped with its decision, the client has disconnected or the
/// server is shutting down.
struct DelayedRequest<S: Store + 'static, L: Store + 'static> {
    limiter: Arc<Limiter<S, L>>,
    decision: Option<Decision>,
    ticket: QueueTicket,
}

impl DelayQueue {
    /// Delays at most `max_waiting` requests at a time. A drain of the process waits
    /// `drain_timeout` for them.
    #[must_use]
    pub fn new(max_waiting: usize, status: Arc<ProcessStatus>, drain_timeout: Duration) -> Self {
        Self { queues: Arc::new(PacingQueues::new(max_waiting)), status, drain_timeout }
    }

    /// Waits until the request may leave the queue.
    ///
    /// # Errors
    /// If too many requests are queued, or the process stops before the request may leave.
    pub async fn wait<S: Store + 'static, L: Store + 'static>(
        &self,
        limiter: &Arc<Limiter<S, L>>,
        decision: Decision,
        delay: QueueDelay,
    ) -> Result<Decision, HttpError> {
        let Some(ticket) = self.queues.enqueue(&delay) else {
            limiter.refund_decision(decision).await;
            return Err(service_unavailable("too many requests are queued"));
        };
        let limiter = Arc::clone(limiter);
        let mut delayed = DelayedRequest { limiter, decision: Some(decision), ticket };
        let due = delayed.ticket.due();
        tokio::select! {
            biased;
            () = delayed.ticket.wait_for_departure() => {}
            () = self.drain_deadline_missed(due) => return Err(service_unavailable("the server is shutting down")),
        }
        delayed
            .decision
            .take()
            .ok_or_else(|| service_unavailable("the request is no longer queued"))
    }

    /// Completes when the process stops before a request with this departure time can finish.
    async fn drain_deadline_missed(&self, due: Instant) {
        self.status.wait_for_drain().await;
        if due + FINISH_MARGIN < Instant::now() + self.drain_timeout {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Drop for DelayedRequest<S, L> {
    /// Refunds the charge only if the request is the last in its queue: requests behind it already
    /// have their departure times. With several nodes on one store, this node does not know which
    /// request is last, so the charge is kept.
    fn drop(&mut self) {
        let Some(mut decision) = self.decision.take() else { return };
        let limiter = Arc::clone(&self.limiter);
        if limiter.store().node_count() == 1 && self.ticket.is_last() {
            tokio::spawn(async move { limiter.refund_decision(decision).await });
        } else if let Some(slots) = decision.take_slots() {
            tokio::spawn(async move { limiter.release_slots(slots).await });
        }
    }
}

fn service_unavailable(detail: &str) -> HttpError {
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}
