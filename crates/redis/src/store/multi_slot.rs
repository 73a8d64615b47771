//! Requests whose counters are in several cluster slots. All slots are charged in parallel. If one
//! refuses, the charges on the others are refunded.

use std::sync::Arc;

use tidegate_core::decision::Verdict;
use tidegate_core::store::{Op, Role};
use tidegate_core::time::Timestamp;
use tokio::time::Instant;

use super::RedisStoreInner;
use crate::connection::RedisRequestError;
use crate::replay::RequestReadings;
use crate::script_request::{ScriptCharge, ScriptRequest};

impl RedisStoreInner {
    /// Sends one request to each slot in parallel. If one refuses, refunds the charges on the
    /// others.
    pub(super) async fn send_to_all_slots(
        self: &Arc<Self>,
        op: Op,
        groups: Vec<(Vec<usize>, ScriptRequest)>,
        deadline: Instant,
    ) -> Vec<(Vec<usize>, Result<RequestReadings, RedisRequestError>)> {
        let (positions, requests): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|(positions, request)| (positions, Arc::new(request))).unzip();
        let mut answers =
            join_all(requests.iter().map(|request| self.router.send_request(request, deadline)))
                .await;
        let refuses =
            |readings: &RequestReadings| readings.iter().any(|reading| reading.verdict.refuses());
        if op == Op::Charge && answers.iter().flatten().any(refuses) {
            self.refund_charged_slots(&requests, &mut answers, deadline).await;
        }
        positions.into_iter().zip(answers).collect()
    }

    /// Refunds the slots that charged a request which another slot refused, and updates their
    /// readings. The refund has a separate deadline, but the request does not wait for it beyond
    /// its own.
    async fn refund_charged_slots(
        self: &Arc<Self>,
        requests: &[Arc<ScriptRequest>],
        answers: &mut [Result<RequestReadings, RedisRequestError>],
        deadline: Instant,
    ) {
        let mut pending = Vec::new();
        for (group, (request, answer)) in requests.iter().zip(&*answers).enumerate() {
            let Ok(readings) = answer else { continue };
            if readings.iter().any(|reading| reading.verdict.refuses()) {
                continue;
            }
            let charged_at = readings.first().map_or(Timestamp::EPOCH, |reading| reading.now);
            let mut refund = ScriptRequest::new(Op::Refund { charged_at }, Default::default());
            let mut charged = Vec::new();
            for (i, (item, reading)) in request.items.iter().zip(readings).enumerate() {
                if reading.verdict == Verdict::Allow && item.role != Role::Always {
                    refund.items.push(ScriptCharge { grace: None, ban: None, ..item.clone() });
                    charged.push(Some(i));
                } else if let (Verdict::Warn, Some((location, policy))) =
                    (reading.verdict, &item.grace)
                {
                    // Refund the warning that was counted.
                    let mut item = item.clone();
                    (item.location, item.policy, item.cost) = (location.clone(), *policy, 1);
                    refund.items.push(ScriptCharge { grace: None, ban: None, ..item });
                    charged.push(None);
                }
            }
            if !refund.items.is_empty() {
                pending.push((group, charged, Arc::new(refund)));
            }
        }
        let later = Instant::now() + self.context.deadline.get();
        let refunds = pending.iter().map(|(_, _, refund)| {
            let (inner, refund) = (Arc::clone(self), Arc::clone(refund));
            let task = tokio::spawn(async move { inner.router.send_request(&refund, later).await });
            async move { tokio::time::timeout_at(deadline, task).await.ok()?.ok()?.ok() }
        });
        let refunded = join_all(refunds).await;
        for ((group, charged, _), refunded) in pending.iter().zip(refunded) {
            // If the refund fails, the charge stays: too strict, never too lax.
            let (Ok(readings), Some(refunded)) = (&mut answers[*group], refunded) else { continue };
            for (position, reading) in charged.iter().zip(refunded) {
                if let Some(position) = position {
                    let charged_reading = &mut readings[*position];
                    charged_reading.set_gauge(reading.gauge());
                    charged_reading.now = reading.now;
                }
            }
        }
    }
}

async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(futures).await
}
