//! Logs each decision, with `--log-level debug`.

use std::fmt;

use tidegate_core::time::{Clock as _, SystemClock};
use tidegate_limiter::{DecisionEvent, DecisionObserver};
use tidegate_memory::FastClock;

use crate::telemetry::{DecisionLine, ServerEvent};

/// Writes a log line for each counter of each decision.
pub(crate) struct DecisionLog {
    /// The clock that timed the decisions.
    timer: FastClock,
}

impl DecisionLog {
    pub(crate) const fn new(timer: FastClock) -> Self {
        Self { timer }
    }
}

impl DecisionObserver for DecisionLog {
    fn on_decision(&self, decided: &DecisionEvent<'_, '_>) {
        // Read in this order, so that the decision was made within `took` before `at`.
        let at = SystemClock::new().now();
        let took = decided.started.map(|started| self.timer.now().since(started));
        let DecisionEvent { rules, facts, answered_by, .. } = *decided;
        let allowed = !decided.readings().any(|(_, reading)| reading.verdict.refuses());
        for counter in decided.counters() {
            ServerEvent::Decision(DecisionLine {
                rule: rules[counter.reading.rule].id(),
                key: rules.has_shareable_keys().then(|| counter.key.to_hex()),
                api: facts.api(),
                reading: counter.reading,
                cost: counter.cost,
                allowed,
                answered_by,
                at,
                took,
            })
            .log();
        }
    }
}

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionLog(..)")
    }
}
