//! Random histories. Each instant has several requests with several rules each, which a store may
//! batch. Times, costs and operations depend on the last readings, so that edge cases occur.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_core::decision::Reading;
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Role};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::history::{CounterStep, StepAction, counter_steps};
use tidegate_testkit::quotas::any_policies;

use super::{RedisFixture, StoreRequest};

/// Keys of each rule.
const KEYS: usize = 3;

const NAMES: [&str; 3] = ["user", "endpoint", "global"];

/// The namespaces of the rules, which separate the counters of one owner; not in rule order.
const TAGS: [u64; 3] = [0x7000_0000_0000_0000, 0x1000_0000_0000_0000, 0xf000_0000_0000_0000];

/// Histories end before this time: times plus the drain time of a bucket stay below 2^53.
const HISTORY_END: Timestamp = Timestamp::from_micros(2_500_000_000_000_000);

/// Rules, and rounds of requests for them.
#[derive(Clone, Debug)]
pub(crate) struct BatchHistory {
    pub(crate) start: Timestamp,
    pub(crate) rules: Vec<HistoryRule>,
    pub(crate) rounds: Vec<HistoryRound>,
}

/// A rule and its later versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryRule {
    pub(crate) versions: [Policy; 3],
    pub(crate) grace: Option<Policy>,
    pub(crate) ban: Option<BanPolicy>,
    pub(crate) role: Role,
}

/// The events of one instant.
#[derive(Clone, Debug)]
pub(crate) struct HistoryRound {
    /// The rule that determines the time step; `edited` changes it first.
    pub(crate) leader: usize,
    pub(crate) edited: bool,
    /// Whether the clock steps back before.
    pub(crate) back: Option<ClockStepBack>,
    pub(crate) requests: Vec<RoundRequest>,
}

/// How far the clock steps back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClockStepBack {
    Micros(u64),
    /// Sixteenths of the leader's window.
    WindowPart(u64),
    Day,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundRequest {
    pub(crate) step: CounterStep,
    /// The rules that apply, as a bit mask; 0 means all.
    pub(crate) rules: u8,
    pub(crate) key: usize,
    /// Whether it comes from a node that still has the old rules.
    pub(crate) stale_rules: bool,
}

/// A store that decides the requests of one instant.
pub(crate) trait BatchStore {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError>;
}

impl BatchStore for &RedisFixture {
    fn decide(
        &mut self,
        now: Timestamp,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Vec<Reading>>, TestCaseError> {
        self.clock.set(now);
        let reply = self.try_apply_batch(requests);
        reply.map_err(|error| TestCaseError::fail(format!("{error}: {requests:?}")))
    }
}

impl BatchHistory {
    /// Plays the history on two stores, which must agree. Returns the number of requests.
    pub(crate) fn check_equal(
        &self,
        number: u64,
        one: &mut impl BatchStore,
        other: &mut impl BatchStore,
    ) -> Result<u64, TestCaseError> {
        let mut play = HistoryPlayer::new(self, number);
        let mut count = 0;
        for round in &self.rounds {
            play.step_clock_back(round);
            play.advance(round);
            let requests = play.requests(&round.requests);
            count += requests.len() as u64;
            let reply = decide_both(play.now, &requests, one, other)?;
            play.record_answers(&round.requests, &reply);
        }
        // Compare the state after the last write.
        let all = play.peek_requests();
        decide_both(play.now, &all, one, other)?;
        Ok(count + all.len() as u64)
    }
}

fn decide_both(
    now: Timestamp,
    requests: &[StoreRequest<'_>],
    one: &mut impl BatchStore,
    other: &mut impl BatchStore,
) -> Result<Vec<Vec<Reading>>, TestCaseError> {
    let (reply, expected) = (other.decide(now, requests)?, one.decide(now, requests)?);
    for (i, (reply, expected)) in reply.iter().zip(&expected).enumerate() {
        prop_assert_eq!(reply, expected, "request {} of {:?}", i, requests);
    }
    prop_assert_eq!(reply.len(), requests.len());
    Ok(expected)
}

/// The state of a history while it is played.
pub(crate) struct HistoryPlayer<'a> {
    rules: &'a [HistoryRule],
    number: u64,
    pub(crate) now: Timestamp,
    versions: Vec<usize>,
    pub(crate) policies: Vec<Policy>,
    old_policies: Vec<Policy>,
    last: Vec<[Reading; KEYS]>,
    charged: Vec<Timestamp>,
}

impl<'a> HistoryPlayer<'a> {
    pub(crate) fn new(history: &'a BatchHistory, number: u64) -> Self {
        let policies: Vec<Policy> = history.rules.iter().map(|rule| rule.versions[0]).collect();
        let untouched = |policy: &Policy| {
            let now = history.start;
            [Reading { remaining: policy.limit(), now, ..Reading::default() }; KEYS]
        };
        Self {
            rules: &history.rules,
            number,
            now: history.start,
            versions: vec![0; history.rules.len()],
            last: policies.iter().map(untouched).collect(),
            old_policies: policies.clone(),
            policies,
            charged: vec![history.start],
        }
    }

