//! Requests, and the nodes that get them.

use super::Simulation;
use crate::node::Request;
use crate::world::Event;

impl Simulation {
    pub(super) fn arrive(&mut self, index: usize) {
        let (now, stream) = (self.world.now(), self.scenario.streams[index]);
        let is_recovery = now > self.scenario.faults_end;
        // Sufficient demand: two and a half times the limit, in requests of cost 1.
        let gap = match (is_recovery && self.scenario.measured > 0, index) {
            (true, 0) => 400_000 / self.main_rule().rate().max(1),
            _ => stream.gap,
        };
        let next = now + self.random.between(gap / 2, gap * 3 / 2).max(1);
        self.world.schedule(next, Event::Arrival { stream: index });
        let cost = if is_recovery { 1 } else { self.random.between(1, stream.max_cost) };
        let refunds = !is_recovery && self.random.percent(self.scenario.refund_percent);
        let latest = self.scenario.latest_refund();
        self.decided += 1;
        let request = Request {
            number: self.decided,
            client: stream.client,
            is_for_all_rules: !is_recovery && self.random.percent(stream.all_rules_percent),
            cost: u32::try_from(cost).unwrap_or(1),
            refund_after: refunds.then(|| self.random.below(latest)),
        };
        let place = self.place_for(now);
        self.nodes[self.fleet[place]].handle(request);
    }

    /// One node gets eight times as many requests as each other one, in turn.
    fn place_for(&mut self, now: u64) -> usize {
        if let Some(place) = self.place_in_busiest_region(now) {
            return place;
        }
        let places = self.fleet.len() as u64;
        // Units that a node holds when its demand moves away may be lost, so full use is measured
        // while it does not move.
        let is_recovery = now > self.scenario.faults_end;
        let busiest = if is_recovery { 0 } else { now / self.scenario.busiest_for % places };
        let drawn = self.random.below(places + 7);
        usize::try_from(if drawn < places { drawn } else { busiest }).unwrap_or(0)
    }

    /// A node of the region that has most of the demand, unless the request arrives elsewhere.
    fn place_in_busiest_region(&mut self, now: u64) -> Option<usize> {
        let plan = self.scenario.regions.as_ref()?;
        let is_recovery = now > self.scenario.faults_end;
        let percent = if is_recovery { 100 } else { plan.busiest_percent };
        let regions = plan.network.regions;
        let turn = usize::try_from(now / self.scenario.busiest_for).unwrap_or(0) % regions;
        let busiest = if is_recovery { plan.last_region } else { turn };
        let beside = self.fleet.len().saturating_sub(busiest).div_ceil(regions);
        let drawn = busiest + regions * self.random.index(beside);
        self.random.percent(percent).then_some(drawn)
    }
}
