//! What is left to do when an answer has gone out to its end, or never will: slots are released, and
//! what the request has cost is charged.
//!
//! A task looks after it from the decision on, so that nothing hangs on how the request ends: it is told
//! by a value that is dropped in any case.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tidegate_core::store::Store;
use tidegate_engine::{Bill, Decision, Limiter, Slots};
use tidegate_rules::BodyBytes;
use tokio::sync::oneshot;

/// A request that something is left to do for; dropped when its answer has ended.
#[derive(Debug)]
pub(super) struct Aftermath {
    ended: Option<oneshot::Sender<Ended>>,
    received: Arc<AtomicU64>,
    sent: u64,
    headers: Option<HeaderMap>,
}

/// How a request ended.
#[derive(Debug, Default)]
struct Ended {
    /// What was seen of the bodies, if there was an answer.
    seen: BodyBytes,
    headers: HeaderMap,
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
        tokio::spawn(look_after(Arc::clone(limiter), slots, bill, end));
        let received = Arc::default();
        Some(Box::new(Self { ended: Some(ended), received, sent: 0, headers: None }))
    }

    /// Where the bytes of the request's body are counted.
    pub(super) fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
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
        let request = Some(self.received.load(Relaxed));
        let seen = |_: &HeaderMap| BodyBytes { request, response: Some(self.sent) };
        let seen = self.headers.as_ref().map(seen).unwrap_or_default();
        let headers = self.headers.take().unwrap_or_default();
        if let Some(ended) = self.ended.take() {
            // The task waits for it, unless the whole process is on its way out.
            let _ = ended.send(Ended { seen, headers });
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
        limiter.charge_after(bill, |rule| rule.cost().of_response(values, ended.seen)).await;
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
