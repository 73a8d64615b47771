//! The algorithms once more, in exact rational arithmetic, straight from their definitions.
//!
//! An algorithm is one function, [`Oracle::used`]: how much of the limit is taken at an instant if
//! nothing else comes. Everything else follows by searching it: a cost fits when `used + cost ≤
//! limit`, the wait is the first instant at which it fits. None of core's formulas is used here.

mod past;
mod probe;
mod tank;

use num_rational::Ratio;
use tidegate_core::algorithm::{Fit, Gauge};
use tidegate_core::policy::{Algorithm, Leak};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};

use past::Past;
use tank::Tank;

/// What is told where nobody can know when a slot will be free.
const HINT: Micros = Micros::from_secs(1);

/// A number that is never rounded.
pub type Exact = Ratio<i128>;

/// One counter, by definition.
#[derive(Clone, Debug)]
pub struct Oracle {
    law: Law,
    limit: i128,
    queue: bool,
}

/// What an algorithm remembers, and how much of it counts.
#[derive(Clone, Debug)]
enum Law {
    /// A level that drains steadily.
    Bucket(Tank),
    /// What was charged in the window of the epoch grid that an instant lies in.
    Fixed(Past),
    /// What was charged in the window that ends at an instant.
    Log(Past),
    /// What is held at an instant: taken or renewed within the lease that ends there.
    Slots(Past),
    /// What was charged in this window of the grid, and the overlapping share of the last one.
    /// The share is too large by at most this much.
    Counter(Past, Exact),
}

impl Oracle {
    /// An untouched counter.
    #[must_use]
    pub fn new(algorithm: Algorithm, quota: &Quota) -> Self {
        let rate = Exact::new(quota.requests.into(), quota.window.get().into());
        Self::slower(algorithm, quota, rate, Exact::from_integer(0))
    }

