//! The performance goals, and whether a run reached them.
//!
//! Ratios are taken within a round, where all contenders ran under the most similar conditions. The
//! table shows the median ratio, and the ratio of the best turns, because a disturbance only ever
//! makes a turn slower.
//!
//! Under full load, the processes on the other end of a slower contender's loopback connections
//! fall asleep more often, and the contender pays for waking them. At the fixed rate, all
//! contenders do the same work.

use super::GatewayTurn;
use super::contender::ContenderKind;
use crate::report::{MarkdownTable, median};

/// The turns of one contender, one per round.
#[derive(Debug)]
pub struct ContenderTurns {
    /// The contender.
    pub kind: ContenderKind,
    /// Under full load.
    pub full: Vec<GatewayTurn>,
    /// At the fixed rate.
    pub paced: Vec<GatewayTurn>,
}

/// Selects the turns under full load or those at the fixed rate.
type TurnSelector = fn(&ContenderTurns) -> &[GatewayTurn];

/// A contender's best speed is the mean over this many of its fastest turns.
const BEST_TURNS: usize = 3;

/// A goal that compares two contenders.
struct GatewayGoal {
    text: &'static str,
    ours: ContenderKind,
    competitor: ContenderKind,
    bound: GoalBound,
}

/// Bound on the ratio between two contenders. Speed is requests per second, or the inverse of CPU
/// time per request. Cost is the inverse of speed.
#[derive(Clone, Copy)]
enum GoalBound {
    Speed { at_least: f64 },
    Cost { at_most: f64 },
}

const GOALS: [GatewayGoal; 5] = [
    GatewayGoal {
        text: "three rules / bare hyper proxy ≥ 0.9",
        ours: ContenderKind::ThreeRules,
        competitor: ContenderKind::BareProxy,
        bound: GoalBound::Speed { at_least: 0.9 },
    },
    GatewayGoal {
        text: "three rules / nginx + limit_req ≥ 0.65",
        ours: ContenderKind::ThreeRules,
        competitor: ContenderKind::Nginx,
        bound: GoalBound::Speed { at_least: 0.65 },
    },
    GatewayGoal {
        text: "three rules / Envoy + local rate limit ≥ 1.8",
        ours: ContenderKind::ThreeRules,
        competitor: ContenderKind::Envoy,
        bound: GoalBound::Speed { at_least: 1.8 },
    },
    GatewayGoal {
        text: "cost of three rules / cost of no rule ≤ 1.05",
        ours: ContenderKind::ThreeRules,
        competitor: ContenderKind::NoRule,
        bound: GoalBound::Cost { at_most: 1.05 },
    },
    GatewayGoal {
        text: "cost of a refusal / cost of a proxied request with three rules ≤ 0.5",
        ours: ContenderKind::Refusing,
        competitor: ContenderKind::ThreeRules,
        bound: GoalBound::Cost { at_most: 0.5 },
    },
];

/// Maximum latency that the gateway may add to the p99 at the fixed rate.
const MAX_ADDED_P99_US: f64 = 1_000.0;

/// Builds the table of goals.
#[must_use]
pub fn goals_table(measured: &[ContenderTurns]) -> MarkdownTable {
    let mut table = MarkdownTable::new(&[
        "goal",
        "by throughput",
        "by CPU per request",
        "best turns: by throughput",
        "best turns: by CPU per request",
        "at 5 000/s: by CPU per request",
    ]);
    for goal in &GOALS {
        let by_cpu = |turn: &GatewayTurn| 1.0 / turn.cpu_us;
        let speeds = [|turn: &GatewayTurn| turn.per_second, by_cpu];
        let full: TurnSelector = |measured| &measured.full;
        let mut row = vec![goal.text.to_owned()];
        let rounds = |speed| {
            move |ours: &[GatewayTurn], theirs: &[GatewayTurn]| median_ratio(ours, theirs, speed)
        };
        row.extend(speeds.map(|speed| goal.evaluate(measured, full, rounds(speed))));
        row.extend(speeds.map(|speed| {
            goal.evaluate(measured, full, |ours, theirs| {
                best_speed(ours, speed) / best_speed(theirs, speed)
            })
        }));
        row.push(goal.evaluate(measured, |measured| &measured.paced, rounds(by_cpu)));
        table.push_row(&row);
    }
    let paced = |kind| Some(&measured.iter().find(|measured| measured.kind == kind)?.paced);
    let cell = match paced(ContenderKind::ThreeRules).zip(paced(ContenderKind::Direct)) {
        Some((ours, direct)) => {
            let added = added_latency(ours, direct, |turn| turn.latencies.p99);
            format!("{} (p99 {added:+.0} µs)", verdict(added <= MAX_ADDED_P99_US))
        }
        None => NOT_MEASURED.to_owned(),
    };
    let mut row = vec!["three rules add ≤ 1 ms to the p99 at 5 000/s".to_owned(), cell];
    row.resize(6, String::new());
    table.push_row(&row);
    table
}

