//! Differential test: the memory store and Redis give exactly the same readings for a history.
//!
//! Requests of one instant share one script call, so that the order of requests within a call is
//! compared too.

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

/// The server is flushed after this many histories; their keys are not used again.
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

/// The reference when the clock steps back. The table keeps expired state, which becomes valid
/// again then; the memory store need not, because its clock is monotonic.
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

/// Plays histories on a server and returns the number of their requests.
fn run_histories(
    name: &str,
    tries: u32,
    histories: &impl Strategy<Value = BatchHistory>,
    law: impl Fn(&BatchHistory, u64, &RedisFixture) -> Result<u64, TestCaseError>,
) -> u64 {
    let server = RedisServer::start();
    let fixture = RefCell::new(RedisFixture::with_test_clock(&server.url()));
    let (played, requests) = (Cell::new(0), Cell::new(0));
    check_property(name, tries, histories, |history| {
        played.set(played.get() + 1);
        if played.get() % FLUSH_AFTER_HISTORIES == 0 {
            server.command(&["FLUSHALL"]);
        }
        let reply = law(&history, played.get(), &fixture.borrow());
        if reply.is_err() {
            // After a failure the store may be unavailable; the next, smaller case needs a new one.
            fixture.replace(RedisFixture::with_test_clock(&server.url()));
        }
        requests.set(requests.get() + reply?);
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
        |history, number, mut fixture| {
            history.check_equal(number, &mut MemoryReference::new(), &mut fixture)
        },
    );
    // Half a million by default, ten million in a soak test.
    assert!(compared >= 5 * u64::from(cases()), "only {compared} requests were compared");
}

/// All algorithms except logs. After a refund the server has dropped expired entries that the table
/// keeps, and a clock that steps back may make them valid again.
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
    run_histories(
        "differential-back",
        cases() / 150,
        &histories,
        |history, number, mut fixture| {
            history.check_equal(number, &mut StateTable::default(), &mut fixture)
        },
    );
}

const LOGS: [Algorithm; 2] = [Algorithm::SlidingWindowLog, Algorithm::Concurrent];

#[test]
fn clock_step_back_matches_for_charged_logs() {
    let histories = with_clock_steps_back(batch_histories(&LOGS, 16, 40));
    let histories = histories.prop_map(|mut history| {
        history.rules.iter_mut().filter(|rule| rule.role == Role::Always).for_each(|rule| {
            rule.role = Role::Enforce;
        });
        for request in history.rounds.iter_mut().flat_map(|round| &mut round.requests) {
            if !matches!(request.step.action, StepAction::Peek | StepAction::Reset) {
                request.step.action = StepAction::Charge;
            }
        }
        history
    });
    run_histories(
        "differential-back-logs",
        cases() / 300,
        &histories,
        |history, number, mut fixture| {
            history.check_equal(number, &mut StateTable::default(), &mut fixture)
        },
    );
}

/// I10 on the server: a clock that steps back refills nothing. A request refused then gets a wait
/// of at most one window or bucket (two in debt, and for the counter), and is admitted after it.
#[test]
fn clock_step_back_never_refills_or_blocks() {
    let histories =
        with_clock_steps_back(batch_histories(&RATE_ALGORITHMS, 8, 20)).prop_map(|mut history| {
            for rule in &mut history.rules {
                (rule.role, rule.grace, rule.ban) = (Role::Enforce, None, None);
            }
            history
        });
    run_histories("clock-back", cases() / 200, &histories, |history, number, fixture| {
        let (mut play, mut count) = (HistoryPlayer::new(history, number), 0);
        for round in &history.rounds {
            if round.back.is_some() {
                count +=
                    check_clock_step_back(&mut play, fixture, |play| play.step_clock_back(round))?;
            }
            play.advance(round);
            let requests = play.requests(&round.requests);
            count += requests.len() as u64;
            let reply = (&*fixture).decide(play.now, &requests)?;
            play.record_answers(&round.requests, &reply);
        }
        Ok(count)
    });
}

fn check_clock_step_back(
    play: &mut HistoryPlayer<'_>,
    mut fixture: &RedisFixture,
    step_back: impl FnOnce(&mut HistoryPlayer<'_>),
) -> Result<u64, TestCaseError> {
    let before = fixture.decide(play.now, &play.peek_requests())?;
    step_back(play);
    let looks = play.peek_requests();
    let after = fixture.decide(play.now, &looks)?;
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        let (before, after) = (before[0].remaining, after[0].remaining);
        prop_assert!(after <= before, "the step back refilled {:?}", looks[i]);
    }
    // A refusal already moves state from the future to now.
    let mut count = 2 * looks.len() as u64;
    let mut too_much = looks.clone();
    for request in &mut too_much {
        request.op = Op::Charge;
        request.charges[0].cost = request.charges[0].policy.limit() + 1;
    }
    let refused = fixture.decide(play.now, &too_much)?;
    prop_assert!(refused.iter().all(|reply| reply[0].retry == Retry::Never));
    for look in &looks {
        let request = std::slice::from_ref(look);
        let reply = fixture.decide(play.now, request)?[0][0];
        if let Retry::After(wait) = reply.retry {
            let longest = longest_wait(look.charges[0].policy);
            prop_assert!(wait <= longest, "{} is longer than {}: {:?}", wait, longest, look);
            let then = play.now.plus(wait);
            let sooner = then.minus(Micros::new(1));
            let reply = fixture.decide(sooner, request)?[0][0].retry;
            prop_assert_eq!(reply, Retry::After(Micros::new(1)), "{:?}", look);
            let reply = fixture.decide(then, request)?[0][0].retry;
            prop_assert_eq!(reply, Retry::Now, "{:?}", look);
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
