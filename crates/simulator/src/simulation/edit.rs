//! Edits of the rules, which reach the nodes one after another.

use super::Simulation;
use crate::bound::RuleBound;
use crate::fault::{Fault, FaultKind};
use crate::rule_spec::RuleSpec;
use crate::world::Event;

pub(super) struct EditInProgress {
    pub(super) version: usize,
    /// One for each store.
    pub(super) disturbances: Vec<usize>,
    /// Nodes that do not have the rules yet.
    pub(super) missing: Vec<usize>,
}

impl Simulation {
    pub(super) fn main_rule(&self) -> &RuleSpec {
        &self.rules_of(self.version)[0]
    }

    pub(super) fn rules_of(&self, version: usize) -> &[RuleSpec] {
        match version.checked_sub(1) {
            None => &self.scenario.rules,
            Some(edit) => &self.scenario.edits[edit],
        }
    }

    /// The nodes receive new rules within 200 ms.
    pub(super) fn begin_edit(&mut self, version: usize) {
        let (rules, now) = (self.rules_of(version).to_vec(), self.world.now());
        let main = rules[0];
        let bounds = self.checker.bounds_of(main.id).enumerate();
        let begin =
            |(store, bound): (usize, &mut RuleBound)| bound.begin_edit(main.in_region(store), now);
        let disturbances = bounds.map(begin).collect();
        self.compare_parts();
        self.checker.consider_leases(&rules);
        self.version = version;
        self.edit = Some(EditInProgress { version, disturbances, missing: self.fleet.clone() });
        for node in &self.fleet {
            let delay = self.scenario.edit_delay(self.nodes[*node].home());
            let after = delay + self.random.below(200_000);
            self.nodes[*node].install(after, version, rules.clone());
        }
    }

    pub(super) fn finish_edit(&mut self) {
        let Some(edit) = self.edit.take_if(|edit| edit.missing.is_empty()) else { return };
        let (now, main) = (self.world.now(), self.rules_of(edit.version)[0]);
        let mut longest = 0;
        let bounds = self.checker.bounds_of(main.id).zip(edit.disturbances);
        for (store, (bound, disturbance)) in bounds.enumerate() {
            bound.finish_edit(disturbance, main.in_region(store), now);
            longest = longest.max(bound.longest_lease());
        }
        self.compare_parts();
        let next = edit.version;
        let at = now + 600_000 + longest;
        if next < self.scenario.edits.len() && at < self.scenario.faults_end - 300_000 {
            let index = self.scenario.faults.len();
            let kind = FaultKind::Edit(next);
            self.scenario.faults.push(Fault { at, kind });
            self.world.schedule(at, Event::Fault(index));
        }
    }
}
