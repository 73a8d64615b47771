//! Slots, told by their holders: while they renew in time no more than the limit are held; a release
//! frees just what it held; a slot that nobody renews lapses when its lease ends and not before.

#![expect(clippy::expect_used, reason = "the helpers of tests are tests")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::state_table::StateTable;

type PropertyResult = Result<(), TestCaseError>;

const KEY: Key<'static> = Key::without_namespace("law", Fingerprint { hi: 1, lo: 2 });
const LEASE: Micros = Micros::new(1_000);
const SLOT_RETRY_HINT: Retry = Retry::After(Micros::from_secs(1));

/// Who holds slots, and the time by which they are found.
#[derive(Clone, Copy, Debug)]
struct SlotHolder {
    cost: u64,
    at: Timestamp,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum SlotEvent {
    /// Somebody comes.
    Take(u64),
    /// One of those who hold renews.
    Renew(usize),
    /// One of them is done.
    Release(usize),
    /// One of them dies: it neither renews nor releases.
    Die(usize),
    /// Time passes.
    Wait(u64),
}

fn slot_events() -> impl Strategy<Value = Vec<SlotEvent>> {
    let one = prop_oneof![
        5 => prop_oneof![3 => Just(1_u64), 1 => 1_u64..5].prop_map(SlotEvent::Take),
        3 => (0_usize..8).prop_map(SlotEvent::Renew),
        3 => (0_usize..8).prop_map(SlotEvent::Release),
        1 => (0_usize..8).prop_map(SlotEvent::Die),
        2 => prop_oneof![Just(1), Just(999), Just(1_000), 1_u64..1_500].prop_map(SlotEvent::Wait),
    ];
    prop::collection::vec(one, 1..40)
}

struct SlotFixture {
    policy: Policy,
    table: StateTable,
    now: Timestamp,
    live_holders: Vec<SlotHolder>,
    dead_holders: Vec<SlotHolder>,
}

impl SlotFixture {
    fn new(limit: u64) -> Self {
        let policy = Policy::new(Algorithm::Concurrent, Quota::new(limit, LEASE));
        Self {
            policy: policy.expect("small numbers"),
            table: StateTable::default(),
            now: Timestamp::from_micros(1_700_000_000_000_000),
            live_holders: Vec::new(),
            dead_holders: Vec::new(),
        }
    }

    fn apply(&mut self, op: Op, cost: u64) -> Reading {
        let policy = &self.policy;
        let charge = Charge::plain(KEY, policy, cost);
        self.table.apply_one(op, &charge, self.now)
    }

    fn apply_event(&mut self, what: SlotEvent) -> PropertyResult {
        match what {
            SlotEvent::Take(cost) => self.take(cost)?,
            SlotEvent::Renew(which) => {
                if which < self.live_holders.len() {
                    self.renew(which);
                }
            }
            SlotEvent::Release(which) => {
                if which < self.live_holders.len() {
                    let SlotHolder { cost, at } = self.live_holders.remove(which);
                    self.apply(Op::Refund { charged_at: at }, cost);
                }
            }
            SlotEvent::Die(which) => {
                if which < self.live_holders.len() {
                    self.dead_holders.push(self.live_holders.remove(which));
                }
            }
            SlotEvent::Wait(micros) => self.wait(micros),
        }
        self.check_held_count()
    }

    fn take(&mut self, cost: u64) -> PropertyResult {
        let free = self.policy.limit() - self.held();
        let told = self.apply(Op::Charge, cost);
        if cost <= free {
            prop_assert_eq!((told.verdict, told.retry), (Verdict::Allow, Retry::Now));
            self.live_holders.push(SlotHolder { cost, at: told.now });
        } else {
            let retry = if cost > self.policy.limit() { Retry::Never } else { SLOT_RETRY_HINT };
            prop_assert_eq!((told.verdict, told.retry), (Verdict::Deny, retry));
        }
        Ok(())
    }

    fn renew(&mut self, which: usize) {
        let SlotHolder { cost, at } = self.live_holders[which];
        let told = self.apply(Op::Renew { charged_at: at }, cost);
        self.live_holders[which].at = told.now;
    }

    /// Time passes, and whoever lives renews in time: at the last microsecond of the lease.
    fn wait(&mut self, micros: u64) {
        let until = self.now.plus(Micros::new(micros));
        let last = |holder: &SlotHolder| holder.at.plus(LEASE).minus(Micros::new(1));
        while let Some(which) = (0..self.live_holders.len())
            .filter(|which| last(&self.live_holders[*which]) <= until)
            .min_by_key(|which| last(&self.live_holders[*which]))
        {
            self.now = self.now.max(last(&self.live_holders[which]));
            self.renew(which);
        }
        self.now = until;
    }