    /// An untouched counter that is stricter than the definition: a bucket that drains at this rate,
    /// a sliding counter that keeps this much more of the window before.
    #[must_use]
    pub fn slower(algorithm: Algorithm, quota: &Quota, rate: Exact, share: Exact) -> Self {
        let (requests, window) = (i128::from(quota.requests), i128::from(quota.window.get()));
        let burst = i128::from(quota.burst());
        let (law, limit) = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket(_) => {
                (Law::Bucket(Tank::new(rate, burst)), burst)
            }
            Algorithm::FixedWindow => (Law::Fixed(Past::new(window, requests)), requests),
            Algorithm::SlidingWindowLog => (Law::Log(Past::new(window, requests)), requests),
            Algorithm::Concurrent => (Law::Slots(Past::new(window, requests)), requests),
            Algorithm::SlidingWindowCounter => {
                (Law::Counter(Past::new(window, requests), share), requests)
            }
        };
        Self { law, limit, queue: algorithm == Algorithm::LeakyBucket(Leak::Queue) }
    }

    /// How much of the limit is taken at an instant, if nothing else comes until then.
    #[must_use]
    pub fn used(&self, at: i128) -> Exact {
        match &self.law {
            Law::Bucket(tank) => tank.level(at),
            Law::Fixed(past) => Exact::from_integer(past.in_grid_window(past.grid(at))),
            Law::Log(past) | Law::Slots(past) => Exact::from_integer(past.in_window_until(at)),
            Law::Counter(past, share) => {
                let (id, elapsed) = (past.grid(at), at.rem_euclid(past.window));
                let overlap = Exact::new(past.window - elapsed, past.window) + share;
                let before = past.in_grid_window(id - 1);
                overlap.min(Exact::from_integer(1)) * before + past.in_grid_window(id)
            }
        }
    }

    /// Whether `cost` fits at an instant.
    #[must_use]
    pub fn fits(&self, cost: u64, at: i128) -> bool {
        self.used(at) + i128::from(cost) <= Exact::from_integer(self.limit)
    }

    /// Adds `cost` at `now`, whether it fits or not; debt ends at one more full bucket or window.
    pub fn charge(&mut self, cost: u64, now: Timestamp) {
        let (cost, now) = (i128::from(cost), i128::from(now.as_micros()));
        match &mut self.law {
            Law::Bucket(tank) => tank.fill(cost, now),
            Law::Fixed(past) | Law::Counter(past, _) => {
                let held = past.in_grid_window(past.grid(now));
                past.add(cost.min(2 * self.limit - held), now);
            }
            Law::Log(past) => {
                let cost = cost.min(2 * self.limit - past.in_window_until(now));
                past.merge_newest_if_full(cost, now);
                past.add(cost, now);
            }
            Law::Slots(past) => {
                past.add(cost.min(2 * self.limit - past.in_window_until(now)), now);
            }
        }
    }

    /// Gives back a `cost` that was charged at `charged_at`.
    pub fn refund(&mut self, cost: u64, charged_at: Timestamp, now: Timestamp) {
        let (cost, now) = (i128::from(cost), i128::from(now.as_micros()));
        let then = i128::from(charged_at.as_micros());
        match &mut self.law {
            Law::Bucket(tank) => tank.give_back(cost, then, now),
            Law::Fixed(past) if past.grid(then) == past.grid(now) => {
                past.remove(cost, |past, at| past.grid(at) == past.grid(then));
            }
            Law::Counter(past, _) if (0..=1).contains(&(past.grid(now) - past.grid(then))) => {
                past.remove(cost, |past, at| past.grid(at) == past.grid(then));
            }
            Law::Log(past) | Law::Slots(past) => past.remove(cost, |_, at| at == then),
            Law::Fixed(_) | Law::Counter(..) => {}
        }
    }

    /// Holds on what was taken at `charged_at`: it is as if it had been taken now.
    pub fn renew(&mut self, cost: u64, charged_at: Timestamp, now: Timestamp) {
        if matches!(self.law, Law::Slots(_)) {
            self.refund(cost, charged_at, now);
            self.charge(cost, now);
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        match &mut self.law {
            Law::Bucket(tank) => tank.empty(),
            Law::Fixed(past) | Law::Log(past) | Law::Slots(past) | Law::Counter(past, _) => {
                past.forget();
            }
        }
    }

    /// Goes over to another quota of the same window: a bucket settles at the old rate and goes on at
    /// the new one from there, with what is used in whole requests.
    pub fn reload(&mut self, quota: &Quota, now: Timestamp) {
        let requests = i128::from(quota.requests);
        match &mut self.law {
            Law::Bucket(tank) => {
                self.limit = quota.burst().into();
                let rate = Exact::new(requests, quota.window.get().into());
                tank.change(rate, self.limit, now.as_micros().into());
            }
            Law::Fixed(past) | Law::Counter(past, _) | Law::Log(past) | Law::Slots(past) => {
                self.limit = requests;
                past.requests = requests;
            }
        }
    }

    /// Moves what lies ahead of `now` to `now`, after a clock that went back.
    pub fn rebase(&mut self, now: Timestamp) {
        let now = i128::from(now.as_micros());
        match &mut self.law {
            Law::Bucket(tank) => tank.rebase(now),
            Law::Fixed(past) | Law::Log(past) | Law::Slots(past) | Law::Counter(past, _) => {
                past.rebase(now);
            }
        }
    }

    /// Whether `cost` fits and if not, when: found by search.
    #[must_use]
    pub fn fit(&self, cost: u64, now: Timestamp) -> Fit {
        let now = i128::from(now.as_micros());
        if i128::from(cost) > self.limit {
            return Fit::Never;
        }
        match first(|wait| self.fits(cost, now + wait)) {
            Micros::ZERO if self.queue => Fit::Now { delay: self.until_untouched(now) },
            Micros::ZERO => Fit::NOW,
            _ if self.is_hint() => Fit::After(HINT),
            wait => Fit::After(wait),
        }
    }

    /// What is left: found by search.
    #[must_use]
    pub fn gauge(&self, now: Timestamp) -> Gauge {
        let now = i128::from(now.as_micros());
        let refused = first(|more| self.used(now) + more > Exact::from_integer(self.limit));
        let remaining = refused.get().saturating_sub(1);
        let next_after = self.until_more(remaining, now);
        Gauge { remaining, reset_after: self.until_untouched(now), next_after }
    }

    /// How long no more than `remaining` passes, whatever is asked: found by search. Of a sliding counter what is
    /// spent counts less from the next window on, and that long is as far as is told; of a log so long as its
    /// oldest entry lives.
    fn until_more(&self, remaining: u64, now: i128) -> Micros {
        let end = |past: &Past| past.window - now.rem_euclid(past.window);
        match &self.law {
            Law::Slots(_) => Micros::ZERO,
            Law::Fixed(past) => span(end(past)),
            Law::Log(past) => {
                let used = self.used(now);
                match used == Exact::from_integer(0) {
                    true => span(past.window),
                    false => first(|wait| self.used(now + wait) < used),
                }
            }
            Law::Counter(past, _) => {
                let more = i128::from(remaining) + 1;
                let fits = |wait| self.used(now + wait) + more <= Exact::from_integer(self.limit);
                first(|wait| wait >= end(past) || fits(wait))
            }
            Law::Bucket(_) => {
                // What is there is spent at once: a bucket that is full does not fill.
                let mut spent = self.clone();
                if let Law::Bucket(tank) = &mut spent.law {
                    tank.fill(i128::from(remaining), now);
                }
                first(|wait| spent.fits(1, now + wait))
            }
        }
    }

    /// Whether a wait is not known, so that a hint is told.
    const fn is_hint(&self) -> bool {
        matches!(self.law, Law::Slots(_))
    }

    fn until_untouched(&self, now: i128) -> Micros {
        first(|wait| self.used(now + wait) == Exact::from_integer(0))
    }
}

