//! The suite that every store passes, on a real server, with its clock in the test's hands.

use std::cell::Cell;
use std::time::Duration;
use tidegate_core::decision::Reading;
use tidegate_core::store::{Charge, Op, Store as _};
use tidegate_core::time::{ManualClock, Timestamp};
use tidegate_redis::{Address, Options, RedisStore};
use tidegate_testkit::conformance::{Subject, agrees};
use tidegate_testkit::property::cases;

struct Rehearsed<'a> {
    runtime: &'a tokio::runtime::Runtime,
    store: &'a RedisStore,
    clock: ManualClock,
    history: u64,
}

impl Subject for Rehearsed<'_> {
    fn set_now(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    fn apply(&mut self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading> {
        let mut charges = charges.to_vec();
        for charge in &mut charges {
            charge.key.fingerprint.hi ^= self.history << 2;
        }
        let mut readings = vec![Reading::default(); charges.len()];
        let done = self.runtime.block_on(self.store.apply(op, &charges, &mut readings));
        done.expect("the server answers");
        readings
    }
}

#[test]
fn it_says_what_the_table_says() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let clock = ManualClock::new(Timestamp::EPOCH);
    let address = Address::parse("redis://127.0.0.1:7777").unwrap();
    let options = Options {
        deny_cache: false,
        deadline: Duration::from_secs(10),
        rehearsal: Some(clock.clone()),
        ..Options::at(address)
    };
    let store = {
        let _inside = runtime.enter();
        RedisStore::start(&options)
    };
    assert!(runtime.block_on(store.ready(Duration::from_secs(10))), "{:?}", store.lost());
    let histories = Cell::new(0);
    agrees("redis", cases() / 20, || {
        histories.set(histories.get() + 1);
        Rehearsed {
            runtime: &runtime,
            store: &store,
            clock: clock.clone(),
            history: histories.get(),
        }
    });
}
