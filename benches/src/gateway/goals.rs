//! What is to be reached, and whether it is. Ratios are taken within each round, in which the machine is
//! most alike for everybody, and their median is told; beside it the ratio of everybody's best turns, because
//! what disturbs a turn only ever makes it slower. At the fixed rate everybody does the same work: under full load whoever is
//! slower leaves its neighbours on loopback idle, and has to wake them more often.

use super::Turn;
use super::contender::Who;
use crate::report::{Table, median};

/// The turns of one of those who were measured, round by round.
#[derive(Debug)]
pub struct Measured {
    /// Who it is.
    pub who: Who,
    /// Under full load.
    pub full: Vec<Turn>,
    /// At the fixed rate.
    pub paced: Vec<Turn>,
}

/// Which of the turns count.
type Turns = fn(&Measured) -> &[Turn];

/// Of so many turns the mean counts as somebody's best.
const BEST: usize = 3;

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
pub fn table(measured: &[Measured]) -> Table {
    let mut table = Table::new(&[
        "goal",
        "by throughput",
        "by CPU a request",
        "best turns: by throughput",
        "by CPU a request",
        "at 5 000/s: by CPU a request",
    ]);
    for goal in &GOALS {
        let by_cpu = |turn: &Turn| 1.0 / turn.cpu_us;
        let speeds = [|turn: &Turn| turn.per_second, by_cpu];
        let full: Turns = |measured| &measured.full;
        let mut row = vec![goal.text.to_owned()];
        let rounds =
            |speed| move |ours: &[Turn], theirs: &[Turn]| median_ratio(ours, theirs, speed);
        row.extend(speeds.map(|speed| goal.judge(measured, full, rounds(speed))));
        row.extend(speeds.map(|speed| {
            goal.judge(measured, full, |ours, theirs| best(ours, speed) / best(theirs, speed))
        }));
        row.push(goal.judge(measured, |measured| &measured.paced, rounds(by_cpu)));
        table.row(&row);
    }
    let paced = |who| Some(&measured.iter().find(|measured| measured.who == who)?.paced);
    let cell = match paced(Who::ThreeRules).zip(paced(Who::Direct)) {
        Some((ours, direct)) => {
            let added = added(ours, direct, |turn| turn.latencies.p99);
            format!("{} (p99 {added:+.0} µs)", verdict(added <= MAX_ADDED_P99_US))
        }
        None => ABSENT.to_owned(),
    };
    let mut row = vec!["three rules add ≤ 1 ms to the p99 at 5 000/s".to_owned(), cell];
    row.resize(6, String::new());
    table.row(&row);
    table
}

/// The median over rounds of what somebody adds to the latency of whoever is asked directly.
#[must_use]
pub fn added(ours: &[Turn], direct: &[Turn], tell: fn(&Turn) -> f64) -> f64 {
    let pairs = ours.iter().zip(direct).map(|(ours, direct)| tell(ours) - tell(direct));
    median(&pairs.collect::<Vec<_>>())
}

const ABSENT: &str = "not measured";

impl Goal {
    /// How the goal fares by a ratio of two speeds.
    fn judge(
        &self,
        measured: &[Measured],
        turns: Turns,
        ratio: impl Fn(&[Turn], &[Turn]) -> f64,
    ) -> String {
        let of = |who| measured.iter().find(|measured| measured.who == who).map(turns);
        let Some((ours, theirs)) = of(self.ours).zip(of(self.theirs)) else {
            return ABSENT.to_owned();
        };
        let ratio = ratio(ours, theirs);
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

/// The median over rounds of how much faster we are.
fn median_ratio(ours: &[Turn], theirs: &[Turn], speed: fn(&Turn) -> f64) -> f64 {
    let pairs = ours.iter().zip(theirs).map(|(ours, theirs)| speed(ours) / speed(theirs));
    median(&pairs.collect::<Vec<_>>())
}

/// How fast somebody was at best.
fn best(turns: &[Turn], speed: fn(&Turn) -> f64) -> f64 {
    let mut speeds: Vec<f64> = turns.iter().map(speed).collect();
    speeds.sort_by(|a, b| b.total_cmp(a));
    speeds.truncate(BEST);
    speeds.iter().sum::<f64>() / speeds.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Latencies;

    fn measured(who: Who, turns: &[(f64, f64)], p99: f64) -> Measured {
        let latencies = Latencies { p50: 0.0, p99 };
        let turn = |(per_second, cpu_us): &(f64, f64)| Turn {
            per_second: *per_second,
            cpu_us: *cpu_us,
            latencies,
        };
        let full: Vec<Turn> = turns.iter().map(turn).collect();
        Measured { who, paced: full.clone(), full }
    }

    #[test]
    fn goals_are_judged_by_throughput_and_by_processor_time() {
        let told = table(&[
            measured(Who::Direct, &[(100.0, 5.0)], 100.0),
            measured(Who::BareProxy, &[(40.0, 20.0)], 0.0),
            measured(Who::ThreeRules, &[(38.0, 25.0)], 1_200.0),
            measured(Who::Refusing, &[(76.0, 13.0)], 0.0),
        ]);
        let told = told.to_string();
        for line in [
            "| three rules / bare hyper proxy ≥ 0.9 | yes (0.95) | **no** (0.80) | yes (0.95) | **no** (0.80) | **no** (0.80) |",
            "| three rules / nginx + limit_req ≥ 0.65 | not measured |",
            "≤ 0.5 | yes (0.50) | **no** (0.52) |",
            "**no** (p99 +1100 µs)",
        ] {
            assert!(told.contains(line), "{line}\n{told}");
        }
    }

    #[test]
    fn a_turn_that_was_disturbed_counts_in_its_round_and_not_among_the_best() {
        let undisturbed = [(40.0, 20.0); 4];
        let mut disturbed = undisturbed;
        (disturbed[0], disturbed[1], disturbed[3]) = ((20.0, 30.0), (32.0, 25.0), (44.0, 20.0));
        let told = table(&[
            measured(Who::BareProxy, &undisturbed, 0.0),
            measured(Who::ThreeRules, &disturbed[..3], 0.0),
        ]);
        assert!(
            told.to_string().contains(
                "| **no** (0.80) | **no** (0.80) | **no** (0.77) | **no** (0.82) | **no** (0.80) |"
            ),
            "{told}"
        );
        let told = table(&[
            measured(Who::BareProxy, &undisturbed, 0.0),
            measured(Who::ThreeRules, &[disturbed, undisturbed].concat(), 0.0),
        ]);
        assert!(
            told.to_string()
                .contains("| yes (1.00) | yes (1.00) | yes (1.03) | yes (1.00) | yes (1.00) |"),
            "{told}"
        );
    }
}
