//! Laws of leases on random histories, with core as the store.

mod machine;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::lending::MIN_LEASE_TTL;
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_testkit::history::{CounterHistory, StepAction, counter_steps, histories};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;
use tidegate_testkit::state_table::StateTable;

use super::super::grant_accounts::GrantAccounts;
use super::*;

const KEY: Key<'static> = Key::without_namespace("lease", Fingerprint { hi: 1, lo: 2 });

/// One step of a node's history.
#[derive(Clone, Copy, Debug)]
enum NodeStep {
    /// A request of this cost arrives.
    Take(u64),
    /// The store processes the question in flight, if there is one.
    Process,
    /// The answer arrives, or the deadline passes.
    Answer {
        is_lost: bool,
    },
    /// An earlier request is refunded.
    GiveBack(usize),
    Sweep,
    Retire,
    /// This many 32nds of a lease pass.
    Wait(u64),
}

/// A node and its store. The clocks differ by a constant.
struct NodeFixture {
    policy: Policy,
    lease: CounterLease,
    table: StateTable,
    now: u64,
    answer: Option<(u64, Reading)>,
    /// By date.
    grants: GrantAccounts<Timestamp>,
}

const TTL: u64 = 32_000;
const CLOCK_OFFSET: u64 = 1_699_920_000_000_000;

impl NodeFixture {
    fn new(policy: Policy) -> Self {
        let now = 1_000_000;
        let (ttl, at) = (Micros::new(TTL), Timestamp::from_micros(now));
        let lease = CounterLease::new(policy, ttl, BugSwitch::default(), HOT_REQUESTS, 0, at);
        let (table, grants) = (StateTable::default(), GrantAccounts::new(TTL));
        Self { policy, lease, table, now, answer: None, grants }
    }

    fn apply(&mut self, step: NodeStep) -> Result<(), TestCaseError> {
        let now = Timestamp::from_micros(self.now);
        match step {
            NodeStep::Take(cost) => {
                if let Take::Spent(granted_at) = self.lease.take(cost, 2, now) {
                    self.grants.spend(granted_at, cost, self.now)?;
                }
            }
            NodeStep::Process => self.process(),
            NodeStep::Answer { is_lost } => {
                let number = self.lease.question().map(|question| question.number);
                let answer = self.answer.take().filter(|_| !is_lost).map(|(_, reading)| reading);
                self.lease.on_answer(number.unwrap_or(0), answer, now);
            }
            NodeStep::GiveBack(index) => {
                if let Some((cost, granted_at)) = self.grants.pick_spent(index)
                    && self.lease.give_back(cost, granted_at, now)
                {
                    self.grants.give_back(granted_at, cost);
                }
            }
            NodeStep::Sweep => _ = self.lease.sweep(now),
            NodeStep::Retire => self.lease.retire(now),
            NodeStep::Wait(parts) => self.now += TTL / 32 * parts,
        }
        self.check_returns()
    }

    fn process(&mut self) {
        let Some(question) = self.lease.question().copied() else { return };
        if self.answer.is_some_and(|(number, _)| number == question.number) {
            return;
        }
        // The store's time differs, and no two grants have the same date.
        let now = Timestamp::from_micros(CLOCK_OFFSET + self.now + self.grants.count());
        let charge = Charge::plain(KEY, &self.policy, question.least);
        let reading = self.table.apply_one(Op::Grant(question.terms), &charge, now);
        self.grants.grant(now, question.asked_at.as_micros(), reading.granted.into());
        self.answer = Some((question.number, reading));
    }

    fn check_returns(&mut self) -> Result<(), TestCaseError> {
        for UnspentUnits { units, origin } in self.lease.take_unspent() {
            self.grants.return_units(origin.granted_at, units)?;
        }
        Ok(())
    }
}

fn node_steps() -> impl Strategy<Value = NodeStep> {
    prop_oneof![
        6 => (1_u64..4).prop_map(NodeStep::Take),
        3 => Just(NodeStep::Process),
        3 => (0_u8..6).prop_map(|kind| NodeStep::Answer { is_lost: kind == 0 }),
        2 => any::<usize>().prop_map(NodeStep::GiveBack),
        1 => Just(NodeStep::Sweep),
        1 => (0_u8..4).prop_map(|kind| if kind == 0 { NodeStep::Retire } else { NodeStep::Sweep }),
        3 => (0_u64..40).prop_map(NodeStep::Wait),
    ]
}

