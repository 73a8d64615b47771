//! The performance goals, and whether a run reached them.
//!
//! Ratios are taken within a round, where all contenders ran under the most similar conditions.
//! The table shows the median ratio over all rounds.

use super::contender::ApiContender;
use super::{ApiTurn, BenchApi};
use crate::report::{MarkdownTable, median};

/// The turns of every contender at every API, one per round.
pub type ApiRounds = [((BenchApi, ApiContender), Vec<ApiTurn>)];

/// Minimum speed relative to a competitor at one API, and whether our p99 must be no worse.
struct ApiGoal {
    api: BenchApi,
    competitor: ApiContender,
    at_least: f64,
    with_p99: bool,
}

const GOALS: [ApiGoal; 4] = [
    ApiGoal {
        api: BenchApi::Http,
        competitor: ApiContender::Throttlecrab,
        at_least: 1.1,
        with_p99: true,
    },
    ApiGoal {
        api: BenchApi::Grpc,
        competitor: ApiContender::Throttlecrab,
        at_least: 1.1,
        with_p99: true,
    },
    ApiGoal {
        api: BenchApi::Resp,
        competitor: ApiContender::Throttlecrab,
        at_least: 1.1,
        with_p99: true,
    },
    ApiGoal {
        api: BenchApi::Pipeline,
        competitor: ApiContender::Ceiling,
        at_least: 0.5,
        with_p99: false,
    },
];

/// Builds the table of goals.
#[must_use]
pub fn goals_table(rounds: &ApiRounds) -> MarkdownTable {
    let mut table = MarkdownTable::new(&[
        "goal",
        "responses/s",
        "p99, theirs / ours",
        "CPU per response, theirs / ours",
    ]);
    for ApiGoal { api, competitor: theirs, at_least, with_p99 } in GOALS {
        let ratio = |ratio: fn(&ApiTurn, &ApiTurn) -> f64| median_ratio(rounds, api, theirs, ratio);
        let speed = ratio(|ours, theirs| ours.per_second / theirs.per_second);
        let p99 = ratio(|ours, theirs| theirs.latencies.p99 / ours.latencies.p99);
        let cpu = ratio(|ours, theirs| theirs.cpu_us / ours.cpu_us);
        let also = if with_p99 { ", p99 no worse" } else { "" };
        table.push_row(&[
            format!("{}: ≥ {at_least} × {}{also}", api.name(), theirs.name(api)),
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

/// The median over rounds of a ratio between our turn and theirs in the same round.
fn median_ratio(
    rounds: &ApiRounds,
    api: BenchApi,
    theirs: ApiContender,
    ratio: fn(&ApiTurn, &ApiTurn) -> f64,
) -> f64 {
    let turns = |contender| {
        rounds.iter().find(|(known, _)| *known == (api, contender)).map(|(_, turns)| turns)
    };
    let (Some(ours), Some(theirs)) = (turns(ApiContender::Tidegate), turns(theirs)) else {
        return f64::NAN;
    };
    let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ratio(ours, theirs));
    median(&ratios.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Latencies;

    #[test]
    fn goals_compare_within_rounds() {
        let turn = |per_second, p99| ApiTurn {
            per_second,
            cpu_us: 5.0,
            latencies: Latencies { p50: 1.0, p99 },
        };
        // The machine was slow in the second round, for both contenders.
        let ours = vec![turn(120.0, 10.0), turn(60.0, 20.0), turn(120.0, 10.0)];
        let theirs = vec![turn(100.0, 9.0), turn(50.0, 18.0), turn(100.0, 9.0)];
        let rounds = [
            ((BenchApi::Http, ApiContender::Tidegate), ours),
            ((BenchApi::Http, ApiContender::Throttlecrab), theirs),
        ];
        let table = goals_table(&rounds).to_string();
        let line =
            "| HTTP: ≥ 1.1 × throttlecrab, p99 no worse | yes (1.20) | **no** (0.90) | 1.00 |";
        assert!(table.contains(line), "{table}");
    }
}
