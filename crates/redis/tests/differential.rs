//! The same history on embedded memory and on a server: the same readings, to the unit.
//!
//! Requests of one instant travel together in one call of the script, so that what a call does to its
//! requests one after the other is compared too.

mod common;

use std::cell::{Cell, RefCell};

use common::crowd::{Crowd, Crowded, Play, crowds, going_back};
use common::{Request, Stand};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::{Algorithm, Leak, Policy};
use tidegate_core::store::{Op, Role};
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_testkit::history::Act;
use tidegate_testkit::property::{cases, holds};
use tidegate_testkit::quotas::{SEVEN, SIX};
use tidegate_testkit::redis::Server;
use tidegate_testkit::table::Table;

/// Histories after which the server forgets all: their keys are not used again.
const FORGET_AFTER: u64 = 1_000;

struct Memory {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl Memory {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::with_shards(clock.clone(), 1 << 24, 2), clock }
    }
}

impl Crowded for Memory {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[Request<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError> {
        self.clock.set(now);
        self.store.sweep();
        let decide = |request: &Request<'_>| {
            let mut readings = vec![Reading::default(); request.charges.len()];
            self.store.apply_now(request.op, &request.charges, &mut readings);
            readings
        };
        Ok(requests.iter().map(decide).collect())
    }
}

/// A table keeps what a clock that goes back comes to again; embedded memory need not, its clock does
/// not go back.
impl Crowded for Table {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[Request<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError> {
        let decide = |request: &Request<'_>| self.apply(request.op, &request.charges, now);
        Ok(requests.iter().map(decide).collect())
    }
}

/// Plays histories on a server; returns how many requests they had.
fn play(
    name: &str,
    tries: u32,
    histories: &impl Strategy<Value = Crowd>,
    law: impl Fn(&Crowd, u64, &Stand) -> Result<u64, TestCaseError>,
) -> u64 {
    let server = Server::start();
    let stand = RefCell::new(Stand::rehearsed(&server.url()));
    let (played, requests) = (Cell::new(0), Cell::new(0));
    holds(name, tries, histories, |crowd| {
        played.set(played.get() + 1);
        if played.get() % FORGET_AFTER == 0 {
            server.command(&["FLUSHALL"]);
        }
        let told = law(&crowd, played.get(), &stand.borrow());
        if told.is_err() {
            // A store that found a disagreement stops asking; the next, smaller case needs another.
            stand.replace(Stand::rehearsed(&server.url()));
        }
        requests.set(requests.get() + told?);
        Ok(())
    });
    println!("{name}: {} requests in {} histories", requests.get(), played.get());
    requests.get()
}

#[test]
fn memory_and_redis_decide_alike() {
    let compared =
        play("differential", cases() / 30, &crowds(&SEVEN, 16, 40), |crowd, number, mut stand| {
            crowd.alike(number, &mut Memory::new(), &mut stand)
        });
    // Half a million, ten million in a soak.
    assert!(compared >= 5 * u64::from(cases()), "only {compared} requests were compared");
}

/// All but logs: after a refund a server has forgotten what a table keeps of one that has expired, and a
/// clock that goes back may come to it again.
const NOT_LOGS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(Leak::Police),
    Algorithm::LeakyBucket(Leak::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowCounter,
];

#[test]
fn a_clock_that_goes_back_is_met_alike() {
    let histories = going_back(crowds(&NOT_LOGS, 16, 40));
    play("differential-back", cases() / 150, &histories, |crowd, number, mut stand| {
        crowd.alike(number, &mut Table::default(), &mut stand)
    });
}

const LOGS: [Algorithm; 2] = [Algorithm::SlidingWindowLog, Algorithm::Concurrent];

#[test]
fn a_clock_that_goes_back_is_met_alike_by_logs_that_are_only_charged() {
    let histories = going_back(crowds(&LOGS, 16, 40));
    let histories = histories.prop_map(|mut crowd| {
        crowd.rules.iter_mut().filter(|rule| rule.role == Role::Always).for_each(|rule| {
            rule.role = Role::Enforce;
        });
        for asked in crowd.rounds.iter_mut().flat_map(|round| &mut round.asked) {
            if !matches!(asked.step.act, Act::Peek | Act::Reset) {
                asked.step.act = Act::Charge;
            }
        }
        crowd
    });
    play("differential-back-logs", cases() / 300, &histories, |crowd, number, mut stand| {
        crowd.alike(number, &mut Table::default(), &mut stand)
    });
}

/// I10 on the server: a clock that goes back refills nothing, and who is refused then is told to come
/// back within a window or bucket (two in debt, and for the counter), and passes then.
#[test]
fn a_clock_that_goes_back_neither_refills_nor_locks_out() {
    let histories = going_back(crowds(&SIX, 8, 20)).prop_map(|mut crowd| {
        for rule in &mut crowd.rules {
            (rule.role, rule.grace, rule.ban) = (Role::Enforce, None, None);
        }
        crowd
    });
    play("clock-back", cases() / 200, &histories, |crowd, number, stand| {
        let (mut play, mut count) = (Play::new(crowd, number), 0);
        for round in &crowd.rounds {
            if round.back.is_some() {
                count +=
                    neither_refills_nor_locks_out(&mut play, stand, |play| play.go_back(round))?;
            }
            play.go_on(round);
            let requests = play.requests(&round.asked);
            count += requests.len() as u64;
            let told = (&*stand).decide(play.now, &requests)?;
            play.hear(&round.asked, &told);
        }
        Ok(count)
    });
}

fn neither_refills_nor_locks_out(
    play: &mut Play<'_>,
    mut stand: &Stand,
    go_back: impl FnOnce(&mut Play<'_>),
) -> Result<u64, TestCaseError> {
    let before = stand.decide(play.now, &play.looks())?;
    go_back(play);
    let looks = play.looks();
    let after = stand.decide(play.now, &looks)?;
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        let (before, after) = (before[0].remaining, after[0].remaining);
        prop_assert!(after <= before, "backwards refilled {:?}", looks[i]);
    }
    // A refusal is enough for what lies ahead to be moved to now.
    let mut count = 2 * looks.len() as u64;
    let mut too_much = looks.clone();
    for request in &mut too_much {
        request.op = Op::Charge;
        request.charges[0].cost = request.charges[0].policy.limit() + 1;
    }
    let refused = stand.decide(play.now, &too_much)?;
    prop_assert!(refused.iter().all(|told| told[0].retry == Retry::Never));
    for look in &looks {
        let request = std::slice::from_ref(look);
        let told = stand.decide(play.now, request)?[0][0];
        if let Retry::After(wait) = told.retry {
            let longest = longest_wait(look.charges[0].policy);
            prop_assert!(wait <= longest, "{} is longer than {}: {:?}", wait, longest, look);
            let then = play.now.plus(wait);
            let sooner = then.minus(Micros::new(1));
            let told = stand.decide(sooner, request)?[0][0].retry;
            prop_assert_eq!(told, Retry::After(Micros::new(1)), "{:?}", look);
            let told = stand.decide(then, request)?[0][0].retry;
            prop_assert_eq!(told, Retry::Now, "{:?}", look);
            count += 2;
        }
    }
    Ok(count + 2 * looks.len() as u64)
}

fn longest_wait(policy: &Policy) -> Micros {
    let windows = match policy.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog => 1,
        _ => 2,
    };
    Micros::new(policy.period().get() * windows)
}