    /// What those who live hold, and the dead whose leases have not ended.
    fn held(&self) -> u64 {
        let dead = self.dead_holders.iter().filter(|holder| self.now.since(holder.at) < LEASE);
        self.live_holders.iter().chain(dead).map(|holder| holder.cost).sum()
    }

    fn check_held_count(&mut self) -> PropertyResult {
        let held = self.held();
        prop_assert!(held <= self.policy.limit(), "{} are held", held);
        let told = self.apply(Op::Peek, 1);
        prop_assert_eq!(told.remaining, self.policy.limit() - held);
        Ok(())
    }
}

#[test]
fn held_slots_never_exceed_limit() {
    let strategy = (1_u64..8, slot_events());
    check_property("slots", cases(), &strategy, |(limit, happenings)| {
        let mut house = SlotFixture::new(limit);
        happenings.into_iter().try_for_each(|what| house.apply_event(what))
    });
}

#[test]
fn dead_holder_slots_lapse_at_lease_end() {
    let mut house = SlotFixture::new(2);
    assert_eq!(house.apply(Op::Charge, 2).remaining, 0);
    house.now = house.now.plus(Micros::new(LEASE.get() - 1));
    assert_eq!(house.apply(Op::Charge, 1).verdict, Verdict::Deny);
    house.now = house.now.plus(Micros::new(1));
    assert_eq!(house.apply(Op::Charge, 1).verdict, Verdict::Allow);
}

/// Two that come in the same microsecond share an entry: each takes only its own part of it.
#[test]
fn same_microsecond_holders_differ_by_cost() {
    let mut house = SlotFixture::new(10);
    let at = house.now;
    for cost in [3, 1, 2] {
        house.apply(Op::Charge, cost);
    }
    house.now = at.plus(Micros::new(400));
    assert_eq!(house.apply(Op::Renew { charged_at: at }, 3).remaining, 4);
    assert_eq!(house.apply(Op::Refund { charged_at: at }, 1).remaining, 5);
    house.now = at.plus(LEASE);
    assert_eq!(house.apply(Op::Peek, 1).remaining, 7, "two were never renewed");
    house.now = at.plus(Micros::new(400)).plus(LEASE);
    assert_eq!(house.apply(Op::Peek, 1).remaining, 10);
}

/// In a full log of requests a forced cost joins the newest entry, which would take its time away from
/// whoever holds it.
#[test]
fn late_renewal_takes_no_other_slot() {
    let mut house = SlotFixture::new(1);
    let late = house.apply(Op::Charge, 1).now;
    house.now = late.plus(LEASE);
    let other = house.apply(Op::Charge, 1);
    assert_eq!(other.verdict, Verdict::Allow, "the lease has ended");
    house.now = house.now.plus(Micros::new(10));
    let back = house.apply(Op::Renew { charged_at: late }, 1);
    assert_eq!((back.verdict, back.remaining), (Verdict::Allow, 0));
    assert_eq!(house.apply(Op::Refund { charged_at: other.now }, 1).remaining, 0, "one holds on");
    assert_eq!(house.apply(Op::Refund { charged_at: back.now }, 1).remaining, 1);
}

/// It cannot be found any more, so it lapses: too strict for one lease, and never too lax.
#[test]
fn slot_lapses_after_clock_goes_back() {
    let mut house = SlotFixture::new(2);
    let ahead = house.apply(Op::Charge, 1).now;
    house.now = ahead.minus(Micros::from_secs(86_400));
    let start = house.now;
    assert_eq!(house.apply(Op::Refund { charged_at: ahead }, 1).remaining, 1);
    assert_eq!(house.apply(Op::Renew { charged_at: ahead }, 1).remaining, 0, "counted twice");
    house.now = start.plus(LEASE);
    assert_eq!(house.apply(Op::Peek, 1).remaining, 2);
}

/// What a holder does may be done again or after a reset; nobody else's slot goes with it.
#[test]
fn double_release_affects_no_other_holder() {
    let mut house = SlotFixture::new(3);
    let one = house.apply(Op::Charge, 1).now;
    house.now = house.now.plus(Micros::new(1));
    let other = house.apply(Op::Charge, 1).now;
    for _ in 0..2 {
        assert_eq!(house.apply(Op::Refund { charged_at: one }, 1).remaining, 2);
    }
    house.apply(Op::Reset, 1);
    assert_eq!(house.apply(Op::Renew { charged_at: other }, 1).remaining, 2, "it is still held");
}

#[test]
fn renewal_ignores_policies_without_slots() {
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(5, LEASE);
        let policy = Policy::new(algorithm, quota).expect("small numbers");
        let mut house = SlotFixture { policy, ..SlotFixture::new(5) };
        let at = house.apply(Op::Charge, 2).now;
        let before = house.table.clone();
        house.now = at.plus(Micros::new(10));
        assert_eq!(house.apply(Op::Renew { charged_at: at }, 2).verdict, Verdict::Allow);
        assert_eq!(house.table, before, "{algorithm}");
    }
}
