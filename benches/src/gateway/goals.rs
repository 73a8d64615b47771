//! What is to be reached, and whether it is. Ratios are taken within each round, in which the machine is
//! most alike for everybody; their median is told.

use super::Turn;
use super::contender::Who;
use crate::report::{Table, median};

/// The turns of everybody who was measured, round by round.
pub type Rounds = [(Who, Vec<Turn>)];

/// A goal that holds two contenders against each other.
struct Goal {
    text: &'static str,
    ours: Who,
    theirs: Who,
    asks: Asks,
}

/// What is asked of a ratio. By processor time it is theirs over ours for speed, ours over theirs
/// for cost; by throughput the other way round.
#[derive(Clone, Copy)]
enum Asks {
    Speed { at_least: f64 },
    Cost { at_most: f64 },
}

const GOALS: [Goal; 5] = [
    Goal {
        text: "three rules / bare hyper proxy ≥ 0.9",
        ours: Who::ThreeRules,
        theirs: Who::BareProxy,
        asks: Asks::Speed { at_least: 0.9 },
    },
    Goal {
        text: "three rules / nginx + limit_req ≥ 0.65",
        ours: Who::ThreeRules,
        theirs: Who::Nginx,
        asks: Asks::Speed { at_least: 0.65 },
    },
    Goal {
        text: "three rules / Envoy + local rate limit ≥ 1.8",
        ours: Who::ThreeRules,
        theirs: Who::Envoy,
        asks: Asks::Speed { at_least: 1.8 },
    },
    Goal {
        text: "cost of three rules / of none ≤ 1.05",
        ours: Who::ThreeRules,
        theirs: Who::NoRule,
        asks: Asks::Cost { at_most: 1.05 },
    },
    Goal {
        text: "cost of a refusal / of a proxied request with three rules ≤ 0.5",
        ours: Who::Refusing,
        theirs: Who::ThreeRules,
        asks: Asks::Cost { at_most: 0.5 },
    },
];

/// The most that the gateway may add to the p99 at the fixed rate.
const MAX_ADDED_P99_US: f64 = 1_000.0;

/// The table of goals.
#[must_use]
pub fn table(rounds: &Rounds) -> Table {
    let mut table = Table::new(&["goal", "by throughput", "by CPU a request"]);
    for goal in &GOALS {
        let cells = [|turn: &Turn| turn.per_second, |turn: &Turn| 1.0 / turn.cpu_us]
            .map(|speed| goal.judge(rounds, speed));
        table.row(&[vec![goal.text.to_owned()], cells.to_vec()].concat());
    }
    let added = ratios(rounds, Who::ThreeRules, Who::Direct, |ours, direct| {
        ours.paced.p99 - direct.paced.p99
    });
    let cell = added.map_or(ABSENT.to_owned(), |added| {
        format!("{} (p99 {added:+.0} µs)", verdict(added <= MAX_ADDED_P99_US))
    });
    table.row(&["three rules add ≤ 1 ms to the p99 at 5 000/s".to_owned(), cell, String::new()]);
    table
}

const ABSENT: &str = "not measured";

impl Goal {
    fn judge(&self, rounds: &Rounds, speed: impl Fn(&Turn) -> f64) -> String {
        let Some(ratio) =
            ratios(rounds, self.ours, self.theirs, |ours, theirs| speed(ours) / speed(theirs))
        else {
            return ABSENT.to_owned();
        };
        let (told, reached) = match self.asks {
            Asks::Speed { at_least } => (ratio, ratio >= at_least),
            Asks::Cost { at_most } => (1.0 / ratio, 1.0 / ratio <= at_most),
        };
        format!("{} ({told:.2})", verdict(reached))
    }
}

const fn verdict(reached: bool) -> &'static str {
    if reached { "yes" } else { "**no**" }
}

/// The median over rounds of something that is told of two turns of the same round.
fn ratios(
    rounds: &Rounds,
    ours: Who,
    theirs: Who,
    tell: impl Fn(&Turn, &Turn) -> f64,
) -> Option<f64> {
    let turns = |who| rounds.iter().find(|(known, _)| *known == who).map(|(_, turns)| turns);
    let pairs = turns(ours)?.iter().zip(turns(theirs)?);
    Some(median(&pairs.map(|(ours, theirs)| tell(ours, theirs)).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Latencies;

    fn turn(per_second: f64, cpu_us: f64, p99: f64) -> Turn {
        let latencies = Latencies { p50: 0.0, p99 };
        Turn { per_second, cpu_us, full: latencies, paced: latencies }
    }

    #[test]
    fn goals_are_judged_by_throughput_and_by_processor_time() {
        let rounds = [
            (Who::Direct, vec![turn(100.0, 5.0, 100.0)]),
            (Who::BareProxy, vec![turn(40.0, 20.0, 0.0)]),
            (Who::ThreeRules, vec![turn(38.0, 25.0, 1_200.0)]),
            (Who::Refusing, vec![turn(76.0, 13.0, 0.0)]),
        ];
        let told = table(&rounds).to_string();
        for line in [
            "| three rules / bare hyper proxy ≥ 0.9 | yes (0.95) | **no** (0.80) |",
            "| three rules / nginx + limit_req ≥ 0.65 | not measured | not measured |",
            "≤ 0.5 | yes (0.50) | **no** (0.52) |",
            "**no** (p99 +1100 µs)",
        ] {
            assert!(told.contains(line), "{line}\n{told}");
        }
    }
}
