//! Laws of borrowing on random histories, with core as the stores of the lenders, and examples.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::store::{Charge, Op};
use tidegate_rules::{Document, RuleSet};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::state_table::StateTable;

use super::super::grant_accounts::GrantAccounts;
use super::super::lenders::Lenders;
use super::*;

const KEY: Key<'static> = Key::without_namespace("r", Fingerprint { hi: 1, lo: 2 });
const TTL: u64 = 500_000;
const EVERY: u64 = 100_000;
const CLOCK_OFFSET: u64 = 1_699_920_000_000_000;

/// One step of a node's history. Numbers select a region.
#[derive(Clone, Copy, Debug)]
enum BorrowStep {
    /// The own share does not admit a request of this cost.
    Take(u64),
    Round,
    /// The next batch to a region begins.
    Ask(usize),
    /// The region's store processes the question.
    Process(usize),
    /// The answer arrives, or the deadline passes.
    Answer {
        lender: usize,
        is_lost: bool,
    },
    /// An earlier request is refunded.
    GiveBack(usize),
    Sweep,
    Retire,
    /// This many fiftieths of a lease pass.
    Wait(u64),
}

/// What a node has asked of one region.
#[derive(Default)]
struct LenderFixture {
    table: StateTable,
    asked: Option<AskedGrant>,
    answer: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct AskedGrant {
    number: u64,
    terms: GrantTerms,
    policy: Policy,
    at: u64,
}

/// A node that borrows from two regions, whose clocks differ from its own by a constant.
struct BorrowFixture {
    borrow: CounterBorrow,
    ids: Vec<LenderId>,
    lenders: Vec<LenderFixture>,
    now: u64,
    /// By region and date.
    grants: GrantAccounts<(usize, Timestamp)>,
    totals: BorrowedUnits,
}

/// The rule of a region that has half of the limit, of which the others have 300 and 200.
fn rules(limit: &str) -> RuleSet {
    let source = format!(
        "rules: [{{ id: r, key_by: ip, limit: {limit}, consistency: leased,
          regions: {{ shares: {{ eu: 50%, us: 30%, ap: 20% }}, borrow: {{}} }} }}]"
    );
    let mut document = Document::parse("t", &source).unwrap();
    document.set_region(Some("eu"));
    RuleSet::compile(&document, Secret::UNSET).unwrap().for_shared_store()
}

impl BorrowFixture {
    fn new(limit: &str) -> Self {
        Self::with_rules(&rules(limit))
    }

