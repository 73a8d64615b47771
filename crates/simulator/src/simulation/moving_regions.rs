//! Three regions without faults, and demand that moves between them: how much of the limit they
//! use, and how often their nodes call other regions.

use super::skewed_fleet::ratio;
use super::{RunOptions, Simulation};
use crate::regions::RegionDemand;
use crate::scenario::Scenario;

/// What became of the demand of three regions.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionsUse {
    /// How much of the limit of all regions was used.
    pub used_percent: f64,
    /// How much of its share each region used.
    pub share_percent: Vec<f64>,
    /// Calls to the stores of other regions in a second by each node of one region.
    pub calls_per_second: f64,
    /// How long the slowest decision took, in microseconds.
    pub slowest_decision: u64,
}

/// Runs two nodes in each of three regions, with shares of 50, 30 and 20 % of 1000/s with a burst
/// of 2000, and round trips of 150 ms. Measures once the burst is used up.
///
/// # Errors
/// If a bound was exceeded.
pub fn run_moving_regions(demand: RegionDemand) -> Result<RegionsUse, String> {
    const WARM_UP: u64 = 10_000_000;
    const MEASURED: u64 = 24_000_000;
    let scenario = Scenario::moving(demand, WARM_UP + MEASURED);
    let shares: Vec<u64> =
        (0..3).map(|region| scenario.rules[0].in_region(region).rate()).collect();
    let mut simulation = Simulation::new(scenario, RunOptions::default())?;
    simulation.run_until(WARM_UP);
    let calls_before = simulation.cross_region_calls();
    simulation.run_until(WARM_UP + MEASURED);
    simulation.check_now(true)?;
    let seconds = MEASURED / 1_000_000;
    let used = |store| simulation.checker.main_admitted_at(store, WARM_UP, WARM_UP + MEASURED);
    let share_percent = |(store, share): (usize, &u64)| ratio(used(store) * 100, share * seconds);
    let regions = RegionsUse {
        used_percent: ratio((0..3).map(used).sum::<u64>() * 100, 1_000 * seconds),
        slowest_decision: simulation.slowest_decision,
        share_percent: shares.iter().enumerate().map(share_percent).collect(),
        calls_per_second: ratio(
            simulation.cross_region_calls() - calls_before,
            u64::from(simulation.scenario.nodes_beside(0)) * seconds,
        ),
    };
    simulation.violation.map_or(Ok(regions), Err)
}
