//! An admitted request that waits its turn, and what becomes of its charge if it never gets it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tidegate_core::store::Store;
use tidegate_engine::{Decision, Limiter, Turn};
use tokio::time::Instant;

use super::queue::{Place, Queues};
use crate::Status;
use crate::problem::Problem;

/// What is left of the drain for a request after it has left its queue.
const TO_FINISH: Duration = Duration::from_secs(1);

/// Where requests wait.
#[derive(Debug)]
pub(super) struct WaitingRoom {
    queues: Arc<Queues>,
    status: Arc<Status>,
    drain_timeout: Duration,
}

/// A request that waits; dropped while it does, its client has gone.
struct Waiter<S: Store + 'static, L: Store + 'static> {
    limiter: Arc<Limiter<S, L>>,
    decision: Option<Decision>,
    place: Place,
}

impl WaitingRoom {
    pub(super) fn new(most: usize, status: Arc<Status>, drain_timeout: Duration) -> Self {
        Self { queues: Arc::new(Queues::new(most)), status, drain_timeout }
    }

    /// Returns when it is the turn of a request, and it may leave.
    ///
    /// # Errors
    /// When too many wait already, or the process stops before its turn. It is then not charged.
    pub(super) async fn wait<S: Store + 'static, L: Store + 'static>(
        &self,
        limiter: &Arc<Limiter<S, L>>,
        decision: Decision,
        turn: Turn,
    ) -> Result<Decision, Problem> {
        let Some(place) = self.queues.enter(&turn) else {
            limiter.give_back(decision).await;
            return Err(unavailable("too many requests wait already"));
        };
        let limiter = Arc::clone(limiter);
        let mut waiter = Waiter { limiter, decision: Some(decision), place };
        let due = waiter.place.due();
        tokio::select! {
            biased;
            () = waiter.place.leave() => {}
            () = self.no_time_left(due) => return Err(unavailable("the server is stopping")),
        }
        waiter.decision.take().ok_or_else(|| unavailable("the request waits no more"))
    }

    /// Returns when the process stops too early for a request that is due then.
    async fn no_time_left(&self, due: Instant) {
        self.status.until_draining().await;
        if due + TO_FINISH < Instant::now() + self.drain_timeout {
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Drop for Waiter<S, L> {
    /// A place is given back only if it is the last in line: behind it others have been told when they
    /// leave. With several nodes on one store nobody here knows who is last; then it lapses.
    fn drop(&mut self) {
        let Some(mut decision) = self.decision.take() else { return };
        let limiter = Arc::clone(&self.limiter);
        if limiter.store().nodes() == 1 && self.place.is_last() {
            tokio::spawn(async move { limiter.give_back(decision).await });
        } else if let Some(slots) = decision.take_slots() {
            tokio::spawn(async move { limiter.release(slots).await });
        }
    }
}

fn unavailable(detail: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
}
