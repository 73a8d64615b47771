//! The part of the node's leases that other regions lend: which counter borrows, and what comes of
//! the answers.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::Fingerprint;
use tidegate_core::store::Store;
use tidegate_core::time::Timestamp;
use tidegate_rules::{BorrowTerms, Rule};

use super::borrow_batch::{BorrowBatch, BorrowReport, MAX_BATCH};
use super::borrow_stats::{BorrowStats, BorrowedUnits};
use super::counter_borrow::CounterBorrow;
use super::held_leases::{UnitOrigin, UnspentUnits};
use super::lease_book::{LeaseBook, LeaseRequest, LeasedCounter, TakeOutcome};
use super::lenders::LenderId;
use super::question_window::QuestionsInFlight;
use super::task_queue::{LeaseTask, LeaseTaskKind};
use super::{SeededBug, ask_store, return_units};
use crate::receipt::{Receipt, ReceiptItem};

impl LeaseBook {
    /// Takes units of other regions for a request that the own share does not admit.
    pub(super) fn borrow(
        &self,
        key: Fingerprint,
        counter: &mut LeasedCounter,
        cost: u64,
        nodes: u32,
        now: Timestamp,
    ) -> Option<UnitOrigin> {
        if counter.borrow.is_none() {
            counter.borrow = self.new_borrow(counter, now);
        }
        let borrow = counter.borrow.as_mut()?;
        let origin = borrow.take(cost, now);
        for lender in borrow.plan_round(nodes, |lender| self.lenders.is_usable(lender), now) {
            if !self.lenders.push_question(lender, key) {
                borrow.cancel_plan(lender);
            }
        }
        origin
    }

    /// Takes units of other regions for a request that the store has refused, as it does if the
    /// counter has too few requests for a lease.
    pub(super) fn borrow_for_refused(
        &self,
        request: LeaseRequest<'_>,
        refusal: Reading,
    ) -> Option<TakeOutcome> {
        if self.lenders.count() == 0 {
            return None;
        }
        let terms = borrow_terms(&request.rules[request.rule])?;
        let now = self.clock.now();
        let (key, cost) = (request.charge.key.fingerprint, request.charge.cost);
        let mut shard = self.shards.lock(key);
        let is_often_refused = || self.is_often_refused(key, terms.ttl, now).then_some(0);
        let counter = self.counter(&mut shard, &request, is_often_refused, now)?;
        let origin = self.borrow(key, counter, cost, request.nodes, now)?;
        let remaining = refusal.remaining.saturating_add(counter.borrowed_units());
        let (verdict, retry) = (Verdict::Allow, Retry::Now);
        let remaining = remaining.min(refusal.limit);
        let reading = Reading { verdict, retry, remaining, ..refusal };
        Some(TakeOutcome::Spent { origin, reading })
    }

    /// What a counter begins to borrow; `None` if its rule does not borrow, or memory is full.
    fn new_borrow(
        &self,
        counter: &mut LeasedCounter,
        now: Timestamp,
    ) -> Option<Box<CounterBorrow>> {
        let rule = &counter.rules[counter.rule];
        let lenders = rule.lenders().iter();
        let known =
            lenders.filter_map(|lender| Some((self.lenders.find(lender.region())?, lender)));
        let mut known = known.peekable();
        known.peek()?;
        let terms = *borrow_terms(rule)?;
        let bytes = Self::COUNTER_BYTES + CounterBorrow::bytes(rule.lenders().len());
        let is_reserved = counter.memory.resize(bytes);
        is_reserved.then(|| {
            Box::new(CounterBorrow::new(terms, known, self.bug, self.first_question(), now))
        })
    }

    /// Queues the units to return to other regions.
    pub(super) fn enqueue_borrowed(&self, key: Fingerprint, counter: &mut LeasedCounter) {
        let LeasedCounter { borrow: Some(borrow), rules, rule, .. } = counter else { return };
        let now = self.clock.now();
        for (lender, UnspentUnits { units, origin }, policy) in borrow.take_unspent() {
            let kind = LeaseTaskKind::Return { units, granted_at: origin.granted_at };
            let policy = self.lenders.dated_policy(lender, policy);
            let task = LeaseTask { rules: rules.clone(), rule: *rule, key, policy, kind };
            match self.lenders.push_return(lender, task) {
                true => borrow.count_returned(units, lender, now),
                false => borrow.count_expired(units, lender),
            }
        }
    }

    /// Refunds a charge on a lease. Returns whether the own store has to: units of another region
    /// never go there.
    pub(crate) fn refund_units(
        &self,
        receipt: &Receipt,
        charged: &ReceiptItem,
        origin: UnitOrigin,
    ) -> bool {
        let ReceiptItem { rule, fingerprint: key, cost: units, .. } = *charged;
        if self.give_back(key, units, origin) {
            return false;
        }
        let Some(lender) = origin.lender else { return true };
        if self.bug.has(SeededBug::BorrowRefundedAtHome) {
            return true;
        }
        let rules = &receipt.rules;
        if let Some(terms) = self.lenders.terms(&rules[rule], lender) {
            let kind = LeaseTaskKind::Return { units, granted_at: origin.granted_at };
            let policy = self.lenders.dated_policy(lender, *terms.policy());
            let rules = rules.clone();
            let task = LeaseTask { rules, rule, key, policy, kind };
            if self.lenders.push_return(lender, task) {
                let returned = BorrowedUnits { returned: units, ..BorrowedUnits::default() };
                self.add_totals(receipt.rule(charged), 0, [(lender, returned)]);
            }
        }
        false
    }

