//! Concurrency slots from the holders' perspective. While holders renew in time, at most the limit
//! is held. A release frees exactly what it held. A slot that is not renewed expires at the end of
//! its hold time and not before.

#![expect(clippy::expect_used, reason = "test helpers may panic")]

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
const HOLD: Micros = Micros::new(1_000);
const SLOT_RETRY_HINT: Retry = Retry::After(Micros::from_secs(1));

/// A holder of slots, and the time under which the table stores them.
#[derive(Clone, Copy, Debug)]
struct SlotHolder {
    cost: u64,
    at: Timestamp,
}

/// An event in a test history.
#[derive(Clone, Copy, Debug)]
enum SlotEvent {
    /// A request takes slots.
    Take(u64),
    /// A holder renews.
    Renew(usize),
    /// A holder releases its slots.
    Release(usize),
    /// A holder dies: it neither renews nor releases.
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
        let policy = Policy::new(Algorithm::Concurrent, Quota::new(limit, HOLD));
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

    fn apply_event(&mut self, event: SlotEvent) -> PropertyResult {
        match event {
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
        let reading = self.apply(Op::Charge, cost);
        if cost <= free {
            prop_assert_eq!((reading.verdict, reading.retry), (Verdict::Allow, Retry::Now));
            self.live_holders.push(SlotHolder { cost, at: reading.now });
        } else {
            let retry = if cost > self.policy.limit() { Retry::Never } else { SLOT_RETRY_HINT };
            prop_assert_eq!((reading.verdict, reading.retry), (Verdict::Deny, retry));
        }
        Ok(())
    }

    fn renew(&mut self, which: usize) {
        let SlotHolder { cost, at } = self.live_holders[which];
        let reading = self.apply(Op::Renew { charged_at: at }, cost);
        self.live_holders[which].at = reading.now;
    }

    /// Advances time. Live holders renew at the last microsecond of the hold time.
    fn wait(&mut self, micros: u64) {
        let until = self.now.plus(Micros::new(micros));
        let last = |holder: &SlotHolder| holder.at.plus(HOLD).minus(Micros::new(1));
        while let Some(which) = (0..self.live_holders.len())
            .filter(|which| last(&self.live_holders[*which]) <= until)
            .min_by_key(|which| last(&self.live_holders[*which]))
        {
            self.now = self.now.max(last(&self.live_holders[which]));
            self.renew(which);
        }
        self.now = until;
    }

    /// The slots held by live holders, and by dead ones whose hold time has not ended.
    fn held(&self) -> u64 {
        let dead = self.dead_holders.iter().filter(|holder| self.now.since(holder.at) < HOLD);
        self.live_holders.iter().chain(dead).map(|holder| holder.cost).sum()
    }

    fn check_held_count(&mut self) -> PropertyResult {
        let held = self.held();
        prop_assert!(held <= self.policy.limit(), "{} are held", held);
        let reading = self.apply(Op::Peek, 1);
        prop_assert_eq!(reading.remaining, self.policy.limit() - held);
        Ok(())
    }
}

#[test]
fn held_slots_never_exceed_limit() {
    let strategy = (1_u64..8, slot_events());
    check_property("slots", cases(), &strategy, |(limit, events)| {
        let mut fixture = SlotFixture::new(limit);
        events.into_iter().try_for_each(|event| fixture.apply_event(event))
    });
}

#[test]
fn dead_holder_slots_expire_with_hold_time() {
    let mut fixture = SlotFixture::new(2);
    assert_eq!(fixture.apply(Op::Charge, 2).remaining, 0);
    fixture.now = fixture.now.plus(Micros::new(HOLD.get() - 1));
    assert_eq!(fixture.apply(Op::Charge, 1).verdict, Verdict::Deny);
    fixture.now = fixture.now.plus(Micros::new(1));
    assert_eq!(fixture.apply(Op::Charge, 1).verdict, Verdict::Allow);
}

/// Requests in the same microsecond share an entry; each renews or releases only its own part.
#[test]
fn same_microsecond_holders_differ_by_cost() {
    let mut fixture = SlotFixture::new(10);
    let at = fixture.now;
    for cost in [3, 1, 2] {
        fixture.apply(Op::Charge, cost);
    }
    fixture.now = at.plus(Micros::new(400));
    assert_eq!(fixture.apply(Op::Renew { charged_at: at }, 3).remaining, 4);
    assert_eq!(fixture.apply(Op::Refund { charged_at: at }, 1).remaining, 5);
    fixture.now = at.plus(HOLD);
    assert_eq!(
        fixture.apply(Op::Peek, 1).remaining,
        7,
        "a cost of 2 was never renewed, and 1 was released"
    );
    fixture.now = at.plus(Micros::new(400)).plus(HOLD);
    assert_eq!(fixture.apply(Op::Peek, 1).remaining, 10);
}

/// In a full request log, a forced cost is merged into the newest entry. For slots, that would
/// change the time under which another holder's slot is stored.
#[test]
fn late_renewal_takes_no_other_slot() {
    let mut fixture = SlotFixture::new(1);
    let late = fixture.apply(Op::Charge, 1).now;
    fixture.now = late.plus(HOLD);
    let other = fixture.apply(Op::Charge, 1);
    assert_eq!(other.verdict, Verdict::Allow, "the hold time has ended");
    fixture.now = fixture.now.plus(Micros::new(10));
    let renewed = fixture.apply(Op::Renew { charged_at: late }, 1);
    assert_eq!((renewed.verdict, renewed.remaining), (Verdict::Allow, 0));
    assert_eq!(
        fixture.apply(Op::Refund { charged_at: other.now }, 1).remaining,
        0,
        "the renewed slot is still held"
    );
    assert_eq!(fixture.apply(Op::Refund { charged_at: renewed.now }, 1).remaining, 1);
}

/// The slot's time is in the future and no longer matches, so the slot expires: too strict for one
/// hold time, never too lax.
#[test]
fn slot_lapses_after_clock_goes_back() {
    let mut fixture = SlotFixture::new(2);
    let ahead = fixture.apply(Op::Charge, 1).now;
    fixture.now = ahead.minus(Micros::from_secs(86_400));
    let start = fixture.now;
    assert_eq!(fixture.apply(Op::Refund { charged_at: ahead }, 1).remaining, 1);
    assert_eq!(fixture.apply(Op::Renew { charged_at: ahead }, 1).remaining, 0, "counted twice");
    fixture.now = start.plus(HOLD);
    assert_eq!(fixture.apply(Op::Peek, 1).remaining, 2);
}

/// A holder may release twice, or renew after a reset, without affecting other holders' slots.
#[test]
fn double_release_affects_no_other_holder() {
    let mut fixture = SlotFixture::new(3);
    let one = fixture.apply(Op::Charge, 1).now;
    fixture.now = fixture.now.plus(Micros::new(1));
    let other = fixture.apply(Op::Charge, 1).now;
    for _ in 0..2 {
        assert_eq!(fixture.apply(Op::Refund { charged_at: one }, 1).remaining, 2);
    }
    fixture.apply(Op::Reset, 1);
    assert_eq!(
        fixture.apply(Op::Renew { charged_at: other }, 1).remaining,
        2,
        "the renewal takes the slot again"
    );
}

#[test]
fn renewal_ignores_policies_without_slots() {
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(5, HOLD);
        let policy = Policy::new(algorithm, quota).expect("small numbers");
        let mut fixture = SlotFixture { policy, ..SlotFixture::new(5) };
        let at = fixture.apply(Op::Charge, 2).now;
        let before = fixture.table.clone();
        fixture.now = at.plus(Micros::new(10));
        assert_eq!(fixture.apply(Op::Renew { charged_at: at }, 2).verdict, Verdict::Allow);
        assert_eq!(fixture.table, before, "{algorithm}");
    }
}

/// A log of requests merges its newest entries when it is full. Slots have one entry each.
#[test]
fn each_slot_in_debt_can_be_released() {
    let mut slots = SlotFixture::new(5);
    let start = slots.now;
    let taken_at = |i: u64| start.plus(Micros::new(i));
    for i in 0..10 {
        slots.now = taken_at(i);
        slots.apply(Op::Force, 1);
    }
    for i in 0..10 {
        let reading = slots.apply(Op::Refund { charged_at: taken_at(i) }, 1);
        assert_eq!(reading.remaining, (i + 1).saturating_sub(5), "released {}", i + 1);
    }
}
