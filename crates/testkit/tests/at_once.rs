//! A queue to somebody who cannot be made to wait: what it would have let pass after a delay is refused
//! with that delay for a wait, and what it would have let pass at once passes.

use proptest::prelude::*;
use tidegate_core::algorithm::{Fit, State};
use tidegate_core::policy::{Algorithm, Leak, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::{cases, holds};

#[test]
fn what_would_have_to_wait_is_refused_for_as_long() {
    let quotas = (1_u64..1_000, 1_u64..90_000_000, 1_u64..2_000);
    let steps = prop::collection::vec((0_u64..20_000_000, 1_u64..6), 1..40);
    holds("at_once", cases() / 4, &(quotas, steps), |((requests, window, burst), steps)| {
        let quota = Quota::new(requests, Micros::new(window)).with_burst(burst);
        let queue = Policy::new(Algorithm::LeakyBucket(Leak::Queue), quota).expect("countable");
        let mut now = Timestamp::from_micros(1_700_000_000_000_000);
        let mut state: Option<State> = None;
        for (wait, cost) in steps {
            now = now.plus(Micros::new(wait % (2 * window / requests + 2)));
            let held = queue.fit(state.as_ref(), cost, now);
            let at_once = queue.at_once(cost).expect("a queue");
            let told = at_once.fit(state.as_ref(), cost, now);
            match held {
                Fit::Now { delay: Micros::ZERO } => prop_assert_eq!(told, Fit::NOW),
                Fit::Now { delay } => prop_assert_eq!(told, Fit::After(delay)),
                // Not even the queue has room: the wait is for all that is in it.
                Fit::After(room) => prop_assert!(matches!(told, Fit::After(w) if w >= room)),
                Fit::Never => prop_assert_eq!(told, Fit::Never),
            }
            // Both go on from the same level, whoever charges.
            if told.is_now() {
                let mut other = state.clone();
                at_once.charge(&mut other, cost, now);
                queue.charge(&mut state, cost, now);
                prop_assert_eq!(&other, &state);
            } else if held.is_now() {
                queue.charge(&mut state, cost, now);
            }
        }
        Ok(())
    });
}

#[test]
fn what_does_not_queue_has_no_such_form() {
    let quota = Quota::new(5, Micros::from_secs(1));
    for algorithm in Algorithm::ALL {
        assert_eq!(Policy::new(algorithm, quota).expect("a policy").at_once(1), None);
    }
}