fn span(micros: i128) -> Micros {
    Micros::new(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The smallest number from zero on for which something holds that stays true once it is.
fn first(holds: impl Fn(i128) -> bool) -> Micros {
    let mut yes = 0;
    while !holds(yes) {
        yes = (2 * yes).max(1);
    }
    let mut no = yes / 2;
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    Micros::new(u64::try_from(yes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::charges_only;
    use crate::property::holds;
    use crate::quotas::SIX;
    use proptest::prelude::*;
    use tidegate_core::decision::Reading;
    use tidegate_core::policy::Policy;

    /// Searching by halves rests on what is used never growing by itself; walking rests on nothing.
    #[test]
    fn the_search_finds_what_a_walk_finds() {
        let quota = (1_u64..6, 1_u64..20)
            .prop_map(|(requests, window)| Quota::new(requests, Micros::new(window)));
        let strategy = (0_usize..6, quota, charges_only(8), 1_u64..6);
        holds("oracle_search", 20_000, &strategy, |(which, quota, history, cost)| {
            let policy = Policy::new(SIX[which], quota).unwrap();
            let (mut oracle, mut now) = (Oracle::new(SIX[which], &quota), history.start);
            for step in &history.moves {
                now = step.hop.from(&policy, &Reading::default(), now);
                oracle.charge(step.cost.number(&policy, &Reading::default()), now);
            }
            let at = i128::from(now.as_micros());
            let walk = |holds: &dyn Fn(i128) -> bool| (0..1_000_u64).find(|n| holds((*n).into()));
            if let Fit::After(wait) = oracle.fit(cost, now) {
                prop_assert_eq!(walk(&|n| oracle.fits(cost, at + n)), Some(wait.get()));
            }
            let untouched = walk(&|n| oracle.used(at + n) == Exact::from_integer(0));
            prop_assert_eq!(untouched, Some(oracle.gauge(now).reset_after.get()));
            prop_assert!((0..100).all(|n| oracle.used(at + n) >= oracle.used(at + n + 1)));
            Ok(())
        });
    }
}
