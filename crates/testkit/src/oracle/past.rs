//! Everything that was ever charged to a window, with its time: nothing is pruned, packed or summed
//! ahead of being asked for.

/// One charge.
#[derive(Clone, Copy, Debug)]
struct Charged {
    at: i128,
    cost: i128,
}

/// The charges of one counter, in the order they were made.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// The window in microseconds.
    pub(super) window: i128,
    /// The most times that a log keeps.
    pub(super) requests: i128,
    charged: Vec<Charged>,
}

impl Past {
    pub(super) fn new(window: i128, requests: i128) -> Self {
        Self { window, requests, charged: Vec::new() }
    }

    /// Which window of the grid since the epoch an instant lies in.
    pub(super) fn grid(&self, at: i128) -> i128 {
        at.div_euclid(self.window)
    }

    /// What was charged in a window of the grid.
    pub(super) fn in_grid_window(&self, id: i128) -> i128 {
        self.sum(|at| self.grid(at) == id)
    }

    /// What was charged in (at − W, at].
    pub(super) fn in_window_until(&self, at: i128) -> i128 {
        self.sum(|then| at - self.window < then && then <= at)
    }

    pub(super) fn add(&mut self, cost: i128, now: i128) {
        if cost > 0 {
            self.charged.push(Charged { at: now, cost });
        }
    }

    /// A log keeps at most as many times as it admits requests: one that is full keeps what else is
    /// forced at its newest time, which becomes now.
    pub(super) fn merge_newest_if_full(&mut self, cost: i128, now: i128) {
        let live = |charged: &&Charged| charged.cost > 0 && now - self.window < charged.at;
        let mut times: Vec<i128> = self.charged.iter().filter(live).map(|one| one.at).collect();
        times.sort_unstable();
        times.dedup();
        let Some(newest) = times.last().copied() else { return };
        if cost > 0 && times.len() as i128 >= self.requests {
            self.charged.iter_mut().filter(|one| one.at == newest).for_each(|one| one.at = now);
        }
    }

    /// Takes up to `cost` out of the charges whose time is meant.
    pub(super) fn remove(&mut self, cost: i128, meant: impl Fn(&Self, i128) -> bool) {
        let mut left = cost;
        for i in 0..self.charged.len() {
            if meant(self, self.charged[i].at) {
                let taken = left.min(self.charged[i].cost);
                self.charged[i].cost -= taken;
                left -= taken;
            }
        }
    }

    pub(super) fn forget(&mut self) {
        self.charged.clear();
    }

    pub(super) fn rebase(&mut self, now: i128) {
        self.charged.iter_mut().for_each(|one| one.at = one.at.min(now));
    }

    fn sum(&self, counts: impl Fn(i128) -> bool) -> i128 {
        self.charged.iter().filter(|one| counts(one.at)).map(|one| one.cost).sum()
    }
}