    /// Steps the clock back, if the round requires it.
    pub(crate) fn step_clock_back(&mut self, round: &HistoryRound) {
        let window = self.policies[round.leader % self.rules.len()].quota().window.get();
        self.now = self.now.minus(Micros::new(match round.back {
            None => 0,
            Some(ClockStepBack::Micros(micros)) => micros,
            Some(ClockStepBack::WindowPart(sixteenths)) => {
                (window / 16).saturating_mul(sixteenths).max(1)
            }
            Some(ClockStepBack::Day) => 86_400_000_000,
        }));
    }

    /// Advances the time, and may change a rule.
    pub(crate) fn advance(&mut self, round: &HistoryRound) {
        let leader = round.leader % self.rules.len();
        let first = &round.requests[0];
        let hop = first.step.time_step;
        let then = hop.advance(&self.policies[leader], &self.last[leader][first.key], self.now);
        if then < HISTORY_END {
            self.now = then;
        }
        if round.edited {
            let rule = &self.rules[leader];
            self.versions[leader] = (self.versions[leader] + 1) % rule.versions.len();
            let policy = rule.versions[self.versions[leader]].with_effective_since(self.now);
            self.old_policies[leader] = std::mem::replace(&mut self.policies[leader], policy);
        }
    }

    pub(crate) fn requests(&self, requests: &[RoundRequest]) -> Vec<StoreRequest<'_>> {
        requests.iter().map(|request| self.request(request)).collect()
    }

    fn request(&self, request: &RoundRequest) -> StoreRequest<'_> {
        let charges = self.governing(request).map(|i| {
            let policies = if request.stale_rules { &self.old_policies } else { &self.policies };
            let cost = request.step.cost.resolve(&policies[i], &self.last[i][request.key]);
            Charge { cost, ..self.charge(i, request.key, &policies[i]) }
        });
        let window = || self.policies[0].quota().window.get();
        let op = match request.step.action {
            StepAction::Charge => Op::Charge,
            StepAction::Peek => Op::Peek,
            StepAction::Force => Op::Force,
            StepAction::Reset => Op::Reset,
            StepAction::Grant(terms) => Op::Grant(terms),
            StepAction::Refund(back) => {
                let place = self.charged.len().saturating_sub(1 + back);
                Op::Refund { charged_at: self.charged[place] }
            }
            StepAction::Renew(back) => {
                let place = self.charged.len().saturating_sub(1 + back);
                Op::Renew { charged_at: self.charged[place] }
            }
            StepAction::RefundUnknown(eighths) => {
                Op::Refund { charged_at: self.now.minus(Micros::new(window() / 8 * eighths)) }
            }
        };
        StoreRequest { op, charges: charges.collect() }
    }

    fn governing(&self, request: &RoundRequest) -> impl Iterator<Item = usize> {
        let rules = request.rules;
        let some = (0..self.rules.len()).any(|i| rules >> i & 1 == 1);
        (0..self.rules.len()).filter(move |i| !some || rules >> i & 1 == 1)
    }

    pub(crate) fn charge<'b>(&'b self, i: usize, key: usize, policy: &'b Policy) -> Charge<'b> {
        // In every second history, the counters of one owner share a page.
        let namespace = Fingerprint { hi: TAGS[i] * (self.number % 2), lo: 0 };
        let lo = if self.number.is_multiple_of(2) { i * KEYS + key } else { key } as u64;
        let fingerprint = Fingerprint { hi: self.number << 8, lo } ^ namespace;
        let rule = &self.rules[i];
        Charge {
            role: rule.role,
            grace: rule.grace.as_ref(),
            ban: rule.ban.as_ref(),
            ..Charge::plain(
                Key { namespace, ..Key::without_namespace(NAMES[i], fingerprint) },
                policy,
                1,
            )
        }
    }

    pub(crate) fn record_answers(&mut self, requests: &[RoundRequest], replies: &[Vec<Reading>]) {
        for (request, readings) in requests.iter().zip(replies) {
            if matches!(
                request.step.action,
                StepAction::Charge
                    | StepAction::Force
                    | StepAction::Renew(_)
                    | StepAction::Grant(_)
            ) {
                self.charged.push(self.now);
            }
            for (i, reading) in self.governing(request).zip(readings).collect::<Vec<_>>() {
                self.last[i][request.key] = *reading;
            }
        }
    }

    /// Requests that peek at every key.
    pub(crate) fn peek_requests(&self) -> Vec<StoreRequest<'_>> {
        let every = (0..self.rules.len()).flat_map(|i| (0..KEYS).map(move |key| (i, key)));
        let look =
            |(i, key)| StoreRequest::single(Op::Peek, self.charge(i, key, &self.policies[i]));
        every.map(look).collect()
    }
}

