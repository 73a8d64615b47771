//! Completes a request after its response has been sent or abandoned: releases its concurrency
//! slots and charges its final cost.
//!
//! A task does this from the decision on. It is signalled from `Drop`, so slots are released even
//! if the request is cancelled.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::store::Store;
use tidegate_limiter::{Decision, DeferredCharge, HeldSlots, Limiter};
use tidegate_rules::{BodyBytes, Rule};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::forwarded_bytes::ForwardedBytes;

/// A request with slots to release or a cost to charge; dropped when its response has ended.
#[derive(Debug)]
pub struct RequestCompletion {
    outcome_sender: Option<oneshot::Sender<RequestOutcome>>,
    forwarded: ForwardedBytes,
    sent: u64,
    headers: Option<HeaderMap>,
    refunded: RefundedRules,
    task: Option<JoinHandle<()>>,
}

/// How a request ended.
#[derive(Debug, Default)]
struct RequestOutcome {
    /// The forwarded bytes of the request body, however it ended, and the sent bytes of the
    /// response body, if there was a response.
    body_bytes: BodyBytes,
    headers: HeaderMap,
    refunded: RefundedRules,
}

/// The rules whose charge is refunded, whatever the response costs.
#[derive(Debug)]
enum RefundedRules {
    All,
    /// Rules with these IDs.
    Listed(Vec<String>),
}

impl RefundedRules {
    fn contains(&self, rule: &Rule) -> bool {
        match self {
            Self::All => true,
            Self::Listed(ids) => ids.iter().any(|id| id == rule.id()),
        }
    }
}

impl Default for RefundedRules {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl RequestCompletion {
    /// Starts the task for the slots and the deferred charge of a decision. Returns `None` if it
    /// has neither. That is the usual case, hence the box.
    pub fn start<S: Store + 'static, L: Store + 'static>(
        limiter: &Arc<Limiter<S, L>>,
        decision: &mut Decision,
    ) -> Option<Box<Self>> {
        let (slots, deferred) = (decision.take_slots(), decision.take_deferred_charge());
        if slots.is_none() && deferred.is_none() {
            return None;
        }
        let (outcome_sender, outcome_receiver) = oneshot::channel();
        let task =
            tokio::spawn(run_completion(Arc::clone(limiter), slots, deferred, outcome_receiver));
        Some(Box::new(Self {
            outcome_sender: Some(outcome_sender),
            forwarded: ForwardedBytes::default(),
            sent: 0,
            headers: None,
            refunded: RefundedRules::default(),
            task: Some(task),
        }))
    }

    /// The counter for the forwarded bytes of the request body.
    pub fn forwarded_bytes(&self) -> ForwardedBytes {
        self.forwarded.clone()
    }

    /// Refunds the charge, because nothing of the request was sent. Returns when that is done.
    pub async fn refund(mut self: Box<Self>) {
        self.refunded = RefundedRules::All;
        let task = self.task.take();
        drop(self);
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "failed to refund a charge");
        }
    }

    /// Refunds the deferred charges of the rules with these IDs when the response has ended.
    pub fn refund_rules(&mut self, ids: Vec<String>) {
        self.refunded = RefundedRules::Listed(ids);
    }

    /// Records the head of the response.
    pub fn record_response_headers(&mut self, headers: &HeaderMap) {
        self.headers = Some(headers.clone());
    }

    /// Counts bytes of the response body.
    pub const fn add_sent_bytes(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

impl Drop for RequestCompletion {
    fn drop(&mut self) {
        let response = self.headers.as_ref().map(|_| self.sent);
        let body_bytes = BodyBytes { request: Some(self.forwarded.close()), response };
        let headers = self.headers.take().unwrap_or_default();
        if let Some(sender) = self.outcome_sender.take() {
            // The task receives it, unless the runtime is shutting down.
            let refunded = std::mem::take(&mut self.refunded);
            let _ = sender.send(RequestOutcome { body_bytes, headers, refunded });
        }
    }
}

async fn run_completion<S: Store, L: Store>(
    limiter: Arc<Limiter<S, L>>,
    slots: Option<HeldSlots>,
    deferred: Option<DeferredCharge>,
    mut outcome_receiver: oneshot::Receiver<RequestOutcome>,
) {
    let outcome = match slots {
        Some(mut slots) => {
            let outcome = renew_slots_until_end(&limiter, &mut slots, &mut outcome_receiver).await;
            limiter.release_slots(slots).await;
            outcome
        }
        None => outcome_receiver.await.unwrap_or_default(),
    };
    if let Some(deferred) = deferred {
        let values =
            |name: &str| outcome.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        let cost = |rule: &Rule| match outcome.refunded.contains(rule) {
            true => Some(0),
            false => rule.cost().response_cost(values, outcome.body_bytes),
        };
        limiter.settle_deferred(deferred, cost).await;
    }
}

/// Renews slots until the request has ended.
async fn renew_slots_until_end<S: Store, L: Store>(
    limiter: &Limiter<S, L>,
    slots: &mut HeldSlots,
    outcome_receiver: &mut oneshot::Receiver<RequestOutcome>,
) -> RequestOutcome {
    loop {
        let third = Duration::from(slots.hold()) / 3;
        match tokio::time::timeout(third, &mut *outcome_receiver).await {
            Ok(outcome) => return outcome.unwrap_or_default(),
            Err(_) => limiter.renew_slots(slots).await,
        }
    }
}
