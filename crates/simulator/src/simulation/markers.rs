//! The markers of the regions' stores: nodes write their own, and read those of lenders.

use tidegate_limiter::SeededBug;

use super::Simulation;
use crate::regions::{StoreMarker, is_lender_usable, region_name};

impl Simulation {
    /// A node borrows from no region before it has read the marker of its store.
    pub(super) fn distrust_lenders(&self, node: usize) {
        if self.bug != Some(SeededBug::MarkerNotChecked) {
            let node = &self.nodes[node];
            let lenders = (0..self.servers.len()).filter(|_| self.scenario.regions.is_some());
            lenders.for_each(|lender| node.limiter.set_lender_usable(region_name(lender), false));
        }
    }

    /// Nodes write the marker of their region, and borrow only from stores with the marker that
    /// they expect. The state that a store loses includes its marker.
    pub(super) fn exchange_markers(&mut self) {
        if self.scenario.regions.is_none() {
            return;
        }
        for id in &self.fleet {
            let (node, home) = (&self.nodes[*id], self.nodes[*id].home());
            if node.links[home].is_up() {
                self.servers[home].marker = Some(StoreMarker::new(home, node.secret()));
            }
            let reached = (0..self.servers.len()).filter(|store| node.links[*store].is_up());
            for lender in reached.filter(|store| *store != home) {
                let marker = self.servers[lender].marker;
                let is_usable = is_lender_usable(lender, node.secret(), marker)
                    || self.bug == Some(SeededBug::MarkerNotChecked);
                node.limiter.set_lender_usable(region_name(lender), is_usable);
            }
        }
    }
}
