//! How a run is made, and what it amounts to.

use std::fmt;

use tidegate_limiter::SeededBug;

use super::Simulation;
use crate::node::Node;
use crate::scenario::Scenario;

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The bug to switch on.
    pub bug: Option<SeededBug>,
    /// Whether the events are kept as text.
    pub keeps_trace: bool,
}

/// What a run amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Requests decided.
    pub decided: u64,
    /// Requests admitted.
    pub admitted: u64,
    /// Calls to the store.
    pub store_calls: u64,
    /// Units that nodes spent of leases.
    pub leased_units: u64,
    /// Units that nodes borrowed from other regions and spent.
    pub borrowed_units: u64,
    /// Units that nodes admitted on asynchronous rules.
    pub async_units: u64,
    /// Events in the trace.
    pub events: u64,
    /// A hash of the trace: equal for equal runs.
    pub digest: u64,
    /// What was wrong, if anything.
    pub violation: Option<String>,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decided, admitted, store_calls, leased_units, borrowed_units, .. } = self;
        let async_units = self.async_units;
        write!(
            f,
            "{decided} requests decided, {admitted} admitted, {leased_units} units spent of \
             leases, {borrowed_units} borrowed, {async_units} admitted asynchronously, \
             {store_calls} store calls"
        )
    }
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, options: RunOptions) -> RunSummary {
    let scenario = Scenario::draw(seed);
    match Simulation::new(scenario, options) {
        Ok(mut simulation) => simulation.run(),
        Err(error) => RunSummary {
            decided: 0,
            admitted: 0,
            store_calls: 0,
            leased_units: 0,
            borrowed_units: 0,
            async_units: 0,
            events: 0,
            digest: 0,
            violation: Some(error),
            trace: Vec::new(),
        },
    }
}

impl Simulation {
    pub(super) fn summary(&self) -> RunSummary {
        let (events, digest) = self.world.trace.digest();
        let spent = |node: &Node| node.limiter.lease_stats().map_or(0, |stats| stats.units_spent);
        RunSummary {
            decided: self.decided,
            admitted: self.admitted,
            store_calls: self.store_calls(),
            leased_units: self.nodes.iter().map(spent).sum(),
            borrowed_units: self.borrowed,
            async_units: self.nodes.iter().map(|node| node.async_stats().units_admitted).sum(),
            events,
            digest,
            violation: self.violation.clone(),
            trace: self.world.trace.lines(),
        }
    }
}
