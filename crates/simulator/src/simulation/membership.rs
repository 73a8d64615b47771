//! Nodes that start, are killed, and count each other.

use super::Simulation;
use crate::clock::{MAX_DRIFT_PPM, MachineClock};
use crate::link::NodeLink;
use crate::node::{Node, NodeParts};
use crate::rule_spec::compile_rules;

impl Simulation {
    pub(super) fn start_node(&mut self, place: usize) -> Result<usize, String> {
        let (id, ppm) = (self.nodes.len(), self.random.signed(MAX_DRIFT_PPM));
        let target = self.scenario.target_of(place);
        let links = (0..self.servers.len()).map(|store| {
            let (random, timing) = (self.random.fork(), self.scenario.timing_to(target, store));
            NodeLink::new((id, store), &self.world, random, timing)
        });
        let links = links.collect();
        let (time, home) = (&self.world.time, target.region.unwrap_or(0));
        let wall =
            self.servers[home].clock.at(0).0.as_micros() + time.now() + self.random.below(50_000);
        let booted = 1_000_000 + self.random.below(1_000_000_000);
        let parts = NodeParts {
            id,
            links,
            target,
            clock: MachineClock::new(time.clone(), wall, ppm),
            lease_clock: MachineClock::new(time.clone(), booted, ppm),
            rules: compile_rules(self.rules_of(self.version), target)?,
            bug: self.bug,
        };
        let node = Node::start(parts, &self.world, &self.spawner, &self.reports);
        node.set_node_count(self.scenario.nodes_beside(place));
        self.nodes.push(node);
        self.distrust_lenders(id);
        Ok(id)
    }

    pub(super) fn replace_node(&mut self, place: usize) -> Result<(), String> {
        let old = self.fleet[place];
        self.executor.kill(old);
        self.nodes[old].links.iter().for_each(|link| link.cut(true));
        let (open, now) = (self.nodes[old].async_stats().units_open, self.world.now());
        for bound in self.checker.bounds.values_mut().filter(|bound| bound.spec.is_async()) {
            bound.lose_units(open, now);
        }
        let new = self.start_node(place)?;
        self.fleet[place] = new;
        self.compare_parts();
        if let Some(edit) = &mut self.edit {
            edit.missing.retain(|node| *node != old);
        }
        self.finish_edit();
        Ok(())
    }

    /// Nodes that reach the store with the list of nodes learn how many others do.
    pub(super) fn send_heartbeats(&mut self) {
        let now = self.world.now();
        let lists = self.scenario.regions.as_ref().map_or(1, |plan| plan.network.regions);
        for home in (0..lists).filter(|home| now >= self.stopped_until[*home]) {
            if self.scenario.rules[0].is_local {
                return;
            }
            let nodes = self.fleet.iter().map(|id| &self.nodes[*id]);
            let up = nodes.filter(|node| node.home() == home && node.links[home].is_up());
            let count = u32::try_from(up.clone().count()).unwrap_or(1);
            up.for_each(|node| node.set_node_count(count));
        }
        self.compare_parts();
        self.exchange_markers();
    }

    /// While nodes do not agree on how many they are, their parts may exceed the limit together.
    pub(super) fn compare_parts(&mut self) {
        let now = self.world.now();
        for bound in self.checker.bounds.values_mut().filter(|bound| bound.spec.is_async()) {
            let counts = self.fleet.iter().map(|id| self.nodes[*id].node_count());
            let parts: u64 = counts.map(|count| bound.spec.part(count)).sum();
            bound.set_part_excess(parts.saturating_sub(bound.spec.limit()), now);
        }
    }
}