    /// The next batch to a region: what it gets back, and as many questions as it answers in time.
    pub(super) fn take_borrow_batch(&self, lender: LenderId, nodes: u32) -> Option<BorrowBatch> {
        let returns = self.lenders.take_returns(lender, MAX_BATCH);
        let questions = self.lenders.window(lender).reserve(MAX_BATCH - returns.len());
        self.fill_batch(lender, returns, questions, nodes)
    }

    /// The next batch to a region, if enough counters wait to fill it and it may be sent at once.
    pub(super) fn take_full_borrow_batch(
        &self,
        lender: LenderId,
        nodes: u32,
    ) -> Option<BorrowBatch> {
        if self.lenders.waiting_questions(lender) < MAX_BATCH {
            return None;
        }
        let questions = self.lenders.window(lender).reserve_batch();
        self.fill_batch(lender, Vec::new(), questions, nodes)
    }

    /// Adds the questions that have waited longest. A counter that needs nothing by now is passed
    /// over.
    fn fill_batch(
        &self,
        lender: LenderId,
        mut tasks: Vec<LeaseTask>,
        questions: QuestionsInFlight,
        nodes: u32,
    ) -> Option<BorrowBatch> {
        let now = self.clock.now();
        let calls = tasks.len() + questions.count();
        while tasks.len() < calls && self.lenders.is_usable(lender) {
            let Some(key) = self.lenders.pop_question(lender) else { break };
            tasks.extend(self.ask_lender(key, lender, nodes, now));
        }
        BorrowBatch::new(lender, tasks, questions)
    }

    fn ask_lender(
        &self,
        key: Fingerprint,
        lender: LenderId,
        nodes: u32,
        now: Timestamp,
    ) -> Option<LeaseTask> {
        let mut shard = self.shards.lock(key);
        let LeasedCounter { borrow, rules, rule, .. } = shard.get_mut(&key)?;
        let (question, terms, policy) = borrow.as_mut()?.ask(lender, nodes, now)?;
        let policy = self.lenders.dated_policy(lender, policy);
        let kind = LeaseTaskKind::Ask { question, least: 1, terms };
        Some(LeaseTask { rules: rules.clone(), rule: *rule, key, policy, kind })
    }

    pub(super) async fn run_borrow_task<R: Store>(
        &self,
        lender: LenderId,
        task: &LeaseTask,
        store: &R,
    ) -> BorrowReport {
        match task.kind {
            LeaseTaskKind::Ask { question, least, terms } => {
                let answer = ask_store(store, task, least, terms).await;
                self.on_borrow_answer(lender, task.key, question, answer);
                let granted = answer.map_or(0, |reading| u64::from(reading.granted));
                let answered = usize::from(answer.is_some());
                BorrowReport { asked: 1, answered, granted, returned: 0 }
            }
            LeaseTaskKind::Return { units, granted_at } => {
                return_units(store, task, units, granted_at).await;
                BorrowReport { returned: units, ..BorrowReport::default() }
            }
            _ => BorrowReport::default(),
        }
    }

    fn on_borrow_answer(
        &self,
        lender: LenderId,
        key: Fingerprint,
        question: u64,
        answer: Option<Reading>,
    ) {
        let now = self.clock.now();
        self.lenders.count_answer(lender, answer, now);
        let mut shard = self.shards.lock(key);
        let Some(counter) = shard.get_mut(&key) else { return };
        if let Some(borrow) = &mut counter.borrow {
            borrow.on_answer(lender, question, answer, now);
            self.enqueue_borrowed(key, counter);
        }
    }

    /// Adds what a counter has counted to the totals of its rule.
    pub(super) fn collect_totals(&self, counter: &mut LeasedCounter) {
        if let Some(borrow) = &mut counter.borrow {
            let (refused, units) = borrow.take_totals();
            self.add_totals(&counter.rules[counter.rule], refused, units);
        }
    }

    fn add_totals(
        &self,
        rule: &Rule,
        refused_with_room: u64,
        units: impl IntoIterator<Item = (LenderId, BorrowedUnits)>,
    ) {
        let mut totals = self.lenders.totals();
        let total = totals.entry(rule.id().to_owned()).or_default();
        total.refused_with_room += refused_with_room;
        for (lender, units) in units {
            let region = self.lenders.region(lender).to_owned();
            total.lenders.entry(region).or_default().add(&units);
        }
    }

    pub(super) fn borrow_stats(&self) -> BorrowStats {
        let mut held = Vec::new();
        for mut shard in self.shards.iter() {
            for counter in shard.values_mut() {
                self.collect_totals(counter);
                let Some(borrow) = &counter.borrow else { continue };
                let units = borrow.held_units().filter(|(_, units)| *units > 0);
                let rule = counter.rules[counter.rule].id();
                held.extend(units.map(|(lender, units)| (rule.to_owned(), lender, units)));
            }
        }
        let mut rules = self.lenders.totals().clone();
        for (rule, lender, units) in held {
            let lenders = &mut rules.entry(rule).or_default().lenders;
            lenders.entry(self.lenders.region(lender).to_owned()).or_default().held += units;
        }
        BorrowStats { lenders: self.lenders.stats(self.clock.now()), rules }
    }
}

/// Whether two versions of a rule borrow the same units on the same terms.
pub(crate) fn lends_alike(one: &Rule, other: &Rule) -> bool {
    one.lenders() == other.lenders() && borrow_terms(one) == borrow_terms(other)
}

pub(super) fn borrow_terms(rule: &Rule) -> Option<&BorrowTerms> {
    rule.regional()?.shares().borrow_terms()
}
