//! Slots that are held in Redis, on the server's own clock and by several nodes: never more than there
//! are, free as soon as one is released anywhere, and free when a node that held one is gone.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{ALONE, Stand, charge, log_name_of, options, policy};
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Micros;
use tidegate_redis::{Options, RedisStore};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::Server;

const LONG: Micros = Micros::from_secs(3_600);

fn slots(count: u64, lease: Micros) -> Policy {
    policy(Algorithm::Concurrent, count, lease)
}

/// A node as it is by default: it remembers refusals.
fn node(server: &Server) -> Stand {
    Stand::with(&Options { deny_cache: true, ..options(&server.url()) })
}

#[test]
fn a_slot_that_another_node_released_is_free_at_once() {
    let server = Server::start();
    let (one, other) = (node(&server), node(&server));
    let policy = slots(1, LONG);
    let held = one.apply_one(Op::Charge, charge(1, &policy));
    let refused = other.apply_one(Op::Charge, charge(1, &policy));
    assert_eq!(refused.verdict, Verdict::Deny);
    assert_eq!((refused.retry, refused.remaining), (Retry::After(Micros::from_secs(1)), 0));
    one.apply_one(Op::Refund { charged_at: held.now }, charge(1, &policy));
    let (by, told) = other.ask(Op::Charge, &[charge(1, &policy)]);
    assert_eq!(
        (by, told[0].verdict),
        (AnsweredBy::Store, Verdict::Allow),
        "no refusal is recalled"
    );
}

#[test]
fn the_slot_of_a_node_that_is_gone_lapses_and_leaves_nothing_behind() {
    let server = Server::start();
    let (gone, other) = (node(&server), node(&server));
    let policy = slots(1, Micros::from_millis(1_500));
    let taken = gone.apply_one(Op::Charge, charge(1, &policy));
    drop(gone);
    let refused = other.apply_one(Op::Charge, charge(1, &policy));
    // A machine that stands still for the whole lease proves nothing here.
    let in_time = refused.now.since(taken.now) < Micros::from_millis(1_500);
    assert!(!in_time || refused.verdict == Verdict::Deny);
    eventually("the lease ends", || {
        let told = other.apply_one(Op::Charge, charge(1, &policy));
        let passed = told.verdict == Verdict::Allow;
        assert_eq!(passed, told.now.since(taken.now) >= Micros::from_millis(1_500));
        passed
    });
    let name = log_name_of("law", common::fingerprint(1), ALONE);
    eventually("the key expires", || server.command(&["EXISTS", &name]).integer() == 0);
}

#[test]
fn a_slot_that_is_renewed_outlives_its_lease() {
    let server = Server::start();
    let (holder, other) = (node(&server), node(&server));
    let lease = Micros::from_secs(3);
    let policy = slots(1, lease);
    let taken = holder.apply_one(Op::Charge, charge(1, &policy));
    let (mut at, mut late) = (taken.now, false);
    eventually("two leases go by", || {
        let renewed = holder.apply_one(Op::Renew { charged_at: at }, charge(1, &policy)).now;
        late |= renewed.since(at) >= lease;
        at = renewed;
        let refused = other.apply_one(Op::Charge, charge(1, &policy));
        late |= refused.now.since(at) >= lease;
        assert!(late || refused.verdict == Verdict::Deny, "it is held");
        at.since(taken.now) >= Micros::new(2 * lease.get())
    });
    let freed = holder.apply_one(Op::Refund { charged_at: at }, charge(1, &policy));
    assert!(late || freed.remaining == 1, "one slot, in one place");
}

/// Every caller takes a slot, holds it over a renewal and releases it, again and again.
#[test]
fn a_fleet_never_holds_more_than_there_are() {
    const NODES: usize = 4;
    const CALLERS: usize = 8;
    const SLOTS: u64 = 5;
    let server = Server::start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let stores: Vec<Arc<RedisStore>> = (0..NODES)
        .map(|_| {
            let _inside = runtime.enter();
            Arc::new(RedisStore::start(&options(&server.url())))
        })
        .collect();
    let held = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..NODES * CALLERS)
        .map(|caller| {
            let (store, held) = (Arc::clone(&stores[caller % NODES]), Arc::clone(&held));
            runtime.spawn(async move {
                assert!(store.ready(common::PATIENCE).await);
                let policy = slots(SLOTS, LONG);
                let one = [charge(1, &policy)];
                let mut taken = 0;
                for _ in 0..60 {
                    let told = ask(&store, Op::Charge, &one).await;
                    if told.verdict == Verdict::Deny {
                        continue;
                    }
                    taken += 1;
                    assert!(held.fetch_add(1, Ordering::SeqCst) < SLOTS, "one too many");
                    let renewed = ask(&store, Op::Renew { charged_at: told.now }, &one).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    ask(&store, Op::Refund { charged_at: renewed.now }, &one).await;
                }
                taken
            })
        })
        .collect();
    let taken: u64 = callers.into_iter().map(|one| runtime.block_on(one).expect("no panic")).sum();
    assert!(taken > SLOTS, "{taken} were taken");
    let policy = slots(SLOTS, LONG);
    let left = runtime.block_on(ask(&stores[0], Op::Peek, &[charge(1, &policy)]));
    assert_eq!((left.remaining, left.reset_after), (SLOTS, Micros::ZERO), "all were released");
}

async fn ask(store: &RedisStore, op: Op, charges: &[Charge<'_>]) -> Reading {
    common::ask(store, op, charges).await.1[0]
}
