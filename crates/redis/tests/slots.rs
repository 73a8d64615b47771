//! Concurrency slots in Redis, on the server's clock and with several nodes. The limit is never
//! exceeded; a slot is free as soon as any node releases it, or when its hold time ends.

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

fn slot_policy(count: u64, hold: Micros) -> Policy {
    policy(Algorithm::Concurrent, count, hold)
}

/// A node with the default options, which include the deny cache.
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
    let (by, reply) = other.apply_with_source(Op::Charge, &[charge(1, &policy)]);
    assert_eq!(
        (by, reply[0].verdict),
        (AnsweredBy::Store, Verdict::Allow),
        "the refusal is not cached"
    );
}

#[test]
fn dead_node_slot_expires_with_hold_time() {
    let server = RedisServer::start();
    let (gone, other) = (caching_fixture(&server), caching_fixture(&server));
    let policy = slot_policy(1, Micros::from_millis(1_500));
    let taken = gone.apply_one(Op::Charge, charge(1, &policy));
    drop(gone);
    let refused = other.apply_one(Op::Charge, charge(1, &policy));
    // Ignore the result if the machine stalled for the whole hold time.
    let in_time = refused.now.since(taken.now) < Micros::from_millis(1_500);
    assert!(!in_time || refused.verdict == Verdict::Deny);
    eventually("the hold time ends", || {
        let reply = other.apply_one(Op::Charge, charge(1, &policy));
        let passed = reply.verdict == Verdict::Allow;
        assert_eq!(passed, reply.now.since(taken.now) >= Micros::from_millis(1_500));
        passed
    });
    let name = log_name("law", common::fingerprint(1), STANDALONE_TAG);
    eventually("the key expires", || server.command(&["EXISTS", &name]).integer() == 0);
}

#[test]
fn renewed_slot_outlives_its_hold_time() {
    let server = RedisServer::start();
    let (holder, other) = (caching_fixture(&server), caching_fixture(&server));
    let hold = Micros::from_secs(3);
    let policy = slot_policy(1, hold);
    let taken = holder.apply_one(Op::Charge, charge(1, &policy));
    let (mut at, mut late) = (taken.now, false);
    eventually("two hold times pass", || {
        let renewed = holder.apply_one(Op::Renew { charged_at: at }, charge(1, &policy)).now;
        late |= renewed.since(at) >= hold;
        at = renewed;
        let refused = other.apply_one(Op::Charge, charge(1, &policy));
        late |= refused.now.since(at) >= hold;
        assert!(late || refused.verdict == Verdict::Deny, "the slot is held");
        at.since(taken.now) >= Micros::new(2 * hold.get())
    });
    let freed = holder.apply_one(Op::Refund { charged_at: at }, charge(1, &policy));
    assert!(late || freed.remaining == 1, "renewal does not duplicate the slot");
}

/// Every caller repeatedly takes a slot, renews it and releases it.
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
                    let reply = apply_one(&store, Op::Charge, &one).await;
                    if reply.verdict == Verdict::Deny {
                        continue;
                    }
                    taken += 1;
                    assert!(
                        held.fetch_add(1, Ordering::SeqCst) < SLOTS,
                        "more slots are held than the limit"
                    );
                    let renewed =
                        apply_one(&store, Op::Renew { charged_at: reply.now }, &one).await;
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
