//! The limiter as programs use it, with its counters in this process.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::time::Duration;

use tidegate::{
    BuildError, Facts, Limiter, LimiterBuilder, ManualClock, MemoryStore, Micros, ReloadError,
    RulesError, Timestamp,
};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A builder with a clock that stands still.
fn builder() -> (LimiterBuilder<ManualClock>, ManualClock) {
    let clock = ManualClock::new(START);
    (Limiter::builder().clock(clock.clone()), clock)
}

fn limiter(limit: &str) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let (builder, clock) = builder();
    (builder.limit(limit).build().unwrap(), clock)
}

fn from_ip(ip: &str) -> Facts<'_> {
    Facts::from([("ip", ip)])
}

/// FIELD.md part 2 section 3, first complaint (benwis/tower-governor#55): `per_second(4000)` meant
/// one request in 4 000 seconds.
#[test]
fn limit_per_second_admits_that_many_per_second() {
    let (limiter, clock) = limiter("4000/s by ip");
    let facts = from_ip("192.0.2.1");
    let admitted = |count| (0..count).filter(|_| limiter.check_now(&facts).is_allowed()).count();
    assert_eq!(admitted(5_000), 4_000);
    clock.advance(Micros::from_secs(1));
    assert_eq!(admitted(5_000), 4_000);
    clock.advance(Micros::from_millis(250));
    assert_eq!(admitted(5_000), 1_000);
}

#[test]
fn clones_on_threads_admit_exactly_limit() {
    let (limiter, _) = limiter("1000/h by ip");
    let admit = |limiter: Limiter<MemoryStore<ManualClock>>| {
        let facts = from_ip("192.0.2.1");
        (0..500).filter(|_| limiter.check_now(&facts).is_allowed()).count()
    };
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| limiter.clone()).map(|clone| scope.spawn(|| admit(clone))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1_000);
}

#[test]
fn refused_request_reports_exact_wait() {
    let (limiter, clock) = limiter("100/min by ip burst 1");
    let facts = from_ip("192.0.2.1");
    let allowed = limiter.check_now(&facts);
    assert_eq!(
        (allowed.limit(), allowed.remaining(), allowed.retry_after()),
        (Some(1), Some(0), None)
    );
    let refused = limiter.check_now(&facts);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(600)));
    clock.advance(Micros::from_millis(600));
    assert!(limiter.check_now(&facts).is_allowed());
}

#[test]
fn decision_without_rule_has_no_numbers() {
    let (builder, _) = builder();
    let limiter = builder
        .rules("rules: [{ id: a, match: { path: /a }, key_by: ip, limit: 1/min }]")
        .build()
        .unwrap();
    let decision = limiter.check_now(&Facts::from([("ip", "192.0.2.1"), ("path", "/b")]));
    assert!(decision.is_allowed());
    assert_eq!(
        (decision.limit(), decision.remaining(), decision.retry_after()),
        (None, None, None)
    );
}

/// Several rules at once, by tier: benwis/tower-governor#59.
#[test]
fn refused_request_charges_no_rule() {
    let (builder, _) = builder();
    let limiter = builder.limit("5/min by ip").limit("2/min by user_id").build().unwrap();
    let facts = Facts::from([("ip", "192.0.2.1"), ("user_id", "ada")]);
    assert_eq!((0..5).filter(|_| limiter.check_now(&facts).is_allowed()).count(), 2);
    let after = limiter.peek_now(&facts);
    let remaining: Vec<_> =
        after.readings().map(|(_, reading)| reading.numbers.unwrap().remaining).collect();
    assert_eq!(remaining, [3, 0], "by address, by user");
}

#[tokio::test]
async fn async_and_synchronous_calls_share_counters() {
    let (limiter, _) = limiter("10/min by ip");
    let facts = from_ip("192.0.2.1");
    assert_eq!(limiter.check(&facts).await.remaining(), Some(9));
    assert_eq!(limiter.check_cost(&facts, 3).await.remaining(), Some(6));
    assert_eq!(limiter.check_now(&facts).remaining(), Some(5));
    assert_eq!(limiter.peek(&facts).await.remaining(), Some(5), "a peek charges nothing");
    assert_eq!(limiter.force(&facts, 7).await.remaining(), Some(0));
    assert!(!limiter.check(&facts).await.is_allowed(), "two units in debt");
    limiter.reset(&facts).await;
    assert_eq!(limiter.peek_now(&facts).remaining(), Some(10));
}

#[tokio::test]
async fn refund_and_settlement_correct_charge() {
    let (limiter, _) = limiter("10/min by ip");
    let facts = from_ip("192.0.2.1");
    let remaining = || limiter.peek_now(&facts).remaining();
    let decision = limiter.check_cost(&facts, 4).await;
    limiter.refund(decision).await;
    assert_eq!(remaining(), Some(10));
    let reserved = limiter.check_cost(&facts, 4).await;
    limiter.settle(reserved, 1).await;
    assert_eq!(remaining(), Some(9), "the surplus came back");
    let reserved = limiter.check_cost(&facts, 4).await;
    limiter.settle(reserved, 6).await;
    assert_eq!(remaining(), Some(3), "the shortfall was charged");
    let refused = limiter.check_cost(&facts, 4).await;
    assert!(!refused.is_allowed());
    limiter.settle(refused, 2).await;
    assert_eq!(remaining(), Some(3), "a refused request was not charged");
}

#[tokio::test]
async fn released_slot_keeps_other_charges() {
    let (builder, _) = builder();
    let limiter = builder
        .rules("rules: [{ id: jobs, key_by: global, limit: { concurrent: 1 } }]")
        .limit("10/min by ip")
        .build()
        .unwrap();
    let facts = from_ip("192.0.2.1");
    let running = limiter.check(&facts).await;
    assert!(!limiter.check(&facts).await.is_allowed());
    limiter.release(running).await;
    let next = limiter.check(&facts).await;
    assert!(next.is_allowed());
    let by_ip = next.readings().last().unwrap().1.numbers.unwrap();
    assert_eq!(by_ip.remaining, 8);
}

