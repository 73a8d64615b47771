//! What a run with several regions has in addition to a fleet, its stores, rules and faults.

use tidegate_core::key::Secret;

use super::network::RegionNetwork;
use crate::link::LinkTiming;
use crate::rule_spec::CompileTarget;
use crate::scenario::Scenario;

/// The regions of a run.
#[derive(Clone, Debug)]
pub(crate) struct RegionPlan {
    pub(crate) network: RegionNetwork,
    /// How far the clock of each region's store is ahead.
    pub(crate) clock_offsets: Vec<i64>,
    /// How long after an edit the nodes of each region begin to receive it.
    pub(crate) edit_delays: Vec<u64>,
    /// The region whose nodes hash keys with another secret.
    pub(crate) other_secret: Option<usize>,
    /// How many of 100 requests arrive in the region that has most of the demand.
    pub(crate) busiest_percent: u64,
    /// The region with all demand once faults are over.
    pub(crate) last_region: usize,
}

impl Scenario {
    /// What the rules of the node at a place of the fleet are compiled for.
    pub(crate) fn target_of(&self, place: usize) -> CompileTarget {
        let region = self.regions.as_ref().map(|plan| plan.network.region_of(place));
        let is_other = self
            .regions
            .as_ref()
            .is_some_and(|plan| plan.other_secret.is_some() && plan.other_secret == region);
        let secret = if is_other { Secret::from_bytes(b"other") } else { Secret::UNSET };
        CompileTarget { region, secret }
    }

    /// How a node with this target reaches a store.
    pub(crate) fn timing_to(&self, target: CompileTarget, store: usize) -> LinkTiming {
        match (&self.regions, target.region) {
            (Some(plan), Some(region)) => plan.network.timing(region, store, self.timing),
            _ => self.timing,
        }
    }

    /// How many nodes share the store of the one at a place of the fleet, itself included.
    pub(crate) fn nodes_beside(&self, place: usize) -> u32 {
        let beside = self.regions.as_ref().map_or(self.nodes, |plan| {
            let home = plan.network.region_of(place);
            (0..self.nodes).filter(|other| plan.network.region_of(*other) == home).count()
        });
        u32::try_from(beside).unwrap_or(1)
    }

    /// How far a store's clock is ahead.
    pub(crate) fn clock_offset(&self, store: usize) -> i64 {
        self.regions.as_ref().map_or(0, |plan| plan.clock_offsets[store])
    }

    /// How long after an edit the nodes of a region begin to receive it.
    pub(crate) fn edit_delay(&self, region: usize) -> u64 {
        self.regions.as_ref().map_or(0, |plan| plan.edit_delays[region])
    }
}
