//! The pacing by the server's numbers, without numbers, and by hostile ones.

use proptest::prelude::*;

use super::*;
use crate::headers::QuotaNumbers;
use crate::headers::tests::any_hints;

const CEILING: Duration = Duration::from_secs(20);

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn quota(remaining: u64, limit: u64, window: u64, reset_after: Option<u64>) -> ResponseHints {
    let numbers = QuotaNumbers {
        remaining,
        limit: Some(limit),
        window: Some(secs(window)),
        reset_after: reset_after.map(secs),
        ..QuotaNumbers::default()
    };
    ResponseHints { quotas: vec![numbers], ..ResponseHints::default() }
}

fn refusal(retry_after: Option<Duration>) -> ResponseHints {
    let outcome = CallOutcome::Refused;
    ResponseHints { outcome, retry_after, ..ResponseHints::default() }
}

/// A pacer whose call at `now` was answered at once.
fn answered(now: Duration, hints: &ResponseHints) -> Pacer {
    let mut pacer = Pacer::new(CEILING);
    let ticket = pacer.record_send(now, 1);
    pacer.observe(&ticket, hints, now);
    pacer
}

/// The time of the next call.
fn next_send(pacer: &Pacer, now: Duration) -> Duration {
    match pacer.ask(now, None, 0) {
        PacingAnswer::SendNow => now,
        PacingAnswer::WaitUntil(at) => at,
        PacingAnswer::GiveUp { .. } => panic!("there is no deadline"),
    }
}

#[test]
fn few_calls_are_sent_before_first_answer() {
    let mut pacer = Pacer::new(CEILING);
    let sent = (0..100).filter(|_| {
        let may_send = pacer.ask(Duration::ZERO, None, 0) == PacingAnswer::SendNow;
        if may_send {
            pacer.record_send(Duration::ZERO, 1);
        }
        may_send
    });
    assert_eq!(sent.count(), 10);
    assert_eq!(next_send(&pacer, Duration::ZERO), secs(1));
}

#[test]
fn rest_of_a_window_is_spread_over_it() {
    let pacer = answered(secs(100), &quota(30, 3_000, 60, Some(30)));
    let rate = pacer.current_rate(secs(100)).unwrap();
    // 30 calls in 31 s: the server may have rounded the reset down.
    assert!((0.9..1.0).contains(&rate), "{rate}");
}

#[test]
fn full_quota_permits_a_burst() {
    let pacer = answered(secs(1), &quota(9_999, 10_000, 86_400, Some(80_000)));
    assert!(pacer.current_rate(secs(1)).unwrap() > 100.0);
}

#[test]
fn tightest_of_several_policies_counts() {
    let mut hints = quota(30, 3_000, 60, Some(30));
    hints.quotas.extend(quota(900, 1_000, 60, Some(30)).quotas);
    let both = answered(secs(1), &hints).current_rate(secs(1));
    assert_eq!(both, answered(secs(1), &quota(30, 3_000, 60, Some(30))).current_rate(secs(1)));
}

#[test]
fn used_up_window_is_probed_once_after_it_ends() {
    let mut pacer = answered(secs(100), &quota(0, 3_000, 60, Some(7)));
    let end = secs(108);
    assert_eq!(next_send(&pacer, secs(100)), end, "7 s, rounded down by the server");
    pacer.record_send(end, 1);
    assert_eq!(next_send(&pacer, end), end + secs(1), "the next probe, without an answer");
}

#[test]
fn calls_in_flight_count_as_used() {
    let mut pacer = answered(secs(1), &quota(3, 10, 60, Some(50)));
    for _ in 0..3 {
        pacer.record_send(secs(2), 1);
    }
    assert_eq!(next_send(&pacer, secs(2)), secs(1) + CEILING + secs(1), "the window is used up");
}

#[test]
fn late_response_to_earlier_call_changes_nothing() {
    let mut pacer = Pacer::new(CEILING);
    let (first, second) = (pacer.record_send(secs(1), 1), pacer.record_send(secs(1), 1));
    pacer.observe(&second, &quota(0, 10, 60, Some(5)), secs(2));
    let before = next_send(&pacer, secs(2));
    pacer.observe(&first, &quota(9, 10, 60, Some(5)), secs(2));
    assert_eq!(next_send(&pacer, secs(2)), before);
}

#[test]
fn retry_after_is_honoured_up_to_the_ceiling() {
    let next = |wait| next_send(&answered(secs(5), &refusal(Some(wait))), secs(5));
    assert_eq!(next(secs(3)), secs(8));
    assert_eq!(next(secs(3_600)), secs(25));
    assert_eq!(next(Duration::MAX), secs(25));
}

