//! Slots that are held in Redis, on the server's own clock and by several nodes: never more than there
//! are, free as soon as one is released anywhere, and free when a node that held one is gone.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{RedisFixture, STANDALONE_TAG, charge, log_name, options, policy};
use tidegate_core::decision::{AnsweredBy, Reading, Retry, Verdict};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::Micros;
use tidegate_redis::{RedisOptions, RedisStore};
use tidegate_testkit::process::eventually;
use tidegate_testkit::redis::RedisServer;

const LONG: Micros = Micros::from_secs(3_600);

fn slot_policy(count: u64, lease: Micros) -> Policy {
    policy(Algorithm::Concurrent, count, lease)
}

/// A node as it is by default: it remembers refusals.
fn caching_fixture(server: &RedisServer) -> RedisFixture {
    RedisFixture::with_options(&RedisOptions { deny_cache: true, ..options(&server.url()) })
}

#[test]
fn slot_released_elsewhere_is_free_immediately() {
    let server = RedisServer::start();
    let (one, other) = (caching_fixture(&server), caching_fixture(&server));
    let policy = slot_policy(1, LONG);
    let held = one.apply_one(Op::Charge, charge(1, &policy));
    let refused = other.apply_one(Op::Charge, charge(1, &policy));
    assert_eq!(refused.verdict, Verdict::Deny);
    assert_eq!((refused.retry, refused.remaining), (Retry::After(Micros::from_secs(1)), 0));
    one.apply_one(Op::Refund { charged_at: held.now }, charge(1, &policy));
    let (by, told) = other.apply_with_source(Op::Charge, &[charge(1, &policy)]);
    assert_eq!(
        (by, told[0].verdict),
        (AnsweredBy::Store, Verdict::Allow),
        "no refusal is recalled"
    );
}

#[test]
fn dead_node_slot_lapses_with_its_lease() {
    let server = RedisServer::start();
    let (gone, other) = (caching_fixture(&server), caching_fixture(&server));
    let policy = slot_policy(1, Micros::from_millis(1_500));
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
    let name = log_name("law", common::fingerprint(1), STANDALONE_TAG);
    eventually("the key expires", || server.command(&["EXISTS", &name]).integer() == 0);
}

#[test]
fn renewed_slot_outlives_its_lease() {
    let server = RedisServer::start();
    let (holder, other) = (caching_fixture(&server), caching_fixture(&server));
    let lease = Micros::from_secs(3);
    let policy = slot_policy(1, lease);
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
fn fleet_never_exceeds_slot_limit() {
    const NODES: usize = 4;
    const CALLERS: usize = 8;
    const SLOTS: u64 = 5;
    let server = RedisServer::start();
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
                assert!(store.wait_ready(common::TEST_TIMEOUT).await);
                let policy = slot_policy(SLOTS, LONG);
                let one = [charge(1, &policy)];
                let mut taken = 0;
                for _ in 0..60 {
                    let told = apply_one(&store, Op::Charge, &one).await;
                    if told.verdict == Verdict::Deny {
                        continue;
                    }
                    taken += 1;
                    assert!(held.fetch_add(1, Ordering::SeqCst) < SLOTS, "one too many");
                    let renewed = apply_one(&store, Op::Renew { charged_at: told.now }, &one).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    apply_one(&store, Op::Refund { charged_at: renewed.now }, &one).await;
                }
                taken
            })
        })
        .collect();
    let taken: u64 = callers.into_iter().map(|one| runtime.block_on(one).expect("no panic")).sum();
    assert!(taken > SLOTS, "{taken} were taken");
    let policy = slot_policy(SLOTS, LONG);
    let left = runtime.block_on(apply_one(&stores[0], Op::Peek, &[charge(1, &policy)]));
    assert_eq!((left.remaining, left.reset_after), (SLOTS, Micros::ZERO), "all were released");
}

async fn apply_one(store: &RedisStore, op: Op, charges: &[Charge<'_>]) -> Reading {
    common::apply_with_source(store, op, charges).await.1[0]
}