    fn with_rules(rules: &RuleSet) -> Self {
        let regions = Lenders::new(["us", "ap"]);
        let rule = &rules.rules()[0];
        let terms = *rule.regional().unwrap().shares().borrow_terms().unwrap();
        assert_eq!((terms.ttl.get(), terms.every.get()), (TTL, EVERY));
        let id = |region: &str| regions.find(region).unwrap();
        let lenders = rule.lenders().iter().map(|lender| (id(lender.region()), lender));
        let (now, bug) = (1_000_000, BugSwitch::default());
        let borrow = CounterBorrow::new(terms, lenders, bug, 0, Timestamp::from_micros(now));
        Self {
            borrow,
            ids: vec![id("us"), id("ap")],
            lenders: vec![LenderFixture::default(), LenderFixture::default()],
            now,
            grants: GrantAccounts::new(TTL),
            totals: BorrowedUnits::default(),
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    fn apply(&mut self, step: BorrowStep) -> Result<(), TestCaseError> {
        let now = self.at();
        match step {
            BorrowStep::Take(cost) => {
                if let Some(origin) = self.borrow.take(cost, now) {
                    self.grants.spend(self.grant_of(origin), cost, self.now)?;
                }
            }
            BorrowStep::Round => _ = self.borrow.plan_round(2, |_| true, now),
            BorrowStep::Ask(lender) => self.ask(lender % 2),
            BorrowStep::Process(lender) => self.process(lender % 2)?,
            BorrowStep::Answer { lender, is_lost } => self.answer(lender % 2, is_lost),
            BorrowStep::GiveBack(index) => {
                if let Some((cost, grant)) = self.grants.pick_spent(index) {
                    let (lender, granted_at) = grant;
                    let origin = UnitOrigin { granted_at, lender: Some(self.ids[lender]) };
                    if self.borrow.give_back(cost, origin, now) {
                        self.grants.give_back(grant, cost);
                    }
                }
            }
            BorrowStep::Sweep => _ = self.borrow.sweep(now),
            BorrowStep::Retire => self.borrow.retire(now),
            BorrowStep::Wait(parts) => self.now += TTL / 50 * parts,
        }
        self.check()
    }

    fn ask(&mut self, at: usize) {
        if let Some((number, terms, policy)) = self.borrow.ask(self.ids[at], 2, self.at()) {
            self.lenders[at].asked = Some(AskedGrant { number, terms, policy, at: self.now });
            self.lenders[at].answer = None;
        }
    }

    fn process(&mut self, at: usize) -> Result<(), TestCaseError> {
        // No two grants have the same date.
        let now = Timestamp::from_micros(CLOCK_OFFSET + self.now + self.grants.count());
        let lender = &mut self.lenders[at];
        let Some(asked) = lender.asked.filter(|_| lender.answer.is_none()) else { return Ok(()) };
        let charge = Charge::plain(KEY, &asked.policy, 1);
        let reading = lender.table.apply_one(Op::Grant(asked.terms), &charge, now);
        lender.answer = Some(reading);
        let kept = asked.policy.limit() / 2;
        prop_assert!(reading.granted == 0 || reading.remaining >= kept, "lends what it keeps");
        self.grants.grant((at, now), asked.at, reading.granted.into());
        Ok(())
    }

    fn answer(&mut self, at: usize, is_lost: bool) {
        let (id, now) = (self.ids[at], self.at());
        let lender = &mut self.lenders[at];
        if let (Some(asked), Some(reading)) = (lender.asked, lender.answer) {
            (lender.asked, lender.answer) = (None, None);
            let reading = (!is_lost).then_some(reading);
            self.borrow.on_answer(id, asked.number, reading, now);
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        for (lender, UnspentUnits { units, origin }, _) in self.borrow.take_unspent() {
            self.borrow.count_returned(units, lender, self.at());
            self.grants.return_units(self.grant_of(origin), units)?;
        }
        let totals = self.borrow.take_totals().1;
        totals.iter().for_each(|(_, units)| self.totals.add(units));
        let counted = BorrowedUnits { held: self.borrow.units_left(), ..self.totals };
        prop_assert_eq!(counted.spent(), self.grants.total_spent(), "{:?}", counted);
        Ok(())
    }

    /// What identifies a grant: the region and the date.
    fn grant_of(&self, origin: UnitOrigin) -> (usize, Timestamp) {
        let at = self.ids.iter().position(|id| Some(*id) == origin.lender).unwrap();
        (at, origin.granted_at)
    }

    /// Takes units until none is held, this many times in a row.
    fn refuse(&mut self, times: u64) {
        let refused = (0..times).filter(|_| self.borrow.take(1, self.at()).is_none());
        assert_eq!(refused.count() as u64, times);
    }

    /// Takes units until none is held.
    fn refuse_until_none_is_held(&mut self) {
        while self.borrow.take(1, self.at()).is_some() {}
    }

    fn plan(&mut self) -> Vec<usize> {
        let planned = self.borrow.plan_round(1, |_| true, self.at());
        let index = |id: &LenderId| self.ids.iter().position(|known| known == id).unwrap();
        planned.iter().map(index).collect()
    }

    /// Asks a region and delivers its answer. Returns the units granted.
    fn exchange(&mut self, at: usize) -> u64 {
        self.ask(at);
        self.process(at).unwrap();
        let granted = self.lenders[at].answer.map_or(0, |reading| reading.granted.into());
        self.answer(at, false);
        granted
    }
}

fn borrow_steps() -> impl Strategy<Value = BorrowStep> {
    prop_oneof![
        8 => (1_u64..4).prop_map(BorrowStep::Take),
        3 => Just(BorrowStep::Round),
        4 => (0_usize..2).prop_map(BorrowStep::Ask),
        4 => (0_usize..2).prop_map(BorrowStep::Process),
        4 => (0_usize..2, 0_u8..6)
            .prop_map(|(lender, kind)| BorrowStep::Answer { lender, is_lost: kind == 0 }),
        2 => any::<usize>().prop_map(BorrowStep::GiveBack),
        2 => Just(BorrowStep::Sweep),
        1 => Just(BorrowStep::Retire),
        4 => (0_u64..30).prop_map(BorrowStep::Wait),
    ]
}

#[test]
fn borrowed_units_never_exceed_grants() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_window_log"] {
        let rules = rules(&format!("600/2s using {algorithm}"));
        let steps = prop::collection::vec(borrow_steps(), 1..120);
        check_property(&format!("borrow_units_{algorithm}"), cases() / 20, &steps, |steps| {
            let mut node = BorrowFixture::with_rules(&rules);
            steps.into_iter().try_for_each(|step| node.apply(step))
        });
    }
}

/// Of the shares of 300 and 200 a second, with bursts of 600 and 400.
const LIMIT: &str = "1000/s burst 2000";

#[test]
fn region_with_most_left_is_asked_first() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(3);
    assert_eq!(node.plan(), [0], "the region with the larger share is expected to give all");
    // One more than was refused. Half of the larger share's burst stays.
    node.ask(0);
    let terms = node.lenders[0].asked.unwrap().terms;
    assert_eq!(terms, GrantTerms { most: 4, leave: 225, part: 4 });
    node.process(0).unwrap();
    node.answer(0, false);
    let origins: Vec<_> = (0..4).filter_map(|_| node.borrow.take(1, node.at())).collect();
    assert!(origins.len() == 4 && origins.iter().all(|it| it.lender == Some(node.ids[0])));
    node.refuse(300);
    assert_eq!(node.plan(), [0; 0], "the next round is due later");
    node.now += EVERY;
    assert_eq!(node.plan(), [0, 1], "one region alone cannot give that much");
    // A quarter of what they lend: two nodes take half of it.
    assert_eq!((node.exchange(0), node.exchange(1)), (225 / 4, 150 / 4));
}

