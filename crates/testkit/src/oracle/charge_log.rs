//! All charges ever made to a window counter, with their times. Nothing is pruned, packed or summed
//! in advance.

/// One charge.
#[derive(Clone, Copy, Debug)]
struct PastCharge {
    at: i128,
    cost: i128,
}

/// The charges of one counter, in the order they were made.
#[derive(Clone, Debug)]
pub(super) struct ChargeLog {
    /// The window in microseconds.
    pub(super) window: i128,
    /// Maximum number of distinct times that a log keeps.
    pub(super) requests: i128,
    charges: Vec<PastCharge>,
}

impl ChargeLog {
    pub(super) fn new(window: i128, requests: i128) -> Self {
        Self { window, requests, charges: Vec::new() }
    }

    /// Index of the epoch-aligned window that contains `at`.
    pub(super) fn window_id(&self, at: i128) -> i128 {
        at.div_euclid(self.window)
    }

    /// Sum of the charges in an epoch-aligned window.
    pub(super) fn sum_in_window(&self, id: i128) -> i128 {
        self.sum_where(|at| self.window_id(at) == id)
    }

    /// Sum of the charges in (at − W, at].
    pub(super) fn sum_in_window_ending_at(&self, at: i128) -> i128 {
        self.sum_where(|then| at - self.window < then && then <= at)
    }

    pub(super) fn add(&mut self, cost: i128, now: i128) {
        if cost > 0 {
            self.charges.push(PastCharge { at: now, cost });
        }
    }

    /// A log keeps at most as many times as it admits requests. When a forced charge hits a full
    /// log, it is added to the newest entry, whose time becomes `now`.
    pub(super) fn merge_newest_if_full(&mut self, cost: i128, now: i128) {
        let live = |charged: &&PastCharge| charged.cost > 0 && now - self.window < charged.at;
        let mut times: Vec<i128> = self.charges.iter().filter(live).map(|one| one.at).collect();
        times.sort_unstable();
        times.dedup();
        let Some(newest) = times.last().copied() else { return };
        if cost > 0 && times.len() as i128 >= self.requests {
            self.charges.iter_mut().filter(|one| one.at == newest).for_each(|one| one.at = now);
        }
    }

    /// Removes up to `cost` from the charges whose time satisfies `matches`.
    pub(super) fn remove(&mut self, cost: i128, matches: impl Fn(&Self, i128) -> bool) {
        let mut left = cost;
        for i in 0..self.charges.len() {
            if matches(self, self.charges[i].at) {
                let taken = left.min(self.charges[i].cost);
                self.charges[i].cost -= taken;
                left -= taken;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.charges.clear();
    }

    pub(super) fn rebase(&mut self, now: i128) {
        self.charges.iter_mut().for_each(|one| one.at = one.at.min(now));
    }

    fn sum_where(&self, counts: impl Fn(i128) -> bool) -> i128 {
        self.charges.iter().filter(|one| counts(one.at)).map(|one| one.cost).sum()
    }
}
