//! Callers that cannot hold a request: a queueing rule refuses what it would delay, and the delay
//! becomes the retry time.

use proptest::test_runner::TestCaseError;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_core::key::{Fingerprint, Key};
use tidegate_core::policy::{Algorithm, LeakMode};
use tidegate_core::store::{Charge, Op, QueueMode};
use tidegate_core::time::Micros;
use tidegate_testkit::history::{CounterHistory, charges_only};
use tidegate_testkit::property::{cases, check_property};
use tidegate_testkit::quotas;
use tidegate_testkit::state_table::StateTable;

const KEY: Key<'static> = Key::without_namespace("law", Fingerprint { hi: 1, lo: 2 });

#[test]
fn refusing_queue_reports_its_delay_as_wait() {
    let algorithm = Algorithm::LeakyBucket(LeakMode::Queue);
    let strategy = (quotas::exact_policies(algorithm), charges_only(12));
    check_property("refusing_queue", cases(), &strategy, |(policy, history)| {
        let CounterHistory { start, steps } = history;
        let (mut table, mut now) = (StateTable::default(), start);
        let mut last = table.apply_one(Op::Peek, &Charge::plain(KEY, &policy, 1), now);
        for step in steps {
            now = step.time_step.advance(&policy, &last, now);
            let holding = Charge::plain(KEY, &policy, step.cost.resolve(&policy, &last));
            let refusing = Charge { queue: QueueMode::Refuse, ..holding };
            let (held, refused) = (
                table.apply_one(Op::Peek, &holding, now),
                table.apply_one(Op::Peek, &refusing, now),
            );
            if held.verdict == Verdict::Allow && held.delay > Micros::ZERO {
                let expected = (Verdict::Deny, Retry::After(held.delay), Micros::ZERO);
                let actual = (refused.verdict, refused.retry, refused.delay);
                proptest::prop_assert_eq!(actual, expected);
                let then = now.plus(held.delay);
                let passes = |at| table.clone().apply_one(Op::Charge, &refusing, at).verdict;
                proptest::prop_assert_eq!(passes(then), Verdict::Allow);
                proptest::prop_assert_eq!(passes(then.minus(Micros::new(1))), Verdict::Deny);
            } else {
                proptest::prop_assert_eq!(refused, held, "nothing to wait for");
            }
            last = table.apply_one(Op::Charge, &holding, now);
        }
        Ok::<(), TestCaseError>(())
    });
}
