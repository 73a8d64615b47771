//! What is left to do when an answer has gone out to its end, or never will: slots are released, and
//! what the request has cost is charged.
//!
//! A task looks after it from the decision on, so that nothing hangs on how the request ends: it is told
//! by a value that is dropped in any case.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::store::Store;
use tidegate_engine::{Bill, Decision, Limiter, Slots};
use tidegate_rules::{BodyBytes, Rule};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::forwarded_bytes::ForwardedBytes;

/// A request that something is left to do for; dropped when its answer has ended.
#[derive(Debug)]
pub(super) struct Aftermath {
    ended: Option<oneshot::Sender<Ended>>,
    forwarded: ForwardedBytes,
    sent: u64,
    headers: Option<HeaderMap>,
    given_back: bool,
    task: Option<JoinHandle<()>>,
}

/// How a request ended.
#[derive(Debug, Default)]
struct Ended {
    /// What was forwarded of the request's body, however it ended, and of the answer's if there
    /// was one.
    seen: BodyBytes,
    headers: HeaderMap,
    /// Whether what was charged is given back.
    given_back: bool,
}

impl Aftermath {
    /// Looks after what a decision holds and owes; none where it does neither, which is usual, and hence boxed.
    pub(super) fn of<S: Store + 'static, L: Store + 'static>(
        limiter: &Arc<Limiter<S, L>>,
        decision: &mut Decision,
    ) -> Option<Box<Self>> {
        let (slots, bill) = (decision.take_slots(), decision.take_bill());
        if slots.is_none() && bill.is_none() {
            return None;
        }
        let (ended, end) = oneshot::channel();
        let task = tokio::spawn(look_after(Arc::clone(limiter), slots, bill, end));
        Some(Box::new(Self {
            ended: Some(ended),
            forwarded: ForwardedBytes::default(),
            sent: 0,
            headers: None,
            given_back: false,
            task: Some(task),
        }))
    }

    /// Where the bytes of the request's body are counted.
    pub(super) fn forwarded(&self) -> ForwardedBytes {
        self.forwarded.clone()
    }

    /// Gives back what was charged: nothing of the request was sent. Returns when that is done.
    pub(super) async fn give_back(mut self: Box<Self>) {
        self.given_back = true;
        let task = self.task.take();
        drop(self);
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "a charge was not given back");
        }
    }

    /// Notes the head of the answer.
    pub(super) fn answered(&mut self, headers: &HeaderMap) {
        self.headers = Some(headers.clone());
    }

    /// Counts bytes of the answer's body.
    pub(super) const fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

impl Drop for Aftermath {
    fn drop(&mut self) {
        let response = self.headers.as_ref().map(|_| self.sent);
        let seen = BodyBytes { request: Some(self.forwarded.close()), response };
        let headers = self.headers.take().unwrap_or_default();
        if let Some(ended) = self.ended.take() {
            // The task waits for it, unless the whole process is on its way out.
            let _ = ended.send(Ended { seen, headers, given_back: self.given_back });
        }
    }
}

async fn look_after<S: Store, L: Store>(
    limiter: Arc<Limiter<S, L>>,
    slots: Option<Slots>,
    bill: Option<Bill>,
    mut end: oneshot::Receiver<Ended>,
) {
    let ended = match slots {
        Some(mut slots) => {
            let ended = hold(&limiter, &mut slots, &mut end).await;
            limiter.release(slots).await;
            ended
        }
        None => end.await.unwrap_or_default(),
    };
    if let Some(bill) = bill {
        let values =
            |name: &str| ended.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        let cost = |rule: &Rule| match ended.given_back {
            true => Some(0),
            false => rule.cost().of_response(values, ended.seen),
        };
        limiter.charge_after(bill, cost).await;
    }
}

/// Renews slots until the request has ended.
async fn hold<S: Store, L: Store>(
    limiter: &Limiter<S, L>,
    slots: &mut Slots,
    end: &mut oneshot::Receiver<Ended>,
) -> Ended {
    loop {
        let third = Duration::from(slots.lease()) / 3;
        match tokio::time::timeout(third, &mut *end).await {
            Ok(ended) => return ended.unwrap_or_default(),
            Err(_) => limiter.renew(slots).await,
        }
    }
}
