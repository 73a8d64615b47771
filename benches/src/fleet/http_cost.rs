//! What a decision costs through the HTTP API: embedded memory, leased and exact on Redis.

use tidegate_testkit::redis::RedisServer;

use super::{FleetMode, verdict};
use crate::apis::contender::run_http_turn;
use crate::apis::setup::{ApiProcess, tidegate_with};
use crate::apis::{ApiTurn, CONNECTIONS, SECONDS};
use crate::report::{MarkdownTable, median};

/// Few enough that every key is leased.
const KEYS: usize = 100;

/// A running server.
struct HttpContender {
    name: String,
    process: ApiProcess,
    /// The Redis server that it uses alone, if any.
    redis: Option<RedisServer>,
    turns: Vec<HttpTurn>,
}

struct HttpTurn {
    api: ApiTurn,
    /// Calls to Redis per 1 000 responses.
    redis_calls: f64,
}

/// The servers: first embedded memory, then leased, then exact.
pub struct HttpCostBench([HttpContender; 3]);

impl HttpCostBench {
    /// Starts the servers.
    #[must_use]
    pub fn start() -> Self {
        let on_redis = |mode: FleetMode| {
            let redis = RedisServer::start();
            let process = tidegate_with(&rules(mode), &["--store", &redis.url()]);
            let name = format!("{}, Redis", mode.name);
            HttpContender { name, process, redis: Some(redis), turns: Vec::new() }
        };
        let memory = HttpContender {
            name: "embedded memory".to_owned(),
            process: tidegate_with(&rules(FleetMode::EXACT), &[]),
            redis: None,
            turns: Vec::new(),
        };
        Self([memory, on_redis(FleetMode::LEASED), on_redis(FleetMode::EXACT)])
    }

    /// Runs a warm-up round and then `rounds` rounds, in which every server takes a turn.
    pub fn run_rounds(&mut self, rounds: usize) {
        for round in 0..=rounds {
            for contender in &mut self.0 {
                let turn = contender.run_turn();
                let HttpTurn { api, redis_calls } = &turn;
                eprintln!("HTTP, round {round}: {}: {redis_calls:.1} {api:.1?}", contender.name);
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
            &format!("HTTP API, {CONNECTIONS} connections"),
            "responses/s",
            "CPU µs per response",
            "CPU, relative to memory",
            "p50 µs",
            "p99 µs",
            "Redis calls per 1 000 responses",
        ]);
        for contender in &self.0 {
            let number = |field: fn(&HttpTurn) -> f64| {
                median(&contender.turns.iter().map(field).collect::<Vec<_>>())
            };
            table.push_row(&[
                contender.name.clone(),
                format!("{:.0}", number(|turn| turn.api.per_second)),
                format!("{:.1}", number(|turn| turn.api.cpu_us)),
                format!("{:.2}", self.cost(contender)),
                format!("{:.0}", number(|turn| turn.api.latencies.p50)),
                format!("{:.0}", number(|turn| turn.api.latencies.p99)),
                format!("{:.1}", number(|turn| turn.redis_calls)),
            ]);
        }
        table
    }

    /// Adds a row for each goal.
    pub fn push_goals(&self, table: &mut MarkdownTable) {
        let [_, leased, _] = &self.0;
        let cost = self.cost(leased);
        table.push_row(&[
            "HTTP API: leased ≤ 1.1 × the CPU time on embedded memory".to_owned(),
            format!("{} ({cost:.2})", verdict(cost <= 1.1)),
        ]);
    }

    /// The median over rounds of the CPU time relative to that on embedded memory.
    fn cost(&self, contender: &HttpContender) -> f64 {
        let [memory, ..] = &self.0;
        let pairs = contender.turns.iter().zip(&memory.turns);
        median(&pairs.map(|(turn, memory)| turn.api.cpu_us / memory.api.cpu_us).collect::<Vec<_>>())
    }
}

/// The limit is so high that no request is refused.
fn rules(mode: FleetMode) -> String {
    format!(
        "facts: [key]\nrules: [{{ id: bench, key_by: key, limit: 1000000/min burst 1000000, {} }}]",
        mode.setting
    )
}

impl HttpContender {
    fn run_turn(&self) -> HttpTurn {
        let before = self.redis_calls();
        let mut responses = 0;
        let api = self.process.measure_cpu(|| {
            let turn =
                run_http_turn(&self.process, "/v1/check", r#"{"facts":{"key":"NAME"}}"#, KEYS);
            responses = turn.0;
            turn
        });
        let calls = self.redis_calls() - before;
        HttpTurn { api, redis_calls: 1_000.0 * calls / responses as f64 }
    }

    /// The calls of the script so far.
    fn redis_calls(&self) -> f64 {
        let Some(redis) = &self.redis else { return 0.0 };
        let stats = redis.command(&["INFO", "commandstats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next()?.parse().ok());
        calls.unwrap_or_default()
    }
}

/// How the rounds are described.
#[must_use]
pub fn method(rounds: usize) -> String {
    format!("{rounds} interleaved rounds, turns of {SECONDS} s, {KEYS} keys")
}
