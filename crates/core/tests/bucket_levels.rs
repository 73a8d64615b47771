//! The memory store returns the level of a plain bucket without unpacking its whole state. A table
//! that does so must decide exactly like one that does not.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_core::algorithm::token_bucket::BucketLevel;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::batch::{self, Cells, StateKind};
use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, LeakMode, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::scale::ScaleId;
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::state_table::StateTable;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A table that returns bucket levels, and counts how often a main state is accessed as a whole.
#[derive(Default)]
struct LevelTable {
    states: HashMap<(usize, StateKind), State>,
    reads: usize,
    edits: usize,
}

impl Cells for LevelTable {
    fn read<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        see: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        self.reads += usize::from(part == StateKind::Main);
        see(self.states.get(&(charge, part)))
    }

    fn level(&mut self, charge: usize) -> Option<(ScaleId, BucketLevel)> {
        match self.states.get(&(charge, StateKind::Main))? {
            State { scale, tally: Tally::Bucket(level) } => Some((*scale, *level)),
            _ => None,
        }
    }

    fn edit<R>(
        &mut self,
        charge: usize,
        part: StateKind,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> R {
        self.edits += usize::from(part == StateKind::Main);
        let mut state = self.states.remove(&(charge, part));
        let result = change(&mut state);
        if let Some(state) = state {
            self.states.insert((charge, part), state);
        }
        result
    }
}

impl LevelTable {
    fn apply(&mut self, op: Op, charges: &[Charge<'_>], now: Timestamp) -> Vec<Reading> {
        let mut readings = vec![Reading::default(); charges.len()];
        batch::apply(op, charges, now, self, &mut readings);
        readings
    }
}

/// A rule before and after an edit of its limit.
#[derive(Clone, Copy, Debug)]
struct EditedRule {
    before: Policy,
    after: Policy,
    grace: Option<Policy>,
    ban: Option<BanPolicy>,
    role: Role,
}

fn policy(algorithm: Algorithm, requests: u64, window: u64, burst: Option<u64>) -> Policy {
    let burst = burst.filter(|_| algorithm.is_bucket());
    Policy::new(algorithm, Quota { requests, window: Micros::new(window), burst }).unwrap()
}

/// Mostly policing buckets, whose levels are read directly.
fn rules() -> impl Strategy<Value = EditedRule> {
    let limit = || (1_u64..8, proptest::option::of(1_u64..12));
    let penalties = (
        prop_oneof![2 => Just(None), 1 => (1_u64..4).prop_map(Some)],
        prop_oneof![2 => Just(None), 1 => (1_u32..4).prop_map(Some)],
    );
    (limit(), limit(), 1_u64..40, 0_u8..8, 0_u8..6, penalties).prop_map(
        |((requests, burst), (requests_after, burst_after), window, kind, role, penalties)| {
            let algorithm = match kind {
                0 => Algorithm::FixedWindow,
                1 => Algorithm::LeakyBucket(LeakMode::Queue),
                2 => Algorithm::LeakyBucket(LeakMode::Police),
                _ => Algorithm::TokenBucket,
            };
            let window = window * 100;
            // Half of the edits change only the burst, so the level stays on its scale.
            let requests_after = if kind % 2 == 0 { requests } else { requests_after };
            EditedRule {
                before: policy(algorithm, requests, window, burst),
                after: policy(algorithm, requests_after, window, burst_after),
                grace: penalties.0.map(|allow| policy(Algorithm::FixedWindow, allow, 1_000, None)),
                ban: penalties.1.map(|after| {
                    let (within, lasts) = (Micros::new(1_000), Micros::new(300));
                    BanPolicy::new(after, within, lasts, 2, Micros::new(900))
                }),
                role: match role {
                    0..=3 => Role::Enforce,
                    4 => Role::Shadow,
                    _ => Role::Always,
                },
            }
        },
    )
}

/// An operation, how far time moves before it (sometimes back), and its cost.
fn steps() -> impl Strategy<Value = (Op, i64, u64)> {
    let op = prop_oneof![6 => Just(Op::Charge), 1 => Just(Op::Peek), 1 => Just(Op::Force)];
    let hop = prop_oneof![3 => Just(0), 4 => 1_i64..400, 1 => 1_i64..4_000, 1 => -2_000_i64..0];
    (op, hop, prop_oneof![4 => Just(1), 2 => 1_u64..13, 1 => Just(u64::MAX)])
}

#[test]
fn directly_read_levels_decide_like_whole_states() {
    let strategy =
        (prop::collection::vec(rules(), 1..=6), prop::collection::vec(steps(), 1..24), 0_usize..30);
    check_property("bucket_levels", cases(), &strategy, |(rules, steps, edited_at)| {
        let (mut levels, mut table) = (LevelTable::default(), StateTable::default());
        let (mut now, mut since) = (START, Timestamp::EPOCH);
        let mut policies: Vec<Policy> = rules.iter().map(|rule| rule.before).collect();
        for (at, (op, hop, cost)) in steps.into_iter().enumerate() {
            // Not back to before the edit: a refused charge then caps the debt in a level that is
            // read directly, but not in a whole state. Waits can differ by how far it went back.
            now = Timestamp::from_micros(now.as_micros().saturating_add_signed(hop)).max(since);
            if at == edited_at {
                since = now;
                let edited = |rule: &EditedRule| rule.after.with_effective_since(now);
                policies = rules.iter().map(edited).collect();
            }
            let charge = |i: usize| {
                let key = Key::without_namespace("law", Fingerprint { hi: 7, lo: i as u64 });
                let EditedRule { role, ref grace, ref ban, .. } = rules[i];
                let (grace, ban) = (grace.as_ref(), ban.as_ref());
                Charge { role, grace, ban, ..Charge::plain(key, &policies[i], cost) }
            };
            let charges: Vec<Charge<'_>> = (0..rules.len()).map(charge).collect();
            let (actual, expected) =
                (levels.apply(op, &charges, now), table.apply(op, &charges, now));
            prop_assert_eq!(actual, expected, "step {}: {:?}", at, op);
        }
        Ok(())
    });
}

/// Most decisions are of these kinds. A slower path would decide the same.
#[test]
fn plain_charge_accesses_its_state_once() {
    let key = |lo| Key::without_namespace("law", Fingerprint { hi: 7, lo });
    let bucket = policy(Algorithm::TokenBucket, 9, 1_000, None);
    let window = policy(Algorithm::FixedWindow, 9, 1_000, None);
    let accesses = |charges: &[Charge<'_>]| {
        let mut table = LevelTable::default();
        table.apply(Op::Charge, charges, START);
        (table.reads, table.edits) = (0, 0);
        table.apply(Op::Charge, charges, START);
        (table.reads, table.edits)
    };
    let one = |policy| [Charge::plain(key(1), policy, 1)];
    assert_eq!(accesses(&one(&window)), (0, 1), "read and written at once");
    assert_eq!(accesses(&one(&bucket)), (0, 1), "only the new level is written");
    let two = [Charge::plain(key(1), &bucket, 1), Charge::plain(key(2), &bucket, 1)];
    assert_eq!(accesses(&two), (0, 2), "only the new levels are written");
}
