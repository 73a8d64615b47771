//! The other regions from which this node borrows, and what it has to send to their stores.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::decision::Reading;
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::Policy;
use tidegate_core::time::Timestamp;
use tidegate_rules::{RegionLender, Rule};

use super::borrow_stats::{LenderStats, RuleBorrowing};
use super::question_window::SharedWindow;
use super::task_queue::LeaseTask;

/// The most questions, and the most returns, that wait for a batch to one region. What comes on top
/// is not asked, and not returned.
const MAX_QUEUED: usize = 1 << 16;

/// A region that the node borrows from: its position in the list of
/// [`Limiter::with_lenders`](crate::Limiter::with_lenders).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LenderId(u16);

/// All regions that the node borrows from.
#[derive(Debug, Default)]
pub(crate) struct Lenders {
    lenders: Vec<LenderState>,
    /// The clock of this node's own store.
    own_clock: ClockOffset,
    /// By rule ID.
    totals: Mutex<BTreeMap<String, RuleBorrowing>>,
}

#[derive(Debug)]
struct LenderState {
    region: Box<str>,
    usable: AtomicBool,
    /// By the lease clock; the epoch if never.
    answered_at: AtomicU64,
    clock: ClockOffset,
    questions: AtomicU64,
    unanswered: AtomicU64,
    /// The counters of which to ask for units, the longest-waiting first.
    waiting: Mutex<VecDeque<Fingerprint>>,
    /// Units to return.
    returns: Mutex<VecDeque<LeaseTask>>,
    window: SharedWindow,
}

/// The difference between the clock of a store and the lease clock, as of its last answer.
#[derive(Debug, Default)]
struct ClockOffset {
    micros: AtomicU64,
    is_known: AtomicBool,
}

impl ClockOffset {
    fn set(&self, store_now: Timestamp, now: Timestamp) {
        self.micros.store(store_now.as_micros().wrapping_sub(now.as_micros()), Relaxed);
        self.is_known.store(true, Relaxed);
    }

    /// Modulo 2^64.
    fn get(&self) -> Option<u64> {
        self.is_known.load(Relaxed).then(|| self.micros.load(Relaxed))
    }
}

impl LenderId {
    /// The position in the list of lenders.
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

impl Lenders {
    pub(super) fn new(regions: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        let lender = |region: Box<str>| LenderState {
            region,
            usable: AtomicBool::new(true),
            answered_at: AtomicU64::new(0),
            clock: ClockOffset::default(),
            questions: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            waiting: Mutex::default(),
            returns: Mutex::default(),
            window: SharedWindow::default(),
        };
        let regions = regions.into_iter().map(Into::into).take(usize::from(u16::MAX));
        Self { lenders: regions.map(lender).collect(), ..Self::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.lenders.len()
    }

    pub(super) fn find(&self, region: &str) -> Option<LenderId> {
        let at = self.lenders.iter().position(|lender| *lender.region == *region)?;
        u16::try_from(at).ok().map(LenderId)
    }

    pub(super) fn region(&self, lender: LenderId) -> &str {
        &self.lenders[lender.index()].region
    }

    /// What a region lends of a rule's counters.
    pub(super) fn terms<'a>(&self, rule: &'a Rule, lender: LenderId) -> Option<&'a RegionLender> {
        rule.lenders().iter().find(|known| known.region() == self.region(lender))
    }

    /// Whether the node may borrow from a region.
    pub(super) fn is_usable(&self, lender: LenderId) -> bool {
        self.lenders[lender.index()].usable.load(Relaxed)
    }

    /// Sets whether the node may borrow from a region. If not, what waits to be returned is dropped,
    /// and questions wait.
    pub(super) fn set_usable(&self, lender: LenderId, usable: bool) {
        let lender = &self.lenders[lender.index()];
        lender.usable.store(usable, Relaxed);
        if !usable {
            lock(&lender.returns).clear();
        }
    }

    /// Adds a counter to those of which a region is asked for units. `false` if there are too many.
    pub(super) fn push_question(&self, lender: LenderId, key: Fingerprint) -> bool {
        self.push(lender, |lender| &lender.waiting, key)
    }

    /// Adds units to return to a region. `false` if they are dropped.
    pub(super) fn push_return(&self, lender: LenderId, task: LeaseTask) -> bool {
        self.push(lender, |lender| &lender.returns, task)
    }

    fn push<T>(
        &self,
        lender: LenderId,
        queue: fn(&LenderState) -> &Mutex<VecDeque<T>>,
        item: T,
    ) -> bool {
        let lender = &self.lenders[lender.index()];
        let mut queue = lock(queue(lender));
        let fits = queue.len() < MAX_QUEUED && lender.usable.load(Relaxed);
        if fits {
            queue.push_back(item);
        }
        fits
    }

    /// The counter that has waited longest for a question to a region.
    pub(super) fn pop_question(&self, lender: LenderId) -> Option<Fingerprint> {
        lock(&self.lenders[lender.index()].waiting).pop_front()
    }

    /// The number of counters that wait for a question to a region.
    pub(super) fn waiting_questions(&self, lender: LenderId) -> usize {
        lock(&self.lenders[lender.index()].waiting).len()
    }

