//! Tests the caller's deadline: the call fails on time, and its charge is refunded once the store
//! answers.

use std::sync::Arc;

use tidegate_api::grpc;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::Timestamp;
use tidegate_fixtures::server::ManualMemoryStore;
use tidegate_net::listen;
use tidegate_rules::Facts;
use tokio::sync::Semaphore;

use super::{ENVOY_CALL, SHOULD_RATE_LIMIT, TestGrpcServer, encode_frame, new_store};

/// A store that charges at once, but returns only when a permit is available.
#[derive(Clone)]
struct GatedReplyStore {
    inner: Arc<ManualMemoryStore>,
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
    let permits = Arc::clone(&store.permits);
    let rules = "rules: [{ id: r, key_by: ip, limit: 10/h }]";
    let (settings, listen) = (grpc::Settings::default(), listen::Settings::default());
    let server = TestGrpcServer::start_with(rules, store, settings, listen).await;
    let mut client = server.connect().await;
    let late =
        client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", "20m")]).await;
    assert_eq!((late.code, late.body.is_empty()), (Some(4), true), "{late:?}");
    let left = || async {
        let facts: Facts<'_> = [("ip", "192.0.2.7")].into_iter().collect();
        let decision = server.limiter.peek(&facts, None, 1).await;
        decision.tightest().unwrap().1.numbers.unwrap().remaining
    };
    assert_eq!(left().await, 9, "the store has charged it");
    permits.add_permits(1);
    for _ in 0..1_000 {
        if left().await == 10 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(left().await, 10, "refunded after the store answered");
    // A call that is decided in time stays charged.
    permits.add_permits(1);
    let reply =
        client.call(SHOULD_RATE_LIMIT, encode_frame(ENVOY_CALL), &[("grpc-timeout", "20S")]).await;
    assert_eq!((reply.code, left().await), (Some(0), 9));
}
