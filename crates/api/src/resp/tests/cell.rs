//! Tests `CL.THROTTLE` and `THROTTLE`: reply layouts, errors, and a property test of the first
//! against a GCRA model.

use proptest::prelude::*;
use tidegate_core::time::Micros;
use tidegate_testkit::property::{cases, check_property};

use super::{LOCAL_IP, clock, fixture};

const NO_RULES: &str = "rules: []";

#[test]
fn throttle_dialects_have_own_reply_layout() {
    let clock = clock();
    let mut client = fixture(&clock, NO_RULES, LOCAL_IP, None);
    // 0 allowed, max_burst + 1, remaining, no wait, reset_after.
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60"), "*5 :0 :16 :15 :-1 :2");
    assert_eq!(client.send_command("cl.throttle a 15 30 60 15"), "*5 :0 :16 :0 :-1 :32");
    // 1 limited, and the wait before the reset.
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60 1"), "*5 :1 :16 :0 :2 :32");
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60 0"), "*5 :0 :16 :0 :-1 :32", "a peek");
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60 17"), "*5 :1 :16 :0 :-1 :32", "never");
    // 1 allowed, max_burst, remaining, reset_after, no wait.
    assert_eq!(client.send_command("THROTTLE b 15 30 60"), "*5 :1 :15 :14 :2 :0");
    assert_eq!(client.send_command("throttle b 15 30 60 14"), "*5 :1 :15 :0 :30 :0");
    // 0 denied, and the reset before the wait.
    assert_eq!(client.send_command("THROTTLE b 15 30 60 3"), "*5 :0 :15 :0 :30 :6");
    assert_eq!(client.send_command("THROTTLE b 15 30 60 16"), "*5 :0 :15 :0 :30 :-1", "never");
    assert_eq!(client.send_command("THROTTLE b 15 30 60 0"), "*5 :1 :15 :0 :30 :0", "a peek");
}

/// Unlike the originals: throttlecrab reports a wait of 0 seconds here, and redis-cell drops
/// fractions of a millisecond.
#[test]
fn throttle_wait_rounds_up() {
    let clock = clock();
    let mut client = fixture(&clock, NO_RULES, LOCAL_IP, None);
    assert_eq!(client.send_command("THROTTLE a 1 1000 1"), "*5 :1 :1 :0 :1 :0");
    assert_eq!(client.send_command("THROTTLE a 1 1000 1"), "*5 :0 :1 :0 :1 :1");
    clock.advance(Micros::new(999));
    assert_eq!(
        client.send_command("CL.THROTTLE a 0 1000 1"),
        "*5 :1 :1 :0 :1 :1",
        "one microsecond is left"
    );
    clock.advance(Micros::new(1));
    assert_eq!(client.send_command("CL.THROTTLE a 0 1000 1"), "*5 :0 :1 :0 :-1 :1");
}

#[test]
fn throttle_reply_same_in_both_versions() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60"), "*5 :0 :16 :15 :-1 :2");
    client.send_command("HELLO 3");
    assert_eq!(client.send_command("CL.THROTTLE b 15 30 60"), "*5 :0 :16 :15 :-1 :2");
}

#[test]
fn invalid_throttle_arguments_charge_nothing() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let whole = "value is not an integer or out of range";
    for (command, why) in [
        ("CL.THROTTLE", "wrong number of arguments for 'cl.throttle' command; usage: CL.THROTTLE"),
        ("CL.THROTTLE a 1 1", "wrong number of arguments"),
        ("CL.THROTTLE a 1 1 1 1 1", "wrong number of arguments"),
        ("THROTTLE a 1 1 1 1 1", "wrong number of arguments for 'throttle' command"),
        ("CL.THROTTLE a x 1 1", whole),
        ("CL.THROTTLE a 1.5 1 1", whole),
        ("CL.THROTTLE a -1 1 1", whole),
        ("CL.THROTTLE a 1 -1 1", whole),
        ("CL.THROTTLE a 1 1 -1", whole),
        ("CL.THROTTLE a 1 1 1 x", whole),
        ("CL.THROTTLE a 1 1 1 -9223372036854775809", whole),
        ("THROTTLE a 1 1 1 -1", whole),
        ("CL.THROTTLE a 9223372036854775808 1 1", whole),
        ("CL.THROTTLE a 1 0 1", "zero rates are not supported"),
        ("CL.THROTTLE a 1 1 0", "zero rates are not supported"),
        ("THROTTLE a 0 1 1", "max_burst of THROTTLE must be at least 1"),
        ("CL.THROTTLE a 9223372036854775807 1 1", "a burst this large at this rate"),
        ("CL.THROTTLE a 1 1 9223372036854775807", "a window can be at most"),
    ] {
        let reply = client.send_command(command);
        assert!(reply.starts_with(&format!("-ERR {why}")), "{command}: {reply}");
    }
    assert_eq!(client.send_command("CL.THROTTLE a 1 1 1 0"), "*5 :0 :2 :2 :-1 :0");
    assert_eq!(
        client.send_command("CL.THROTTLE a 1 1 1 9223372036854775807"),
        "*5 :1 :2 :2 :-1 :0"
    );
}