/// governor#39: limits could not be changed while the program runs.
#[tokio::test]
async fn reload_keeps_counters_and_bad_reload_keeps_rules() {
    let rules = |limit: &str| {
        format!("rules: [{{ id: a, key_by: ip, limit: {limit} using fixed_window }}]")
    };
    let (builder, _) = builder();
    let limiter = builder.rules(rules("5/min")).build().unwrap();
    let (clone, facts) = (limiter.clone(), from_ip("192.0.2.1"));
    assert!(limiter.check_cost_now(&facts, 4).is_allowed());
    clone.reload(rules("6/min")).await.unwrap();
    assert_eq!(limiter.peek_now(&facts).remaining(), Some(2));
    let error = limiter.reload_now("rules: [{ id: a, limit: sometimes }]").unwrap_err();
    assert!(matches!(error, ReloadError::Rules(RulesError::Invalid(_))), "{error}");
    assert!(error.to_string().contains("rules[0].limit"), "{error}");
    assert_eq!(limiter.peek_now(&facts).remaining(), Some(2), "the last good rules");
}

#[tokio::test]
async fn document_and_limits_are_replaced_separately() {
    let (builder, _) = builder();
    let document = |limit: u32| format!("rules: [{{ id: a, key_by: ip, limit: {limit}/min }}]");
    let limiter = builder.rules(document(10)).limit("20/min by ip").build().unwrap();
    let facts = from_ip("192.0.2.1");
    let limits = || -> Vec<u64> {
        let decision = limiter.peek_now(&facts);
        decision.readings().map(|(_, reading)| reading.numbers.unwrap().limit).collect()
    };
    limiter.reload(document(11)).await.unwrap();
    assert_eq!(limits(), [11, 20]);
    limiter.reload_limits(["21/min by ip", "31/h by ip"]).await.unwrap();
    assert_eq!(limits(), [11, 21, 31]);
}

#[tokio::test]
async fn rules_file_is_read_again_on_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, "rules: [{ id: a, key_by: ip, limit: 1/min }]").unwrap();
    let limiter = Limiter::builder().rules_file(&path).build().unwrap();
    assert_eq!(limiter.peek_now(&from_ip("192.0.2.1")).limit(), Some(1));
    fs::write(&path, "rules: [{ id: a, key_by: ip, limit: 2/min }]").unwrap();
    limiter.reload_file(&path).await.unwrap();
    assert_eq!(limiter.peek_now(&from_ip("192.0.2.1")).limit(), Some(2));
    fs::remove_file(&path).unwrap();
    let error = limiter.reload_file(&path).await.unwrap_err();
    assert!(matches!(error, ReloadError::Rules(RulesError::UnreadableFile { .. })), "{error}");
    assert_eq!(limiter.peek_now(&from_ip("192.0.2.1")).limit(), Some(2));
}

#[test]
fn build_errors_say_what_to_do() {
    let error = |builder: LimiterBuilder| builder.build().map(|_| ()).unwrap_err();
    let missing = error(Limiter::builder());
    assert!(matches!(missing, BuildError::Rules(RulesError::Missing)));
    assert!(missing.to_string().contains(".limit("), "{missing}");
    let misspelt = error(Limiter::builder().limit("5/min by usr_id"));
    assert!(misspelt.to_string().contains("user_id"), "{misspelt}");
    let absent = error(Limiter::builder().rules_file("/nonexistent/rules.yaml"));
    assert!(absent.to_string().contains("/nonexistent/rules.yaml"), "{absent}");
}

/// benwis/tower-governor README: memory grows unless a thread of the program cleans up.
#[test]
fn memory_stays_within_budget_without_cleanup_thread() {
    const BUDGET: u64 = 1 << 20;
    let (builder, clock) = builder();
    let limiter = builder.limit("1/s by user_id").memory_bytes(BUDGET).build().unwrap();
    let known = Facts::from([("user_id", "ada")]);
    assert!(limiter.check_now(&known).is_allowed());
    for number in 0..200_000 {
        let user = number.to_string();
        _ = limiter.check_now(&Facts::from([("user_id", user.as_str())]));
    }
    let full = limiter.memory_usage();
    assert!(full.bytes <= BUDGET && full.keys > 10_000, "{full:?}");
    assert!(!limiter.check_now(&known).is_allowed(), "a flood resets no counter");
    // All of them have expired. One busy key is enough to remove them.
    for _ in 0..5_000 {
        clock.advance(Micros::from_millis(10));
        _ = limiter.check_now(&known);
    }
    let swept = limiter.memory_usage();
    assert!(swept.keys <= 1 && swept.overflow == 0, "{swept:?}");
    assert!(swept.bytes < full.bytes / 10, "{swept:?}");
}

#[test]
fn borrowed_facts_are_not_copied() {
    let (user, path) = (String::from("ada"), String::from("/orders"));
    let facts = Facts::from([("user_id", user.as_str()), ("path", path.as_str())]);
    assert!(std::ptr::eq(facts.get("user_id").unwrap(), user.as_str()));
    assert!(std::ptr::eq(facts.get("path").unwrap(), path.as_str()));
}

#[test]
fn limiter_is_sent_and_shared_between_threads() {
    fn is_shareable<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn is_send<T: Send>(_: T) {}
    let (limiter, _) = limiter("1/min by ip");
    is_shareable(&limiter);
    is_send(limiter.check(&Facts::new()));
    is_send(limiter.reload(""));
}
