//! What must hold at any time, and at the end of a run.

use std::collections::BTreeMap;

use tidegate_core::key::Fingerprint;

use super::Simulation;

impl Simulation {
    pub(super) fn check_now(&mut self, is_end: bool) -> Result<(), String> {
        let mut wrong = self.servers.iter().filter_map(|it| it.ledger.wrong_refund.as_ref());
        if let Some(wrong) = wrong.next() {
            return Err(wrong.clone());
        }
        self.checker.check_bounds(self.world.now(), is_end)?;
        for node in &self.nodes {
            let flushed = node.flushed_units();
            let admitted = node.async_stats().units_admitted;
            if flushed > admitted {
                return Err(format!(
                    "node {} flushes {flushed} units, but has admitted {admitted}: some are sent \
                     again",
                    node.id
                ));
            }
            let Some(stats) = node.limiter.lease_stats() else { continue };
            let used = stats.units_spent + stats.units_held + stats.units_returned;
            if used + stats.units_expired > stats.units_granted {
                return Err(format!("node {} spends more than it was granted: {stats:?}", node.id));
            }
            let borrowed = node.limiter.borrow_stats().unwrap_or_default();
            for (rule, units) in borrowed.rules.iter().map(|(id, rule)| (id, rule.total())) {
                if units.held + units.returned + units.expired > units.granted {
                    return Err(format!(
                        "node {} spends more of rule {rule} than it borrowed: {units:?}",
                        node.id
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_end(&mut self) -> Result<(), String> {
        self.check_use()?;
        self.stop_demand();
        self.check_now(true)?;
        let mut unknown: BTreeMap<(Fingerprint, usize), u64> = BTreeMap::new();
        for node in &self.nodes {
            for (store, link) in node.links.iter().enumerate() {
                for (fingerprint, cost) in &link.log().unknown {
                    *unknown.entry((*fingerprint, store)).or_default() += cost;
                }
            }
        }
        let leased = self.scenario.rule_ids(|rule| rule.lease.is_some() || rule.is_shadow);
        let mut rules = self.scenario.rule_ids(|_| true);
        rules.retain(|rule| !leased.contains(rule));
        if self.scenario.rules[0].is_local || self.nodes.len() > self.fleet.len() {
            // Settlement writes usage once more, and a killed node forgets what it charged.
            return Ok(());
        }
        self.checker.check_all_or_none(&self.servers, &unknown, &rules)
    }

    /// Lets what is under way end, without new requests.
    fn stop_demand(&mut self) {
        let end = self.world.now() + 2_000_000;
        for stream in &mut self.scenario.streams {
            stream.gap = 100_000_000;
        }
        self.scenario.measured = 0;
        self.run_until(end);
    }
}