/// The median over rounds of the latency that a proxy adds to direct requests.
#[must_use]
pub fn added_latency(
    ours: &[GatewayTurn],
    direct: &[GatewayTurn],
    latency: fn(&GatewayTurn) -> f64,
) -> f64 {
    let pairs = ours.iter().zip(direct).map(|(ours, direct)| latency(ours) - latency(direct));
    median(&pairs.collect::<Vec<_>>())
}

const NOT_MEASURED: &str = "not measured";

impl GatewayGoal {
    /// Evaluates the goal by a ratio of two speeds and formats the table cell.
    fn evaluate(
        &self,
        measured: &[ContenderTurns],
        turns: TurnSelector,
        ratio: impl Fn(&[GatewayTurn], &[GatewayTurn]) -> f64,
    ) -> String {
        let turns_of = |kind| measured.iter().find(|measured| measured.kind == kind).map(turns);
        let Some((ours, theirs)) = turns_of(self.ours).zip(turns_of(self.competitor)) else {
            return NOT_MEASURED.to_owned();
        };
        let ratio = ratio(ours, theirs);
        let (value, reached) = match self.bound {
            GoalBound::Speed { at_least } => (ratio, ratio >= at_least),
            GoalBound::Cost { at_most } => (1.0 / ratio, 1.0 / ratio <= at_most),
        };
        format!("{} ({value:.2})", verdict(reached))
    }
}

const fn verdict(reached: bool) -> &'static str {
    if reached { "yes" } else { "**no**" }
}

/// The median over rounds of our speed relative to theirs.
fn median_ratio(
    ours: &[GatewayTurn],
    theirs: &[GatewayTurn],
    speed: fn(&GatewayTurn) -> f64,
) -> f64 {
    let pairs = ours.iter().zip(theirs).map(|(ours, theirs)| speed(ours) / speed(theirs));
    median(&pairs.collect::<Vec<_>>())
}

/// A contender's best speed: the mean of its fastest turns.
fn best_speed(turns: &[GatewayTurn], speed: fn(&GatewayTurn) -> f64) -> f64 {
    let mut speeds: Vec<f64> = turns.iter().map(speed).collect();
    speeds.sort_by(|a, b| b.total_cmp(a));
    speeds.truncate(BEST_TURNS);
    speeds.iter().sum::<f64>() / speeds.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Latencies;

    fn contender_turns(kind: ContenderKind, turns: &[(f64, f64)], p99: f64) -> ContenderTurns {
        let latencies = Latencies { p50: 0.0, p99 };
        let turn = |(per_second, cpu_us): &(f64, f64)| GatewayTurn {
            per_second: *per_second,
            cpu_us: *cpu_us,
            latencies,
        };
        let full: Vec<GatewayTurn> = turns.iter().map(turn).collect();
        ContenderTurns { kind, paced: full.clone(), full }
    }

    #[test]
    fn goals_use_throughput_and_cpu_time() {
        let table = goals_table(&[
            contender_turns(ContenderKind::Direct, &[(100.0, 5.0)], 100.0),
            contender_turns(ContenderKind::BareProxy, &[(40.0, 20.0)], 0.0),
            contender_turns(ContenderKind::ThreeRules, &[(38.0, 25.0)], 1_200.0),
            contender_turns(ContenderKind::Refusing, &[(76.0, 13.0)], 0.0),
        ]);
        let table = table.to_string();
        for line in [
            "| three rules / bare hyper proxy ≥ 0.9 | yes (0.95) | **no** (0.80) | yes (0.95) | **no** (0.80) | **no** (0.80) |",
            "| three rules / nginx + limit_req ≥ 0.65 | not measured |",
            "≤ 0.5 | yes (0.50) | **no** (0.52) |",
            "**no** (p99 +1100 µs)",
        ] {
            assert!(table.contains(line), "{line}\n{table}");
        }
    }

    #[test]
    fn disturbed_turn_is_not_among_best() {
        let undisturbed = [(40.0, 20.0); 4];
        let mut disturbed = undisturbed;
        (disturbed[0], disturbed[1], disturbed[3]) = ((20.0, 30.0), (32.0, 25.0), (44.0, 20.0));
        let table = goals_table(&[
            contender_turns(ContenderKind::BareProxy, &undisturbed, 0.0),
            contender_turns(ContenderKind::ThreeRules, &disturbed[..3], 0.0),
        ]);
        assert!(
            table.to_string().contains(
                "| **no** (0.80) | **no** (0.80) | **no** (0.77) | **no** (0.82) | **no** (0.80) |"
            ),
            "{table}"
        );
        let table = goals_table(&[
            contender_turns(ContenderKind::BareProxy, &undisturbed, 0.0),
            contender_turns(ContenderKind::ThreeRules, &[disturbed, undisturbed].concat(), 0.0),
        ]);
        assert!(
            table
                .to_string()
                .contains("| yes (1.00) | yes (1.00) | yes (1.03) | yes (1.00) | yes (1.00) |"),
            "{table}"
        );
    }
}