    /// Takes units to return to a region.
    pub(super) fn take_returns(&self, lender: LenderId, most: usize) -> Vec<LeaseTask> {
        let mut returns = lock(&self.lenders[lender.index()].returns);
        let count = returns.len().min(most);
        returns.drain(..count).collect()
    }

    /// How many questions to a region may be in flight.
    pub(super) fn window(&self, lender: LenderId) -> &SharedWindow {
        &self.lenders[lender.index()].window
    }

    /// Counts a question, and whether it was answered.
    pub(super) fn count_answer(&self, lender: LenderId, answer: Option<Reading>, now: Timestamp) {
        let lender = &self.lenders[lender.index()];
        lender.questions.fetch_add(1, Relaxed);
        match answer {
            Some(reading) => {
                lender.answered_at.store(now.as_micros(), Relaxed);
                lender.clock.set(reading.now, now);
            }
            None => _ = lender.unanswered.fetch_add(1, Relaxed),
        }
    }

    /// Learns the clock of this node's own store from its answer.
    pub(super) fn set_own_clock(&self, answer: &Reading, now: Timestamp) {
        self.own_clock.set(answer.now, now);
    }

    /// A policy of a region, in effect since the same instant by the clock of the region's store.
    /// Rules date policies by the clock of this node's own store.
    pub(super) fn dated_policy(&self, lender: LenderId, policy: Policy) -> Policy {
        let since = policy.effective_since();
        let theirs = self.lenders[lender.index()].clock.get();
        match (self.own_clock.get(), theirs) {
            (Some(own), Some(theirs)) if since > Timestamp::EPOCH => {
                let since = since.as_micros().wrapping_sub(own).wrapping_add(theirs);
                policy.with_effective_since(Timestamp::from_micros(since))
            }
            // Until a store has answered, its clock is taken to be right.
            _ => policy,
        }
    }

    /// The totals of all rules, to add to.
    pub(super) fn totals(&self) -> MutexGuard<'_, BTreeMap<String, RuleBorrowing>> {
        lock(&self.totals)
    }

    pub(super) fn stats(&self, now: Timestamp) -> Vec<LenderStats> {
        let stats = |lender: &LenderState| {
            let answered_at = Timestamp::from_micros(lender.answered_at.load(Relaxed));
            LenderStats {
                region: lender.region.clone(),
                is_usable: lender.usable.load(Relaxed),
                since_answer: (answered_at > Timestamp::EPOCH).then(|| now.since(answered_at)),
                questions: lender.questions.load(Relaxed),
                unanswered: lender.unanswered.load(Relaxed),
            }
        };
        self.lenders.iter().map(stats).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tidegate_core::policy::Algorithm;
    use tidegate_core::quota::Quota;
    use tidegate_core::time::Micros;

    use super::*;

    const KEY: Fingerprint = Fingerprint { hi: 1, lo: 2 };

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn policy_takes_effect_by_clock_of_lender() {
        let lenders = Lenders::new(["us"]);
        let us = lenders.find("us").unwrap();
        let policy = Policy::new(Algorithm::TokenBucket, Quota::new(9, Micros::from_secs(1)));
        let policy = policy.unwrap().with_effective_since(at(1_000_500));
        let since = |policy| lenders.dated_policy(us, policy).effective_since();
        let answer = |now| Reading { now: at(now), ..Reading::default() };
        lenders.set_own_clock(&answer(1_000_700), at(7));
        assert_eq!(since(policy), at(1_000_500), "the other clock is not known");
        // It is behind by 600, and then ahead by 50.
        lenders.count_answer(us, Some(answer(1_000_200)), at(107));
        assert_eq!(since(policy), at(999_900));
        lenders.count_answer(us, None, at(200));
        lenders.count_answer(us, Some(answer(1_001_750)), at(1_007));
        assert_eq!(since(policy), at(1_000_550));
        assert_eq!(since(policy.with_effective_since(Timestamp::EPOCH)), Timestamp::EPOCH);
        let stats = &lenders.stats(at(1_107))[0];
        assert_eq!((stats.questions, stats.unanswered), (3, 1));
        assert_eq!(stats.since_answer, Some(Micros::new(100)));
    }

    #[test]
    fn queue_of_region_is_bounded() {
        let lenders = Lenders::new(["us", "ap"]);
        let (us, ap) = (lenders.find("us").unwrap(), lenders.find("ap").unwrap());
        assert_eq!((lenders.find("eu"), lenders.region(ap)), (None, "ap"));
        let pushed = (0..MAX_QUEUED + 9).filter(|_| lenders.push_question(us, KEY)).count();
        assert_eq!(pushed, MAX_QUEUED);
        assert!(lenders.push_question(ap, KEY) && lenders.pop_question(us).is_some());
        assert!(lenders.push_question(us, KEY));
    }

    /// Questions wait for the region, because they ask for what is needed when they are sent.
    #[test]
    fn unusable_region_gets_no_new_question() {
        let lenders = Lenders::new(["us"]);
        let us = lenders.find("us").unwrap();
        assert!(lenders.push_question(us, KEY));
        lenders.set_usable(us, false);
        assert!(!lenders.push_question(us, KEY) && !lenders.is_usable(us));
        lenders.set_usable(us, true);
        assert!(lenders.push_question(us, KEY) && lenders.is_usable(us));
        assert_eq!(lenders.waiting_questions(us), 2);
    }
}
