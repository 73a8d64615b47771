//! Faults, applied to the network, the stores and the nodes, and reported to the checker.

use super::Simulation;
use crate::fault::FaultKind;
use crate::link::NodeLink;

impl Simulation {
    pub(super) fn inject(&mut self, kind: FaultKind) -> Result<(), String> {
        self.world.trace.record(1, || format!("fault: {kind:?}"));
        let now = self.world.now();
        match kind {
            FaultKind::Cut { node, store } => self.link(node, store).cut(true),
            FaultKind::Stall { node, store, until } => self.link(node, store).stall_until(until),
            FaultKind::SlowNetwork { node, store, extra } => {
                self.link(node, store).set_extra_delay(extra);
            }
            FaultKind::LoseMessages { node, store, lost } => self.link(node, store).lose(lost),
            FaultKind::Heal { node, store } => self.link(node, store).reconnect(),
            FaultKind::StoreStops { store, until } => self.stopped_until[store] = until,
            FaultKind::StoreLosesState { store } => {
                self.servers[store].lose_state();
                self.checker.bounds_at(store).for_each(|bound| bound.lose_state(now));
            }
            FaultKind::Replicate { store } => self.servers[store].replicate(),
            FaultKind::FailOver { store } => {
                self.servers[store].fail_over();
                self.checker.bounds_at(store).for_each(|bound| bound.lose_state(now));
            }
            FaultKind::StoreClockSteps { store, micros } => {
                self.servers[store].clock.step(micros);
                self.checker.bounds_at(store).for_each(|bound| bound.step(micros, now));
            }
            FaultKind::Kill { node } => return self.replace_node(node),
            FaultKind::Pause { node } => self.executor.pause(self.fleet[node]),
            FaultKind::Resume { node } => self.executor.resume(self.fleet[node]),
            FaultKind::Edit(index) => self.begin_edit(index + 1),
        }
        Ok(())
    }

    fn link(&self, place: usize, store: usize) -> &NodeLink {
        &self.nodes[self.fleet[place]].links[store]
    }
}