#[test]
fn spent_and_returned_units_never_exceed_grant() {
    for (algorithm, name) in leasable_algorithms() {
        let policy = Policy::new(algorithm, Quota::new(60, Micros::from_millis(500))).unwrap();
        let steps = prop::collection::vec(node_steps(), 1..80);
        check_property(&format!("lease_units_{name}"), cases() / 20, &steps, |steps| {
            let mut node = NodeFixture::new(policy);
            steps.into_iter().try_for_each(|step| node.apply(step))
        });
    }
}

/// As of the node's last answer: after the wait the store admits the cost, if nothing else is
/// charged.
#[test]
fn wait_for_units_is_sound() {
    for (algorithm, name) in leasable_algorithms() {
        let strategy =
            (quotas::any_policies(algorithm), histories(8), counter_steps(), 1_u64..6, 0_u64..8);
        let name = format!("lease_wait_{name}");
        check_property(
            &name,
            cases() / 10,
            &strategy,
            |(policy, history, step, least, eighths)| {
                let (mut table, now) = run_history(&policy, &history);
                let terms = match step.action {
                    StepAction::Grant(terms) => terms,
                    _ => GrantTerms { most: 10, leave: 0, part: 4 },
                };
                let terms = GrantTerms { leave: 0, most: terms.most.max(8), ..terms };
                let question = Charge::plain(KEY, &policy, least);
                let reading = table.apply_one(Op::Grant(terms), &question, now);
                let granted = reading.granted.into();
                let had_room = granted > 0;
                let last =
                    LastAnswer { view: LastReading { reading, at: now }, least, granted, had_room };
                let few = policy.limit().min(1 + eighths);
                for cost in [few, policy.limit() / 8 * eighths, reading.remaining + 1, least] {
                    let cost = cost.clamp(1, policy.limit());
                    let then = now.plus(last.wait_for(&policy, cost));
                    let charge = Charge::plain(KEY, &policy, cost);
                    let peeked = table.apply_one(Op::Peek, &charge, then);
                    prop_assert_eq!(peeked.verdict, Verdict::Allow, "{} of {:?}", cost, last);
                }
                Ok(())
            },
        );
    }
}

/// The counter after a history, and the time.
fn run_history(policy: &Policy, history: &CounterHistory) -> (StateTable, Timestamp) {
    let (mut table, mut now) = (StateTable::default(), history.start);
    let mut last = Reading { remaining: policy.limit(), now, ..Reading::default() };
    for step in &history.steps {
        now = step.time_step.advance(policy, &last, now);
        let op = match step.action {
            StepAction::Charge => Op::Charge,
            StepAction::Force => Op::Force,
            StepAction::Grant(terms) => Op::Grant(terms),
            _ => Op::Peek,
        };
        let charge = Charge::plain(KEY, policy, step.cost.resolve(policy, &last));
        last = table.apply_one(op, &charge, now);
    }
    (table, now)
}

fn leasable_algorithms() -> [(Algorithm, &'static str); 5] {
    Algorithm::ALL.map(|algorithm| (algorithm, algorithm.name()))
}

#[test]
fn lease_ends_before_question_plus_ttl() {
    let policy = Policy::new(Algorithm::TokenBucket, Quota::new(1_000, MIN_LEASE_TTL)).unwrap();
    let mut node = NodeFixture::new(policy);
    assert_eq!(node.lease.take(1, 1, Timestamp::from_micros(node.now)), Take::Wait(1));
    node.process();
    node.now += TTL - 1;
    node.apply(NodeStep::Answer { is_lost: false }).unwrap();
    let at = |micros| Timestamp::from_micros(micros);
    assert!(matches!(node.lease.try_take(1, 1, at(node.now)), Take::Spent(_)));
    assert!(!matches!(node.lease.try_take(1, 1, at(node.now + 1)), Take::Spent(_)));
}
