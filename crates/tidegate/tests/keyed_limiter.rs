//! Tests of the keyed limiter: it decides as a limiter with the same rule does.

use proptest::prelude::*;
use tidegate::{BuildError, Facts, KeyedLimiter, Limiter, ManualClock, Micros, Timestamp};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

const LIMITS: [&str; 5] = [
    "7/s burst 9",
    "5/s using leaky_bucket",
    "6/s using fixed_window",
    "8/s using sliding_window_log",
    "8/s using sliding_window_counter",
];

proptest! {
    #[test]
    fn decisions_equal_those_of_limiter(
        limit in prop::sample::select(&LIMITS[..]),
        steps in prop::collection::vec((0_u64..400_000, 0_u8..3, 1_u32..4), 1..60),
    ) {
        let clock = ManualClock::new(START);
        let keyed = Limiter::builder().limit(limit).clock(clock.clone()).build_keyed().unwrap();
        let whole = Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap();
        for (micros, key, cost) in steps {
            clock.advance(Micros::new(micros));
            let key = format!("192.0.2.{key}");
            let facts = Facts::from([("ip", key.as_str())]);
            let decision = whole.check_cost_now(&facts, cost);
            let reading = keyed.clone().check_cost_now(&key, cost);
            prop_assert_eq!(decision.is_allowed(), reading.is_allowed());
            prop_assert_eq!(decision.remaining(), Some(reading.remaining));
            prop_assert_eq!(keyed.peek_now(&key).remaining, reading.remaining);
        }
    }
}

#[test]
fn reset_key_starts_with_full_limit() {
    let limiter = KeyedLimiter::new("2/h").unwrap();
    assert_eq!([0; 3].map(|_| limiter.check_now("a").is_allowed()), [true, true, false]);
    limiter.reset_now("a");
    assert!(limiter.check_now("a").is_allowed());
}

#[test]
fn expired_keys_leave_memory_without_cleanup_task() {
    let clock = ManualClock::new(START);
    let limiter = Limiter::builder().limit("1/s").clock(clock.clone()).build_keyed().unwrap();
    for key in 0..50_000_u32 {
        clock.advance(Micros::new(500));
        let _ = limiter.check_now(key.to_be_bytes());
    }
    let keys = limiter.memory_usage().keys;
    assert!(keys < 20_000, "{keys} counters, of which about 2 000 are not full");
}

#[test]
fn rules_of_other_shapes_are_refused() {
    let builder = Limiter::builder;
    for unusable in [
        builder().limit("1/s").limit("2/s"),
        builder().limit("1/s by global"),
        builder().limit("1/s by ip:user_id"),
        builder().rules("rules: [{ id: a, key_by: ip, limit: 1/s }]"),
    ] {
        assert!(matches!(unusable.build_keyed(), Err(BuildError::NotOneKey)));
    }
    assert!(matches!(builder().limit("fast").build_keyed(), Err(BuildError::Rules(_))));
}