#[test]
fn round_asks_for_what_is_not_held_or_expected() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    assert_eq!(node.plan(), [0]);
    node.ask(0);
    node.now += EVERY;
    assert_eq!(node.plan(), [0; 0], "the answer is expected to suffice");
    node.process(0).unwrap();
    node.answer(0, false);
    assert_eq!(node.borrow.units_left(), 10);
    node.now += EVERY;
    assert_eq!(node.plan(), [0; 0], "what it holds suffices");
}

#[test]
fn unused_units_are_returned_once_own_share_suffices() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    node.plan();
    node.exchange(0);
    assert!(node.borrow.take(1, node.at()).is_some());
    node.now += 2 * EVERY - 1;
    assert!(node.borrow.sweep(node.at()));
    assert!(node.borrow.take_unspent().is_empty());
    node.now += 1;
    // All have drained since the grant, so the store would restore none.
    assert!(!node.borrow.sweep(node.at()));
    let mut node = BorrowFixture::new("36000/h burst 2000");
    node.refuse(9);
    node.plan();
    node.exchange(0);
    node.now += 2 * EVERY;
    assert!(!node.borrow.sweep(node.at()));
    let unspent = node.borrow.take_unspent();
    assert_eq!((unspent.len(), unspent[0].0, unspent[0].1.units), (1, node.ids[0], 10));
}

#[test]
fn silent_region_is_asked_again_after_half_a_lease() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    assert_eq!(node.plan(), [0]);
    node.ask(0);
    node.process(0).unwrap();
    node.answer(0, true);
    for (after, planned) in [(EVERY, vec![1]), (EVERY, vec![]), (EVERY, vec![0])] {
        node.now += after;
        node.borrow.lenders[1].pending.take_if(|_| after > EVERY);
        node.refuse(300 * u64::from(!planned.is_empty()));
        assert_eq!(node.plan(), planned);
    }
}

#[test]
fn region_that_has_nothing_left_is_not_asked_until_it_refills() {
    let mut node = BorrowFixture::new(LIMIT);
    // The store of the larger region keeps 225 of its 450.
    let policy = node.borrow.lenders[0].policy;
    let charge = Charge::plain(KEY, &policy, 400);
    let at = Timestamp::from_micros(CLOCK_OFFSET + node.now);
    node.lenders[0].table.apply_one(Op::Charge, &charge, at);
    node.refuse(9);
    assert_eq!(node.plan(), [0]);
    assert_eq!(node.exchange(0), 0);
    assert_eq!((node.borrow.lenders[0].room(node.at()), policy.limit()), (0, 450));
    let mut asked_after = 0;
    while asked_after < 2_000_000 && !node.plan().contains(&0) {
        (node.now, asked_after) = (node.now + EVERY, asked_after + EVERY);
        node.refuse(100);
        node.borrow.lenders[1].pending = None;
    }
    assert_eq!(asked_after, 600_000, "176 units refill in 587 ms");
}