#[test]
fn negative_quantity_refunds_like_redis_cell() {
    let clock = clock();
    let mut client = fixture(&clock, NO_RULES, LOCAL_IP, None);
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60 10"), "*5 :0 :16 :6 :-1 :20");
    assert_eq!(client.send_command("CL.THROTTLE a 15 30 60 -4"), "*5 :0 :16 :10 :-1 :12");
    clock.advance(Micros::from_secs(3));
    assert_eq!(
        client.send_command("CL.THROTTLE a 15 30 60 -1"),
        "*5 :0 :16 :12 :-1 :7",
        "refunded in full"
    );
    assert_eq!(
        client.send_command("CL.THROTTLE a 15 30 60 -9223372036854775808"),
        "*5 :0 :16 :16 :-1 :0"
    );
    assert_eq!(
        client.send_command("CL.THROTTLE a 15 30 60 16"),
        "*5 :0 :16 :0 :-1 :32",
        "an excess refund adds no quota"
    );
    assert_eq!(client.send_command("CL.THROTTLE new 15 30 60 -1"), "*5 :0 :16 :16 :-1 :0");
    assert_eq!(client.send_command("CL.THROTTLE b +15 0030 +060 -0"), "*5 :0 :16 :16 :-1 :0");
}

/// After too many different limits, new ones are rejected and known ones still work.
#[test]
fn distinct_ad_hoc_policies_are_capped() {
    let mut client = fixture(&clock(), NO_RULES, LOCAL_IP, None);
    let rejected = (1..=12_000)
        .filter(|count| {
            client
                .send_command(&format!("CL.THROTTLE k 15 {count} 60"))
                .starts_with("-ERR callers have used more")
        })
        .count();
    assert_eq!(rejected, 2_000);
    assert!(client.send_command("CL.THROTTLE other 15 77 60").starts_with("*5 :0"));
}

/// GCRA by its definition, in integers: times are multiplied by `count`, so that the emission
/// interval, period / count, is an integer.
struct ThrottleGcraModel {
    count: i128,
    interval: i128,
    tolerance: i128,
    arrival: i128,
}

impl ThrottleGcraModel {
    fn new(burst: u64, count: u64, period: u64) -> Self {
        let interval = i128::from(period) * 1_000_000;
        let (count, tolerance) = (i128::from(count), interval * i128::from(burst + 1));
        Self { count, interval, tolerance, arrival: 0 }
    }

    fn throttle(&mut self, quantity: i64, now: u64) -> [i128; 5] {
        let now = i128::from(now) * self.count;
        let seconds = |span: i128| (span + self.count * 1_000_000 - 1) / (self.count * 1_000_000);
        let from = self.arrival.max(now);
        let then = from + i128::from(quantity) * self.interval;
        let over = then - self.tolerance - now;
        let limited = over > 0;
        if !limited {
            self.arrival = then;
        }
        let held = self.arrival.max(now) - now;
        let retry_after = match limited {
            true if then - from > self.tolerance => -1,
            true => seconds(over),
            false => -1,
        };
        let limit = self.tolerance / self.interval;
        let remaining = (self.tolerance - held) / self.interval;
        [i128::from(limited), limit, remaining, retry_after, seconds(held)]
    }
}

/// Calls with the pause before each: mostly of quantity 1, some refunds, and pauses from zero to
/// days.
fn steps() -> impl Strategy<Value = Vec<(u64, i64)>> {
    let wait = prop_oneof![
        3 => Just(0_u64), 3 => 0_u64..2_000, 3 => 0_u64..2_000_000, 1 => 0_u64..1_000_000_000_000,
    ];
    let quantity = prop_oneof![5 => Just(1_i64), 2 => 0_i64..50, 1 => 0_i64..5, 1 => -20_i64..0];
    prop::collection::vec((wait, quantity), 1..30)
}

/// Returns the API's and the model's reply to each call. The clock advances only between calls.
fn replies(numbers: (u64, u64, u64), steps: &[(u64, i64)]) -> Vec<(Vec<i128>, [i128; 5])> {
    let (burst, count, period) = numbers;
    let clock = clock();
    let mut now = 1_700_000_000_000_000;
    let (mut client, mut gcra) =
        (fixture(&clock, NO_RULES, LOCAL_IP, None), ThrottleGcraModel::new(burst, count, period));
    let mut replies = Vec::with_capacity(steps.len());
    for (wait, quantity) in steps {
        clock.advance(Micros::new(*wait));
        now += wait;
        let reply =
            client.send_command(&format!("CL.THROTTLE k {burst} {count} {period} {quantity}"));
        let reply = reply.strip_prefix("*5 ").unwrap_or_else(|| panic!("{reply}"));
        let reply = reply.split(' ').map(|number| number[1..].parse().unwrap()).collect();
        replies.push((reply, gcra.throttle(*quantity, now)));
    }
    replies
}

/// `TIDEGATE_CASES=4000000` runs three million calls.
#[test]
fn cl_throttle_matches_gcra_model() {
    let numbers = (0_u64..40, 1_u64..2_000, prop_oneof![Just(1_u64), Just(60), 1_u64..100_000]);
    check_property("resp_gcra", cases() / 20, &(numbers, steps()), |(numbers, steps)| {
        for (reply, expected) in replies(numbers, &steps) {
            prop_assert_eq!(reply, expected);
        }
        Ok(())
    });
}
