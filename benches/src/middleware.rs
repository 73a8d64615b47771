//! Building blocks of the middleware benchmark: the same axum service under different layers.

use crate::gateway::cpu::cpu_time_us;
use crate::gateway::setup::{self, GatewayProcess};
use crate::gateway::{GatewayTurn, wrk};
use crate::report::{MarkdownTable, median};

/// Number of concurrent connections.
pub const CONNECTIONS: usize = 50;

/// Length of one turn, in seconds.
pub const SECONDS: u64 = 1;

/// The services, in the order of the table: the argument of `axum_service`, and the name in the
/// table.
const SERVICES: [(&str, &str); 7] = [
    ("bare", "axum, no layer"),
    ("one-rule-no-headers", "**tidegate-tower**, one rule, no headers"),
    ("one-rule", "**tidegate-tower**, one rule"),
    ("three-rules", "**tidegate-tower**, three rules"),
    ("tower-governor", "tower_governor, no headers"),
    ("tower-governor-headers", "tower_governor, `use_headers`"),
    ("tower", "tower: buffer and rate limit"),
];

/// A running service and its turns.
struct ServiceContender {
    kind: &'static str,
    name: &'static str,
    process: GatewayProcess,
    turns: Vec<GatewayTurn>,
}

/// All services.
pub struct MiddlewareBench(Vec<ServiceContender>);

impl MiddlewareBench {
    /// Starts the services.
    #[must_use]
    pub fn start() -> Self {
        let start = |(kind, name)| ServiceContender {
            kind,
            name,
            process: setup::axum_service(kind),
            turns: Vec::new(),
        };
        Self(SERVICES.into_iter().map(start).collect())
    }

    /// Runs a warm-up round and then `rounds` rounds, in which every service takes a turn; the
    /// order is reversed every other round.
    pub fn run_rounds(&mut self, rounds: usize) {
        for round in 0..=rounds {
            let mut order: Vec<&mut ServiceContender> = self.0.iter_mut().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for contender in order {
                let turn = contender.run_turn();
                eprintln!("round {round}: {}: {turn:.1?}", contender.name);
                if round > 0 {
                    contender.turns.push(turn);
                }
            }
        }
    }

    /// The results.
    #[must_use]
    pub fn table(&self) -> MarkdownTable {
        let mut table = MarkdownTable::new(&[
            "axum service",
            "requests/s",
            "relative to no layer",
            "CPU µs per request",
            "p50 µs",
            "p99 µs",
        ]);
        for contender in &self.0 {
            let number = |field: fn(&GatewayTurn) -> f64| {
                median(&contender.turns.iter().map(field).collect::<Vec<_>>())
            };
            table.push_row(&[
                contender.name.to_owned(),
                format!("{:.0}", number(|turn| turn.per_second)),
                format!("{:.2}", self.throughput(contender.kind, "bare")),
                format!("{:.2}", number(|turn| turn.cpu_us)),
                format!("{:.0}", number(|turn| turn.latencies.p50)),
                format!("{:.0}", number(|turn| turn.latencies.p99)),
            ]);
        }
        table
    }

    /// The throughput of a service relative to another, compared within each round.
    #[must_use]
    pub fn throughput(&self, kind: &str, other: &str) -> f64 {
        let pairs = self.turns(kind).zip(self.turns(other));
        median(&pairs.map(|(turn, other)| turn.per_second / other.per_second).collect::<Vec<_>>())
    }

    fn turns(&self, kind: &str) -> impl Iterator<Item = &GatewayTurn> {
        self.0.iter().filter(move |contender| contender.kind == kind).flat_map(|it| &it.turns)
    }
}

impl ServiceContender {
    fn run_turn(&self) -> GatewayTurn {
        let before = cpu_time_us(self.process.pid());
        let report = wrk::run(self.process.address(), CONNECTIONS, SECONDS);
        assert_eq!(report.refused, 0, "{} refused requests", self.name);
        let cpu_us = (cpu_time_us(self.process.pid()) - before) / report.requests as f64;
        GatewayTurn { per_second: report.per_second, cpu_us, latencies: report.latencies() }
    }
}