#[test]
fn question_asks_for_need_at_its_batch() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(1);
    assert_eq!(node.plan(), [0]);
    node.refuse(39);
    node.now += EVERY / 2;
    assert_eq!(node.exchange(0), 41, "40 were refused by then");
}

#[test]
fn unusable_region_is_passed_over() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    let (us, ap) = (node.ids[0], node.ids[1]);
    let planned = node.borrow.plan_round(1, |lender| lender != us, node.at());
    assert_eq!(planned.as_slice(), [ap]);
}

#[test]
fn late_answer_is_not_spent() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    node.plan();
    node.ask(0);
    node.process(0).unwrap();
    node.now += TTL;
    node.refuse(1);
    assert!(node.plan().contains(&0), "it asks again");
    node.answer(0, false);
    assert_eq!(node.borrow.units_left(), 0);
    node.check().unwrap();
    assert_eq!((node.totals.granted, node.totals.expired), (10, 10));
}

/// The questions of many other counters go first. Meanwhile the counter asks elsewhere.
#[test]
fn question_that_waits_is_not_expected_to_be_answered() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    assert_eq!(node.plan(), [0]);
    node.now += EVERY;
    node.refuse(1);
    assert_eq!(node.plan(), [1], "the first region was not asked yet");
    assert_eq!(node.exchange(1), 11);
    for _ in 0..10 {
        node.now += EVERY;
        node.refuse_until_none_is_held();
        assert!(!node.plan().contains(&0), "it waits in the queue already");
    }
    assert!(node.exchange(0) > 0, "it asks for what is needed by now");
}

#[test]
fn question_that_does_not_fit_is_planned_again() {
    let mut node = BorrowFixture::new(LIMIT);
    node.refuse(9);
    assert_eq!(node.plan(), [0]);
    node.borrow.cancel_plan(node.ids[0]);
    assert_eq!(node.exchange(0), 0, "it is not asked");
    node.now += EVERY;
    assert_eq!(node.plan(), [0]);
}

/// A quarter of the room if the counter may ask again at once, all of it after a whole `ttl`.
#[test]
fn counter_that_asks_seldom_takes_more() {
    for (passed, part) in [(EVERY, 4), (TTL, 1)] {
        let mut node = BorrowFixture::new("100/s burst 200");
        node.refuse(99);
        node.plan();
        assert_eq!(node.exchange(0), 5, "of 23 that it lends to two nodes");
        node.now += passed;
        node.refuse_until_none_is_held();
        node.refuse(99);
        node.plan();
        node.ask(0);
        assert_eq!(node.lenders[0].asked.unwrap().terms.part, part, "after {passed} µs");
    }
}

/// Units of a window that went back can be lent again, also if the store answers a question that
/// it processed before.
#[test]
fn returned_units_of_window_are_asked_for_again() {
    for is_asking in [false, true] {
        let mut node = BorrowFixture::new("1000/60s using fixed_window");
        node.refuse(200);
        assert_eq!(node.plan(), [0, 1]);
        // All that the region lends: it keeps 150 of 300.
        node.borrow.lenders[0].pending.as_mut().unwrap().terms.part = 1;
        let mut granted = 0;
        while node.borrow.lenders[0].room(node.at()) > 0 {
            granted += node.exchange(0);
            node.now += EVERY;
            node.refuse_until_none_is_held();
            node.refuse(200);
            node.borrow.lenders[1].pending = None;
            node.plan();
        }
        assert_eq!(granted, 150);
        node.borrow.lenders[0].take_plan();
        let now = node.at();
        if is_asking {
            // Its answer shows no room.
            let terms = node.borrow.terms;
            node.borrow.lenders[0].plan(9, 1, &terms, now);
            node.ask(0);
            node.process(0).unwrap();
        }
        node.borrow.count_returned(30, node.ids[0], now);
        node.answer(0, false);
        assert_eq!(node.borrow.lenders[0].room(node.at()), 30, "{is_asking}");
        assert!(is_asking || node.borrow.lenders[0].may_be_asked(node.at()));
    }
}
