//! Eight nodes without faults: how much of the limit they use, and how often they call the store.

use super::{RunOptions, Simulation};
use crate::scenario::Scenario;

/// What became of the demand of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetUse {
    /// How much of the limit was used.
    pub used_percent: f64,
    /// How many requests were refused.
    pub refused: u64,
    /// Calls to the store in a second by each node.
    pub calls_per_second: f64,
}

/// Runs eight nodes with skewed demand of this much of a limit of 1000/s, after the burst of 2000
/// is used up, without faults.
///
/// # Errors
/// If a bound was exceeded.
pub fn run_skewed_fleet(percent_of_limit: u64) -> Result<FleetUse, String> {
    const WARM_UP: u64 = 5_000_000;
    const MEASURED: u64 = 20_000_000;
    let scenario = Scenario::skewed(percent_of_limit, WARM_UP + MEASURED);
    let mut simulation = Simulation::new(scenario, RunOptions::default())?;
    simulation.run_until(WARM_UP);
    let (admitted, refused) = (simulation.admitted, simulation.refused);
    let calls_before = simulation.store_calls();
    simulation.run_until(WARM_UP + MEASURED);
    simulation.check_now(true)?;
    let seconds = MEASURED / 1_000_000;
    let (admitted, refused) = (simulation.admitted - admitted, simulation.refused - refused);
    let calls = simulation.store_calls() - calls_before;
    let fleet = FleetUse {
        used_percent: ratio(admitted * 100, 1_000 * seconds),
        refused,
        calls_per_second: ratio(calls, 8 * seconds),
    };
    simulation.violation.map_or(Ok(fleet), Err)
}

#[expect(clippy::cast_precision_loss, reason = "only for a report")]
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}
