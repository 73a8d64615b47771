//! Interleaved rounds of in-process contenders.

use std::time::Duration;

use crate::contender::KeyLimiter;
use crate::load::{KeyDistribution, KeyStream, run};
use crate::report::median;

/// Many short turns: if another process takes the CPU for a second, it disturbs a few rounds of
/// every contender instead of one contender's whole result.
pub const ROUNDS: usize = 25;

/// Length of one turn.
pub const TURN: Duration = Duration::from_millis(80);

/// Calls per second: one entry per round, each with one entry per contender.
#[derive(Debug)]
pub struct RateRounds(Vec<Vec<f64>>);

impl RateRounds {
    /// The median rate of a contender.
    #[must_use]
    pub fn rate(&self, contender: usize) -> f64 {
        median(&self.0.iter().map(|round| round[contender]).collect::<Vec<_>>())
    }

    /// Speed relative to another contender, compared within each round under the same conditions.
    #[must_use]
    pub fn ratio(&self, contender: usize, other: usize) -> f64 {
        median(&self.0.iter().map(|round| round[contender] / round[other]).collect::<Vec<_>>())
    }
}

/// Runs rounds in which every contender takes a turn; the order is reversed every other round.
#[must_use]
pub fn compare_rates(
    all: &[Box<dyn KeyLimiter>],
    count: usize,
    spread: KeyDistribution,
    threads: usize,
) -> RateRounds {
    let streams: Vec<_> =
        (0..threads).map(|seed| KeyStream::random_keys(spread, count, 7 + seed as u64)).collect();
    for contender in all {
        KeyStream::every_key(count).for_each_key(|key| contender.decide(key));
    }
    let turn = |contender: usize| run(&streams, TURN, &|key| all[contender].decide(key));
    let round = |number: usize| {
        let mut rates = vec![0.0; all.len()];
        let order = 0..all.len();
        match number % 2 {
            0 => order.for_each(|contender| rates[contender] = turn(contender)),
            _ => order.rev().for_each(|contender| rates[contender] = turn(contender)),
        }
        rates
    };
    RateRounds((0..ROUNDS).map(round).collect())
}
