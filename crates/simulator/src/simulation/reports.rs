//! What the nodes report: decisions, refunds and installed rules, and what their links have lost.

use tidegate_core::decision::AnsweredBy;

use super::Simulation;
use crate::checker::RequestSpan;
use crate::link::LostFlush;
use crate::node::Report;

impl Simulation {
    pub(super) fn process_reports(&mut self) {
        self.note_lost_flushes();
        for report in self.reports.take() {
            let result = self.process_report(report);
            if let Err(violation) = result {
                self.violation.get_or_insert(violation);
            }
        }
    }

    /// What the store may never count adds to the bound once.
    fn note_lost_flushes(&mut self) {
        let now = self.world.now();
        for node in &self.nodes {
            let lost = node.links.iter().flat_map(|it| std::mem::take(&mut it.log().lost_flushes));
            for LostFlush { rule, store, units } in lost {
                let bound = self.checker.bounds_of(&rule).nth(store);
                bound.into_iter().for_each(|bound| bound.lose_units(units, now));
            }
        }
    }

    fn process_report(&mut self, report: Report) -> Result<(), String> {
        let now = self.world.now();
        let (trace, code) = (&self.world.trace, code_of(&report));
        trace.record(code, || format!("{report:?}"));
        if let Report::Decided { received_at, .. } = report {
            self.slowest_decision = self.slowest_decision.max(now - received_at);
        }
        match report {
            Report::Decided { node, request, received_at, admitted: true, charges, .. } => {
                self.admitted += 1;
                let borrowed = charges.iter().filter(|it| it.counted_by == AnsweredBy::Borrowed);
                self.borrowed += borrowed.map(|charge| charge.cost).sum::<u64>();
                let span = RequestSpan { received_at, decided_at: now };
                self.checker.admit(node, span, &request, charges, &mut self.servers)
            }
            Report::Decided { .. } => {
                self.refused += 1;
                Ok(())
            }
            Report::Refunds { request } => {
                self.checker.refund(now, request);
                Ok(())
            }
            Report::Installed { node, version } => {
                if let Some(edit) = self.edit.as_mut().filter(|edit| edit.version == version) {
                    edit.missing.retain(|missing| *missing != node);
                }
                self.finish_edit();
                Ok(())
            }
        }
    }
}

fn code_of(report: &Report) -> u64 {
    match report {
        Report::Decided { node, request, admitted, by, .. } => {
            let by = by.name().len() as u64;
            (*node as u64) << 48 | request.number << 8 | u64::from(*admitted) << 4 | by
        }
        Report::Refunds { request } => 1 << 60 | request,
        Report::Installed { node, version } => 2 << 60 | (*node as u64) << 8 | *version as u64,
    }
}
