//! An admitted request that waits its turn, and what becomes of its charge if it never gets it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, Limiter, QueueDelay};
use tokio::time::Instant;

use super::pacing_queue::{PacingQueues, QueueTicket};
use tidegate_web::ProcessStatus;
use tidegate_web::problem::HttpError;

/// What is left of the drain for a request after it has left its queue.
const FINISH_MARGIN: Duration = Duration::from_secs(1);

/// Where requests wait.
#[derive(Debug)]
pub(super) struct DelayQueue {
    queues: Arc<PacingQueues>,
    status: Arc<ProcessStatus>,
    drain_timeout: Duration,
}

/// A request that waits; dropped while it does, its client has gone.
struct DelayedRequest<S: Store + 'static, L: Store + 'static> {
    limiter: Arc<Limiter<S, L>>,
    decision: Option<Decision>,
    ticket: QueueTicket,
}

impl DelayQueue {
    pub(super) fn new(most: usize, status: Arc<ProcessStatus>, drain_timeout: Duration) -> Self {
        Self { queues: Arc::new(PacingQueues::new(most)), status, drain_timeout }
    }

    /// Returns when it is the turn of a request, and it may leave.
    ///
    /// # Errors
    /// When too many wait already, or the process stops before its turn. It is then not charged.
    pub(super) async fn wait<S: Store + 'static, L: Store + 'static>(
        &self,
        limiter: &Arc<Limiter<S, L>>,
        decision: Decision,
        turn: QueueDelay,
    ) -> Result<Decision, HttpError> {
        let Some(place) = self.queues.enqueue(&turn) else {
            limiter.refund_decision(decision).await;
            return Err(service_unavailable("too many requests wait already"));
        };
        let limiter = Arc::clone(limiter);
        let mut waiter = DelayedRequest { limiter, decision: Some(decision), ticket: place };
        let due = waiter.ticket.due();
        tokio::select! {
            biased;
            () = waiter.ticket.wait_for_departure() => {}
            () = self.drain_deadline_missed(due) => return Err(service_unavailable("the server is stopping")),
        }
        waiter.decision.take().ok_or_else(|| service_unavailable("the request waits no more"))
    }

    /// Returns when the process stops too early for a request that is due then.
    async fn drain_deadline_missed(&self, due: Instant) {
        self.status.wait_for_drain().await;
        if due + FINISH_MARGIN < Instant::now() + self.drain_timeout {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Drop for DelayedRequest<S, L> {
    /// A place is given back only if it is the last in line: behind it others have been told when they
    /// leave. With several nodes on one store nobody here knows who is last; then it lapses.
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