/// Histories of up to `rounds` instants with up to `most` requests each.
pub(crate) fn batch_histories(
    algorithms: &'static [Algorithm],
    rounds: usize,
    most: usize,
) -> impl Strategy<Value = BatchHistory> {
    let rules = prop::collection::vec(rules(algorithms), 1..=NAMES.len());
    let request = (counter_steps(), 0_u8..8, 0_usize..KEYS, 0_u8..16);
    let request = request.prop_map(|(step, rules, key, late)| RoundRequest {
        step,
        rules,
        key,
        stale_rules: late == 0,
    });
    let requests = prop::collection::vec(request, 1..=most);
    let round = (0_usize..NAMES.len(), 0_u8..8, requests);
    let round = round.prop_map(|(leader, edit, requests)| {
        let (edited, back) = (edit == 0, None);
        HistoryRound { leader, edited, back, requests }
    });
    let start = prop_oneof![
        1 => Just(0_u64),
        1 => Just(1_699_920_000_000_000),
        6 => 1_600_000_000_000_000_u64..2_000_000_000_000_000,
    ];
    (start, rules, prop::collection::vec(round, 1..=rounds)).prop_map(|(start, rules, rounds)| {
        BatchHistory { start: Timestamp::from_micros(start), rules, rounds }
    })
}

/// Adds clock steps back to histories. Rules are not edited, because an edit whose effective time
/// lies in the future tests something other than the clock.
pub(crate) fn with_clock_steps_back(
    histories: impl Strategy<Value = BatchHistory>,
) -> impl Strategy<Value = BatchHistory> {
    let back = prop_oneof![
        (1_u64..40).prop_map(ClockStepBack::Micros),
        (1_u64..40).prop_map(ClockStepBack::WindowPart),
        Just(ClockStepBack::Day),
    ];
    let backs = prop::collection::vec(proptest::option::weighted(0.4, back), 8);
    (histories, backs).prop_map(|(mut history, backs)| {
        // Keep times after the epoch.
        history.start = history.start.max(Timestamp::from_micros(1_600_000_000_000_000));
        history.rounds.iter_mut().for_each(|round| round.edited = false);
        for (round, back) in history.rounds.iter_mut().zip(backs) {
            round.back = back;
        }
        history
    })
}

fn rules(algorithms: &'static [Algorithm]) -> impl Strategy<Value = HistoryRule> {
    let edits = [(0_u8..6, any::<u64>()), (0_u8..6, any::<u64>())];
    let numbers = (1_u64..3, 1_u64..2_000_000);
    let grace = proptest::option::weighted(0.3, (prop::sample::select(algorithms), numbers));
    let ban = (1_u32..4, 1_u64..3_000_000, 1_u64..2_000_000, 1_u32..4);
    let ban = proptest::option::weighted(0.3, ban);
    (policies(algorithms), edits, grace, ban, 0_u8..8).prop_map(
        |(first, edits, grace, ban, role)| {
            let [second, third] = edits.map(|(kind, raw)| edit(&first, kind, raw));
            let grace = grace.map(|(algorithm, (requests, window))| {
                let quota = Quota::new(requests, Micros::new(window));
                Policy::new(algorithm, quota).expect("small numbers")
            });
            let ban = ban.map(|(after, within, lasts, factor)| {
                let (within, lasts) = (Micros::new(within), Micros::new(lasts));
                BanPolicy::new(after, within, lasts, factor, Micros::from_secs(5))
            });
            let role = match role {
                0..=5 => Role::Enforce,
                6 => Role::Shadow,
                _ => Role::Always,
            };
            HistoryRule { versions: [first, second, third], grace, ban, role }
        },
    )
}

/// Policies with small limits, which are reached soon, or arbitrary ones.
fn policies(algorithms: &'static [Algorithm]) -> impl Strategy<Value = Policy> {
    let windows = prop::sample::select(&[977_u64, 100_000, 1_000_000, 3_600_000_000][..]);
    (prop::sample::select(algorithms), any::<bool>(), 1_u64..30, windows).prop_flat_map(
        |(algorithm, small, requests, window)| {
            let quota = Quota::new(requests, Micros::new(window));
            if small {
                Just(Policy::new(algorithm, quota).expect("small numbers")).boxed()
            } else {
                any_policies(algorithm).boxed()
            }
        },
    )
}

/// The same counter with another limit.
fn edit(policy: &Policy, kind: u8, raw: u64) -> Policy {
    let Quota { requests, window, burst } = *policy.quota();
    let other = |number: u64| match kind {
        0 => number / 2,
        1 => number.saturating_mul(2),
        2 => number + 1,
        3 => 1,
        4 => 1 + raw % 30,
        _ => number,
    };
    let burst =
        if kind == 5 && policy.algorithm().is_bucket() { Some(1 + raw % 60) } else { burst };
    let quota = Quota { requests: other(requests), window, burst };
    Policy::new(policy.algorithm(), quota).unwrap_or(*policy)
}
