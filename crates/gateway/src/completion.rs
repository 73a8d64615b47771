//! What is left to do when an answer has gone out to its end, or never will: slots are released, and
//! what the request has cost is charged.
//!
//! A task looks after it from the decision on, so that nothing hangs on how the request ends: it is told
//! by a value that is dropped in any case.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, DeferredCharge, HeldSlots, Limiter};
use tidegate_rules::{BodyBytes, Rule};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::forwarded_bytes::ForwardedBytes;

/// A request that something is left to do for; dropped when its answer has ended.
#[derive(Debug)]
pub(super) struct RequestCompletion {
    outcome_sender: Option<oneshot::Sender<RequestOutcome>>,
    forwarded: ForwardedBytes,
    sent: u64,
    headers: Option<HeaderMap>,
    refunded: bool,
    task: Option<JoinHandle<()>>,
}

/// How a request ended.
#[derive(Debug, Default)]
struct RequestOutcome {
    /// What was forwarded of the request's body, however it ended, and of the answer's if there
    /// was one.
    body_bytes: BodyBytes,
    headers: HeaderMap,
    /// Whether what was charged is given back.
    refunded: bool,
}

impl RequestCompletion {
    /// Looks after what a decision holds and owes; none where it does neither, which is usual, and hence boxed.
    pub(super) fn start<S: Store + 'static, L: Store + 'static>(
        limiter: &Arc<Limiter<S, L>>,
        decision: &mut Decision,
    ) -> Option<Box<Self>> {
        let (slots, bill) = (decision.take_slots(), decision.take_deferred_charge());
        if slots.is_none() && bill.is_none() {
            return None;
        }
        let (ended, end) = oneshot::channel();
        let task = tokio::spawn(run_completion(Arc::clone(limiter), slots, bill, end));
        Some(Box::new(Self {
            outcome_sender: Some(ended),
            forwarded: ForwardedBytes::default(),
            sent: 0,
            headers: None,
            refunded: false,
            task: Some(task),
        }))
    }

    /// Where the bytes of the request's body are counted.
    pub(super) fn forwarded_bytes(&self) -> ForwardedBytes {
        self.forwarded.clone()
    }

    /// Gives back what was charged: nothing of the request was sent. Returns when that is done.
    pub(super) async fn refund(mut self: Box<Self>) {
        self.refunded = true;
        let task = self.task.take();
        drop(self);
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "a charge was not given back");
        }
    }

    /// Notes the head of the answer.
    pub(super) fn record_response_headers(&mut self, headers: &HeaderMap) {
        self.headers = Some(headers.clone());
    }

    /// Counts bytes of the answer's body.
    pub(super) const fn add_sent_bytes(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

impl Drop for RequestCompletion {
    fn drop(&mut self) {
        let response = self.headers.as_ref().map(|_| self.sent);
        let seen = BodyBytes { request: Some(self.forwarded.close()), response };
        let headers = self.headers.take().unwrap_or_default();
        if let Some(ended) = self.outcome_sender.take() {
            // The task waits for it, unless the whole process is on its way out.
            let _ =
                ended.send(RequestOutcome { body_bytes: seen, headers, refunded: self.refunded });
        }
    }
}

async fn run_completion<S: Store, L: Store>(
    limiter: Arc<Limiter<S, L>>,
    slots: Option<HeldSlots>,
    bill: Option<DeferredCharge>,
    mut end: oneshot::Receiver<RequestOutcome>,
) {
    let ended = match slots {
        Some(mut slots) => {
            let ended = renew_slots_until_end(&limiter, &mut slots, &mut end).await;
            limiter.release_slots(slots).await;
            ended
        }
        None => end.await.unwrap_or_default(),
    };
    if let Some(bill) = bill {
        let values =
            |name: &str| ended.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        let cost = |rule: &Rule| match ended.refunded {
            true => Some(0),
            false => rule.cost().response_cost(values, ended.body_bytes),
        };
        limiter.settle_deferred(bill, cost).await;
    }
}

/// Renews slots until the request has ended.
async fn renew_slots_until_end<S: Store, L: Store>(
    limiter: &Limiter<S, L>,
    slots: &mut HeldSlots,
    end: &mut oneshot::Receiver<RequestOutcome>,
) -> RequestOutcome {
    loop {
        let third = Duration::from(slots.lease()) / 3;
        match tokio::time::timeout(third, &mut *end).await {
            Ok(ended) => return ended.unwrap_or_default(),
            Err(_) => limiter.renew_slots(slots).await,
        }
    }
}
