//! When the store does not answer: each rule's own word for it.

use tidegate_core::decision::{Reading, Retry, Verdict};
use tidegate_core::store::{Charge, Role};
use tidegate_core::time::Micros;
use tidegate_rules::OnFail;

/// How long a client that is refused for want of a store is asked to wait.
const COME_BACK: Micros = Micros::from_secs(1);

/// What a rule says to a charge that the store did not answer.
pub(crate) fn reading(on_fail: OnFail, charge: &Charge<'_>) -> Reading {
    let limit = charge.policy.limit();
    let told = Reading { limit, remaining: limit, ..Reading::default() };
    match (on_fail, charge.role) {
        (OnFail::Deny, Role::Enforce | Role::Always) => {
            Reading { verdict: Verdict::Deny, remaining: 0, retry: Retry::After(COME_BACK), ..told }
        }
        _ => told,
    }
}
