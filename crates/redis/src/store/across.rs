//! Requests whose counters are in several slots of a cluster: all slots are asked at once, and what was
//! charged is given back where one refuses.

use std::sync::Arc;

use tidegate_core::decision::Verdict;
use tidegate_core::store::{Op, Role};
use tidegate_core::time::Timestamp;
use tokio::time::Instant;

use super::Shared;
use crate::ask::{Ask, Item};
use crate::link::Failure;
use crate::replay::Told;

impl Shared {
    /// Asks several servers at once, and where one refuses gives back what the others charged.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        op: Op,
        groups: Vec<(Vec<usize>, Ask)>,
        deadline: Instant,
    ) -> Vec<(Vec<usize>, Result<Told, Failure>)> {
        let (places, asks): (Vec<_>, Vec<_>) =
            groups.into_iter().map(|(places, ask)| (places, Arc::new(ask))).unzip();
        let mut answers = all(asks.iter().map(|ask| self.router.ask(ask, deadline))).await;
        let refuses = |told: &Told| told.iter().any(|reading| reading.verdict.refuses());
        if op == Op::Charge && answers.iter().flatten().any(refuses) {
            self.give_back(&asks, &mut answers, deadline).await;
        }
        places.into_iter().zip(answers).collect()
    }

    /// Takes back what was charged to requests that another server refuses, and tells what is left.
    /// It has a deadline of its own, but nobody waits for it beyond the request's.
    async fn give_back(
        self: &Arc<Self>,
        asks: &[Arc<Ask>],
        answers: &mut [Result<Told, Failure>],
        deadline: Instant,
    ) {
        let mut back = Vec::new();
        for (group, (ask, answer)) in asks.iter().zip(&*answers).enumerate() {
            let Ok(told) = answer else { continue };
            if told.iter().any(|reading| reading.verdict.refuses()) {
                continue;
            }
            let charged_at = told.first().map_or(Timestamp::EPOCH, |reading| reading.now);
            let mut refund = Ask::new(Op::Refund { charged_at }, Default::default());
            let mut charged = Vec::new();
            for (i, (item, reading)) in ask.items.iter().zip(told).enumerate() {
                if reading.verdict == Verdict::Allow && item.role != Role::Always {
                    refund.items.push(Item { grace: None, ban: None, ..item.clone() });
                    charged.push(Some(i));
                } else if let (Verdict::Warn, Some((home, policy))) = (reading.verdict, &item.grace)
                {
                    // The warning that was counted.
                    let mut item = item.clone();
                    (item.home, item.policy, item.cost) = (home.clone(), *policy, 1);
                    refund.items.push(Item { grace: None, ban: None, ..item });
                    charged.push(None);
                }
            }
            if !refund.items.is_empty() {
                back.push((group, charged, Arc::new(refund)));
            }
        }
        let later = Instant::now() + self.common.deadline;
        let asked = back.iter().map(|(_, _, refund)| {
            let (shared, refund) = (Arc::clone(self), Arc::clone(refund));
            let asked = tokio::spawn(async move { shared.router.ask(&refund, later).await });
            async move { tokio::time::timeout_at(deadline, asked).await.ok()?.ok()?.ok() }
        });
        let refunded = all(asked).await;
        for ((group, charged, _), refunded) in back.iter().zip(refunded) {
            // Where it could not be given back, it stays charged: too strict, never too lax.
            let (Ok(told), Some(refunded)) = (&mut answers[*group], refunded) else { continue };
            for (place, reading) in charged.iter().zip(refunded) {
                if let Some(place) = place {
                    let was = &mut told[*place];
                    was.set_left(reading.left());
                    was.now = reading.now;
                }
            }
        }
    }
}

/// Waits for all at once.
async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(futures).await
}
