//! The conformance suite for stores: on the same history, a store must return the same readings as
//! the reference [`StateTable`].
//!
//! Histories mix all algorithms, several keys and rules, costs, all operations, warnings, bans and
//! limit edits. Time only moves forwards here; each store tests separately how it handles a clock
//! that goes back.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::Reading;
use tidegate_core::key::{Key, KeyHasher, Secret};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, GrantTerms, Op, QueueMode, Role};
use tidegate_core::time::{Micros, Timestamp};

use crate::history::grant_terms;
use crate::property::check_property;
use crate::quotas::ALL_ALGORITHMS;
use crate::state_table::StateTable;

/// A store under test, whose clock the test controls.
pub trait ConformanceStore {
    /// Sets the store's clock.
    fn set_now(&mut self, now: Timestamp);

    /// Applies `op` to a batch of charges.
    fn apply(&mut self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading>;
}

/// A rule of a history, before and after an edit of its limit.
#[derive(Clone, Copy, Debug)]
struct EditedRule {
    before: Policy,
    after: Policy,
    grace: Option<Policy>,
    ban: Option<BanPolicy>,
    role: Role,
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
struct ConformanceStep {
    wait: u64,
    op: u8,
    /// Bit mask of the rules in the batch.
    rules: u8,
    key: u8,
    cost: u64,
    grant: GrantTerms,
}

const RULES: [&str; 4] = ["user", "endpoint", "ip", "global"];

/// Runs `cases` random histories, each on a fresh store.
///
/// # Panics
/// If the store's readings differ from the table's; the message contains the smallest such history.
pub fn check_conformance<S: ConformanceStore>(name: &str, cases: u32, make: impl Fn() -> S) {
    let histories = (
        prop::collection::vec(rules(), 1..=RULES.len()),
        prop::collection::vec(steps(), 1..=40),
        1_699_999_000_000_000_u64..1_700_001_000_000_000,
        0_usize..40,
    );
    check_property(name, cases, &histories, |(rules, steps, start, edited_at)| {
        run_history(&rules, &steps, Timestamp::from_micros(start), edited_at, &mut make())
    });
}

fn run_history<S: ConformanceStore>(
    rules: &[EditedRule],
    steps: &[ConformanceStep],
    mut now: Timestamp,
    edited_at: usize,
    store: &mut S,
) -> Result<(), TestCaseError> {
    let (mut table, mut charged, mut since) = (StateTable::default(), now, None);
    for (at, step) in steps.iter().enumerate() {
        now = now.plus(Micros::new(step.wait));
        store.set_now(now);
        if at >= edited_at {
            since.get_or_insert(now);
        }
        let policies: Vec<Policy> = rules
            .iter()
            .map(|rule| since.map_or(rule.before, |since| rule.after.with_effective_since(since)))
            .collect();
        let charges: Vec<Charge<'_>> = (0..rules.len())
            .filter(|i| step.rules >> i & 1 == 1)
            .map(|i| charge(i, &rules[i], &policies[i], step))
            .collect();
        let op = match step.op {
            0..=9 => Op::Charge,
            10 | 11 => Op::Peek,
            12 => Op::Force,
            13 | 14 => Op::Refund { charged_at: charged },
            15 | 16 => Op::Renew { charged_at: charged },
            17 | 18 => Op::Grant(step.grant),
            _ => Op::Reset,
        };
        if matches!(op, Op::Charge | Op::Renew { .. } | Op::Grant(_)) {
            charged = now;
        }
        let (actual, expected) = (store.apply(op, &charges), table.apply(op, &charges, now));
        prop_assert_eq!(actual, expected, "step {} of {:?}: {:?} on {:?}", at, steps, op, charges);
    }
    Ok(())
}

fn charge<'a>(
    i: usize,
    rule: &'a EditedRule,
    policy: &'a Policy,
    step: &ConformanceStep,
) -> Charge<'a> {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(&[step.key]);
    let namespace = Secret::UNSET.namespace(&[RULES[i].as_bytes()]);
    let fingerprint = hasher.finish() ^ namespace;
    Charge {
        // All rules but the last use a namespaced key.
        key: match RULES[i] {
            "global" => Key::without_namespace(RULES[i], fingerprint),
            rule => Key { namespace, ..Key::without_namespace(rule, fingerprint) },
        },
        policy,
        cost: step.cost,
        role: rule.role,
        grace: rule.grace.as_ref(),
        ban: rule.ban.as_ref(),
        // Some callers can delay a request and others cannot; all use the same counters.
        lent: false,
        queue: if step.op.is_multiple_of(2) { QueueMode::Hold } else { QueueMode::Refuse },
    }
}

fn rules() -> impl Strategy<Value = EditedRule> {
    let numbers = (1_u64..12, 1_u64..12, 0_usize..4, 0_usize..ALL_ALGORITHMS.len());
    let grace = proptest::option::of((1_u64..4, 1_u64..2_000_000));
    let ban = proptest::option::of((1_u32..4, 1_u64..3_000_000, 1_u64..2_000_000, 1_u32..4));
    (numbers, grace, ban, 0_u8..8).prop_map(|((before, after, window, kind), grace, ban, role)| {
        let window = Micros::new([977, 100_000, 1_000_000, 3_600_000_000][window]);
        let policy = |requests| small_policy(ALL_ALGORITHMS[kind], requests, window);
        EditedRule {
            before: policy(before),
            after: policy(after),
            grace: grace.map(|(allow, period)| {
                small_policy(Algorithm::SlidingWindowLog, allow, Micros::new(period))
            }),
            ban: ban.map(|(after, within, lasts, factor)| {
                let (within, lasts) = (Micros::new(within), Micros::new(lasts));
                BanPolicy::new(after, within, lasts, factor, Micros::from_secs(5))
            }),
            role: match role {
                0..=5 => Role::Enforce,
                6 => Role::Shadow,
                _ => Role::Always,
            },
        }
    })
}

#[expect(clippy::expect_used, reason = "small numbers make a policy")]
fn small_policy(algorithm: Algorithm, requests: u64, window: Micros) -> Policy {
    Policy::new(algorithm, Quota::new(requests, window)).expect("small numbers")
}

fn steps() -> impl Strategy<Value = ConformanceStep> {
    let wait = prop_oneof![
        4 => Just(0),
        3 => 1_u64..1_000,
        3 => 1_u64..200_000,
        2 => 1_u64..2_000_000,
        1 => 1_u64..8_000_000_000,
    ];
    let cost = prop_oneof![6 => Just(1), 1 => Just(0), 2 => 1_u64..14];
    (wait, 0_u8..20, 1_u8..16, 0_u8..3, cost, grant_terms()).prop_map(
        |(wait, op, rules, key, cost, grant)| ConformanceStep { wait, op, rules, key, cost, grant },
    )
}
