//! A caller that waits no longer than it says: it is answered in time, and what was charged for it is given
//! back when that is known.

use std::sync::Arc;

use tidegate_api::grpc;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_net::listen;
use tidegate_rules::Facts;
use tokio::sync::Semaphore;

use super::{
    ENVOY_CALL, ManualClockStore, SHOULD_RATE_LIMIT, TestGrpcServer, encode_frame, new_store,
};

/// A store that charges at once and says so when it is let.
#[derive(Clone)]
struct GatedReplyStore {
    inner: Arc<ManualClockStore>,
    permits: Arc<Semaphore>,
}

impl Store for GatedReplyStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        self.inner.apply_now(op, charges, readings);
        if op == Op::Charge {
            self.permits.acquire().await.unwrap().forget();
        }
        Ok(AnsweredBy::Store)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }
}

#[tokio::test(start_paused = true)]
async fn expired_call_is_refunded() {
    let store =
        GatedReplyStore { inner: Arc::new(new_store()), permits: Arc::new(Semaphore::new(0)) };
    let answers = Arc::clone(&store.permits);
    let rules = "rules: [{ id: r, key_by: ip, limit: 10/h }]";
    let (settings, listen) = (grpc::Settings::default(), listen::Settings::default());
    let desk = TestGrpcServer::start_with(rules, store, settings, listen).await;
    let mut client = desk.connect().await;
    let late =
        client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", "20m")]).await;
    assert_eq!((late.code, late.body.is_empty()), (Some(4), true), "{late:?}");
    let left = || async {
        let facts: Facts<'_> = [("ip", "192.0.2.7")].into_iter().collect();
        let decision = desk.limiter.peek(&facts, None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    assert_eq!(left().await, 9, "the store has charged it");
    answers.add_permits(1);
    for _ in 0..1_000 {
        if left().await == 10 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(left().await, 10, "given back as soon as that was known");
    // One that is decided in time is charged.
    answers.add_permits(1);
    let told =
        client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", "20S")]).await;
    assert_eq!((told.code, left().await), (Some(0), 9));
}