#[test]
fn deadline_before_turn_gives_up_at_once() {
    let pacer = answered(secs(5), &refusal(Some(secs(10))));
    let ask = |deadline, ahead| pacer.ask(secs(5), Some(deadline), ahead);
    assert_eq!(ask(secs(14), 0), PacingAnswer::GiveUp { needed: secs(10) });
    assert_eq!(ask(secs(15), 0), PacingAnswer::WaitUntil(secs(15)));
    let slow = answered(secs(5), &quota(30, 3_000, 60, Some(30)));
    let behind = slow.ask(secs(5), Some(secs(15)), 20);
    assert!(matches!(behind, PacingAnswer::GiveUp { .. }), "20 calls at one a second: {behind:?}");
}

#[test]
fn unexplained_refusals_cut_the_rate_once_a_flight() {
    let mut pacer = answered(secs(20), &ResponseHints::default());
    let mut tickets = Vec::new();
    for step in 0..100 {
        let now = secs(40) + Duration::from_millis(step * 10);
        let ticket = pacer.record_send(now, 1);
        pacer.observe(&ticket, &ResponseHints::default(), now);
        tickets.push(pacer.record_send(now, 0));
    }
    let now = secs(41);
    assert_eq!(pacer.current_rate(now), None, "nothing limits it yet");
    tickets.iter().for_each(|ticket| pacer.observe(ticket, &refusal(None), now));
    let rate = pacer.current_rate(now).unwrap();
    assert!((60.0..90.0).contains(&rate), "80 % of about 100 a second: {rate}");
}

#[test]
fn rate_grows_back_after_a_cut() {
    let pacer = answered(secs(20), &refusal(None));
    let rate = |at: u64| pacer.current_rate(secs(20 + at)).unwrap_or(f64::INFINITY);
    assert!(rate(0) <= rate(15) && rate(15) < rate(60) && rate(60) < rate(300));
}

#[test]
fn numbers_are_forgotten_if_no_longer_sent() {
    let mut pacer = answered(secs(1), &quota(1, 10, 60, Some(50)));
    assert!(pacer.current_rate(secs(1)).is_some_and(|rate| rate < 0.1));
    let ticket = pacer.record_send(secs(100), 1);
    pacer.observe(&ticket, &ResponseHints::default(), secs(100));
    assert_eq!(pacer.current_rate(secs(200)), None);
}

#[test]
fn collisions_enlarge_the_reserve_for_a_while() {
    let refused = |pacer: &mut Pacer, at: Duration| {
        let ticket = pacer.record_send(at, 1);
        let mut hints = quota(0, 100, 2, None);
        hints.outcome = CallOutcome::Refused;
        hints.retry_after = Some(Duration::from_millis(20));
        pacer.observe(&ticket, &hints, at);
        let ticket = pacer.record_send(at + secs(1), 1);
        pacer.observe(&ticket, &quota(50, 100, 2, None), at + secs(1));
    };
    let mut pacer = answered(secs(1), &quota(50, 100, 2, None));
    let rate = |pacer: &Pacer, at| pacer.current_rate(at).unwrap();
    let before = rate(&pacer, secs(1));
    refused(&mut pacer, secs(2));
    assert!((rate(&pacer, secs(3)) / before - 0.5).abs() < 0.01);
    refused(&mut pacer, secs(4));
    assert!((rate(&pacer, secs(5)) / before - 0.25).abs() < 0.01);
    assert!((rate(&pacer, secs(200)) / before - 1.0).abs() < 0.01);
}

#[derive(Clone, Debug)]
enum Step {
    Send { cost: u32, late: u64 },
    Observe { ticket: prop::sample::Index, hints: ResponseHints },
    Advance(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<u32>(), 0_u64..1 << 40)
            .prop_map(|(cost, late)| Step::Send { cost: cost % 100, late }),
        (any::<prop::sample::Index>(), any_hints())
            .prop_map(|(ticket, hints)| Step::Observe { ticket, hints }),
        (0_u64..1 << 36).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(tidegate_testkit::property::cases() / 50))]

    /// After any history, a call waits at most the ceiling, and is then sent.
    #[test]
    fn hostile_history_never_blocks_beyond_ceiling(
        steps in prop::collection::vec(any_step(), 0..60),
        ceiling_ms in 1_u64..60_000,
    ) {
        let ceiling = Duration::from_millis(ceiling_ms);
        let mut pacer = Pacer::new(ceiling);
        let (mut now, mut tickets) = (Duration::ZERO, Vec::new());
        for step in steps {
            match step {
                Step::Send { cost, late } => {
                    now = next_send(&pacer, now) + Duration::from_micros(late % 1_000_000);
                    tickets.push(pacer.record_send(now, cost));
                }
                Step::Observe { ticket, hints } if !tickets.is_empty() => {
                    pacer.observe(ticket.get(&tickets), &hints, now);
                }
                Step::Observe { .. } => {}
                Step::Advance(micros) => now += Duration::from_micros(micros),
            }
            let at = next_send(&pacer, now);
            prop_assert!(at <= now + ceiling, "{at:?} is more than {ceiling:?} after {now:?}");
            prop_assert_eq!(pacer.ask(now + ceiling, None, 0), PacingAnswer::SendNow);
            let rate = pacer.current_rate(now);
            prop_assert!(rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0));
        }
    }
}
