//! The same history on embedded memory and on a server: the same readings, to the unit.
//!
//! Requests of one instant travel together in one call of the script, so that what a call does to its
//! requests one after the other is compared too.

mod common;

use std::cell::{Cell, RefCell};

use common::batch_history::{
    BatchHistory, BatchStore, HistoryPlayer, batch_histories, with_clock_steps_back,
};
use common::{RedisFixture, StoreRequest};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Reading, Retry};
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::store::{Op, Role};
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_memory::MemoryStore;
use tidegate_testkit::history::StepAction;
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas::{ALL_ALGORITHMS, RATE_ALGORITHMS};
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::state_table::StateTable;

/// Histories after which the server forgets all: their keys are not used again.
const FLUSH_AFTER_HISTORIES: u64 = 1_000;

struct MemoryReference {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl MemoryReference {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self { store: MemoryStore::with_shards(clock.clone(), 1 << 24, 2), clock }
    }
}

impl BatchStore for MemoryReference {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError> {
        self.clock.set(now);
        self.store.sweep();
        let decide = |request: &StoreRequest<'_>| {
            let mut readings = vec![Reading::default(); request.charges.len()];
            self.store.apply_now(request.op, &request.charges, &mut readings);
            readings
        };
        Ok(requests.iter().map(decide).collect())
    }
}

/// A table keeps what a clock that goes back comes to again; embedded memory need not, its clock does
/// not go back.
impl BatchStore for StateTable {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError> {
        let decide = |request: &StoreRequest<'_>| self.apply(request.op, &request.charges, now);
        Ok(requests.iter().map(decide).collect())
    }
}

/// Plays histories on a server; returns how many requests they had.
fn run_histories(
    name: &str,
    tries: u32,
    histories: &impl Strategy<Value = BatchHistory>,
    law: impl Fn(&BatchHistory, u64, &RedisFixture) -> Result<u64, TestCaseError>,
) -> u64 {
    let server = RedisServer::start();
    let stand = RefCell::new(RedisFixture::with_test_clock(&server.url()));
    let (played, requests) = (Cell::new(0), Cell::new(0));
    check_property(name, tries, histories, |crowd| {
        played.set(played.get() + 1);
        if played.get() % FLUSH_AFTER_HISTORIES == 0 {
            server.command(&["FLUSHALL"]);
        }
        let told = law(&crowd, played.get(), &stand.borrow());
        if told.is_err() {
            // A store that found a disagreement stops asking; the next, smaller case needs another.
            stand.replace(RedisFixture::with_test_clock(&server.url()));
        }
        requests.set(requests.get() + told?);
        Ok(())
    });
    println!("{name}: {} requests in {} histories", requests.get(), played.get());
    requests.get()
}

#[test]
fn memory_and_redis_decide_equally() {
    let compared = run_histories(
        "differential",
        cases() / 30,
        &batch_histories(&ALL_ALGORITHMS, 16, 40),
        |crowd, number, mut stand| {
            crowd.check_equal(number, &mut MemoryReference::new(), &mut stand)
        },
    );
    // Half a million, ten million in a soak.
    assert!(compared >= 5 * u64::from(cases()), "only {compared} requests were compared");
}

/// All but logs: after a refund a server has forgotten what a table keeps of one that has expired, and a
/// clock that goes back may come to it again.
const NOT_LOGS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket(LeakMode::Police),
    Algorithm::LeakyBucket(LeakMode::Queue),
    Algorithm::FixedWindow,
    Algorithm::SlidingWindowCounter,
];

#[test]
fn clock_step_back_matches_reference_table() {
    let histories = with_clock_steps_back(batch_histories(&NOT_LOGS, 16, 40));
    run_histories("differential-back", cases() / 150, &histories, |crowd, number, mut stand| {
        crowd.check_equal(number, &mut StateTable::default(), &mut stand)
    });
}

const LOGS: [Algorithm; 2] = [Algorithm::SlidingWindowLog, Algorithm::Concurrent];

#[test]
fn clock_step_back_matches_for_charged_logs() {
    let histories = with_clock_steps_back(batch_histories(&LOGS, 16, 40));
    let histories = histories.prop_map(|mut crowd| {
        crowd.rules.iter_mut().filter(|rule| rule.role == Role::Always).for_each(|rule| {
            rule.role = Role::Enforce;
        });
        for asked in crowd.rounds.iter_mut().flat_map(|round| &mut round.requests) {
            if !matches!(asked.step.action, StepAction::Peek | StepAction::Reset) {
                asked.step.action = StepAction::Charge;
            }
        }
        crowd
    });
    run_histories(
        "differential-back-logs",
        cases() / 300,
        &histories,
        |crowd, number, mut stand| {
            crowd.check_equal(number, &mut StateTable::default(), &mut stand)
        },
    );
}

/// I10 on the server: a clock that goes back refills nothing, and who is refused then is told to come
/// back within a window or bucket (two in debt, and for the counter), and passes then.
#[test]
fn clock_step_back_never_refills_or_blocks() {
    let histories =
        with_clock_steps_back(batch_histories(&RATE_ALGORITHMS, 8, 20)).prop_map(|mut crowd| {
            for rule in &mut crowd.rules {
                (rule.role, rule.grace, rule.ban) = (Role::Enforce, None, None);
            }
            crowd
        });
    run_histories("clock-back", cases() / 200, &histories, |crowd, number, stand| {
        let (mut play, mut count) = (HistoryPlayer::new(crowd, number), 0);
        for round in &crowd.rounds {
            if round.back.is_some() {
                count +=
                    check_clock_step_back(&mut play, stand, |play| play.step_clock_back(round))?;
            }
            play.advance(round);
            let requests = play.requests(&round.requests);
            count += requests.len() as u64;
            let told = (&*stand).decide(play.now, &requests)?;
            play.record_answers(&round.requests, &told);
        }
        Ok(count)
    });
}

fn check_clock_step_back(
    play: &mut HistoryPlayer<'_>,
    mut stand: &RedisFixture,
    go_back: impl FnOnce(&mut HistoryPlayer<'_>),
) -> Result<u64, TestCaseError> {
    let before = stand.decide(play.now, &play.peek_requests())?;
    go_back(play);
    let looks = play.peek_requests();
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
