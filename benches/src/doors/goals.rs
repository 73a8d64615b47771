//! What is to be reached, and whether it is. Ratios are taken within each round, in which the machine is
//! most alike for everybody; their median is told.

use super::contender::Who;
use super::{Door, Turn};
use crate::report::{Table, median};

/// The turns of everybody who was measured, round by round.
pub type Rounds = [((Door, Who), Vec<Turn>)];

/// Speed beside another at a door, and whether the p99 must not be worse than theirs.
struct Goal {
    door: Door,
    theirs: Who,
    at_least: f64,
    with_p99: bool,
}

const GOALS: [Goal; 4] = [
    Goal { door: Door::Http, theirs: Who::Throttlecrab, at_least: 1.1, with_p99: true },
    Goal { door: Door::Grpc, theirs: Who::Throttlecrab, at_least: 1.1, with_p99: true },
    Goal { door: Door::Resp, theirs: Who::Throttlecrab, at_least: 1.1, with_p99: true },
    Goal { door: Door::Pipeline, theirs: Who::Ceiling, at_least: 0.5, with_p99: false },
];

/// The table of goals.
#[must_use]
pub fn table(rounds: &Rounds) -> Table {
    let mut table =
        Table::new(&["goal", "answers/s", "p99, theirs / ours", "CPU an answer, theirs / ours"]);
    for Goal { door, theirs, at_least, with_p99 } in GOALS {
        let ratio = |tell: fn(&Turn, &Turn) -> f64| ratio(rounds, door, theirs, tell);
        let speed = ratio(|ours, theirs| ours.per_second / theirs.per_second);
        let p99 = ratio(|ours, theirs| theirs.latencies.p99 / ours.latencies.p99);
        let cpu = ratio(|ours, theirs| theirs.cpu_us / ours.cpu_us);
        let also = if with_p99 { ", p99 no worse" } else { "" };
        table.row(&[
            format!("{}: ≥ {at_least} × {}{also}", door.name(), theirs.name(door)),
            format!("{} ({speed:.2})", verdict(speed >= at_least)),
            match with_p99 {
                true => format!("{} ({p99:.2})", verdict(p99 >= 1.0)),
                false => format!("{p99:.2}"),
            },
            format!("{cpu:.2}"),
        ]);
    }
    table
}

const fn verdict(reached: bool) -> &'static str {
    if reached { "yes" } else { "**no**" }
}

/// The median over rounds of something that is told of our turn and theirs in the same round.
fn ratio(rounds: &Rounds, door: Door, theirs: Who, tell: fn(&Turn, &Turn) -> f64) -> f64 {
    let turns =
        |who| rounds.iter().find(|(known, _)| *known == (door, who)).map(|(_, turns)| turns);
    let (Some(ours), Some(theirs)) = (turns(Who::Tidegate), turns(theirs)) else { return f64::NAN };
    let told = ours.iter().zip(theirs).map(|(ours, theirs)| tell(ours, theirs));
    median(&told.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Latencies;

    #[test]
    fn goals_are_judged_within_rounds() {
        let turn = |per_second, p99| Turn {
            per_second,
            cpu_us: 5.0,
            latencies: Latencies { p50: 1.0, p99 },
        };
        // The machine was slow in the second round, and for both.
        let ours = vec![turn(120.0, 10.0), turn(60.0, 20.0), turn(120.0, 10.0)];
        let theirs = vec![turn(100.0, 9.0), turn(50.0, 18.0), turn(100.0, 9.0)];
        let rounds =
            [((Door::Http, Who::Tidegate), ours), ((Door::Http, Who::Throttlecrab), theirs)];
        let told = table(&rounds).to_string();
        let line =
            "| HTTP: ≥ 1.1 × throttlecrab, p99 no worse | yes (1.20) | **no** (0.90) | 1.00 |";
        assert!(told.contains(line), "{told}");
    }
}
