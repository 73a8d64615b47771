//! Settling: the store is told what was admitted on local shares while it was gone.
//!
//! There is no runtime here; whoever has one calls [`Limiter::settle`] again and again.

use std::sync::Arc;

use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::Policy;
use tidegate_core::store::{Charge, Op, Store};
use tidegate_rules::{Rule, RuleSet};

use crate::debt::Owed;
use crate::limiter::Limiter;
use crate::receipt::successor;

/// Keys that one call settles at most.
const PORTION: usize = 64;

impl<S: Store, L: Store> Limiter<S, L> {
    /// Whether something was admitted on local shares that the store does not know of yet.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.debts.any())
    }

    /// What was admitted on local shares and the store will never know of, since the start: a write
    /// that may have been lost, or more keys in an outage than are remembered. For a metric.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.local.as_ref().map_or(0, |local| local.debts.forgotten())
    }

    /// Writes some of what is owed to the store and says of how many keys: a bounded step, to be
    /// called every few hundred milliseconds while [`owes`](Self::owes) says so. While the store is
    /// gone it does nothing.
    ///
    /// What was sent and not answered is not sent again, because it may have been done. A write that
    /// is lost admits a key one share more, once; one that is done twice would refuse it wrongly.
    /// (A request that a share admitted because the store's answer came too late may still be counted
    /// twice, in the store and here: an error does not tell. That is a few requests an outage, until
    /// a breaker opens, and on the strict side.)
    pub async fn settle(&self) -> usize {
        let Some(local) = &self.local else { return 0 };
        let rules = self.rules();
        let due = local.debts.some(PORTION);
        let mut charges: Vec<Due<'_>> = Vec::with_capacity(due.len());
        for (key, owed) in &due {
            match Due::new(*key, owed, &rules) {
                Some(due) => charges.push(due),
                // No rule looks at that counter any more.
                None => local.debts.clear(*key),
            }
        }
        // A look changes nothing, so it may fail: it tells which part of the store is there.
        let asked: Vec<Charge<'_>> = charges.iter().map(|due| due.charge(1)).collect();
        let mut told = vec![Reading::default(); asked.len()];
        if let Err(error) = self.store.apply(Op::Peek, &asked, &mut told).await {
            charges = error.answered.iter().filter_map(|i| charges.get(*i).copied()).collect();
        }
        let shares: Vec<Charge<'_>> =
            charges.iter().map(|due| Charge::plain(due.key, due.share, 1)).collect();
        told.truncate(shares.len());
        if shares.is_empty() || local.store.apply(Op::Peek, &shares, &mut told).await.is_err() {
            return 0;
        }
        let written: Vec<Charge<'_>> = charges
            .iter()
            .zip(&told)
            .map(|(due, told)| due.charge(local.debts.take(due.key.fingerprint, told)))
            .filter(|charge| charge.cost > 0)
            .collect();
        told.truncate(written.len());
        if written.is_empty() {
            return 0;
        }
        let Err(error) = self.store.apply(Op::Force, &written, &mut told).await else {
            return written.len();
        };
        let lost = (0..written.len()).filter(|i| !error.answered.contains(i));
        lost.for_each(|i| local.debts.forget_cost(written[i].cost));
        error.answered.len()
    }
}

/// One key's debt, with the counters that it is in.
#[derive(Clone, Copy)]
struct Due<'a> {
    key: Key<'a>,
    /// The store's counter, under the rules in force.
    policy: &'a Policy,
    /// The local one, under those that admitted it.
    share: &'a Policy,
}

impl<'a> Due<'a> {
    fn new(fingerprint: Fingerprint, owed: &'a Owed, rules: &'a Arc<RuleSet>) -> Option<Self> {
        let rule = present(owed, rules)?;
        let key = rule.key(fingerprint);
        Some(Self { key, policy: rule.limit().policy()?, share: owed.share()? })
    }

    const fn charge(&self, cost: u64) -> Charge<'a> {
        Charge::plain(self.key, self.policy, cost)
    }
}

/// The rule in force that goes on with the counter of a debt, if there is one.
fn present<'a>(owed: &Owed, rules: &'a Arc<RuleSet>) -> Option<&'a Rule> {
    rules.get(successor(owed.shares.rules(), owed.rule, rules)?)
}
