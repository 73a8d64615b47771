//! Shows users from which regions nothing is borrowed, and why.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::Store;
use tidegate_limiter::Limiter;
use tidegate_web::ProcessStatus;

use super::borrowing::call_deadline;
use super::{MarkerProblem, RegionLink, RegionLinks, RegionNotice, RegionState, rule_notices};
use crate::telemetry::RegionEvent;

/// How often the states are read.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the states in `/readyz`, logs what the rules need of regions, and sets the deadline of
/// calls that follows from the rules.
pub(crate) async fn report_states<S: Store, L: Store>(
    limiter: Arc<Limiter<S, L>>,
    links: Arc<RegionLinks>,
    status: Arc<ProcessStatus>,
) {
    let (mut version, mut notices) = (None, Vec::new());
    let mut reported = None;
    loop {
        let rules = limiter.rules();
        if version != Some(rules.version()) {
            version = Some(rules.version());
            if let Some(deadline) = call_deadline(&rules) {
                links.iter().for_each(|link| link.store.set_deadline(deadline));
            }
            notices = log_new(&notices, rule_notices(&rules, &links.regions()));
        }
        let now = (links.error(), links.warnings(&notices));
        if reported.as_ref() != Some(&now) {
            status.set_region_error(now.0.clone());
            status.set_region_warnings(now.1.clone());
            reported = Some(now);
        }
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

fn log_new(known: &[RegionNotice], notices: Vec<RegionNotice>) -> Vec<RegionNotice> {
    for notice in notices.iter().filter(|notice| !known.contains(notice)) {
        RegionEvent::RuleNotice { notice }.log();
    }
    notices
}

impl RegionLinks {
    /// The regions with a store.
    fn regions(&self) -> Vec<&str> {
        self.iter().map(|link| link.region.as_str()).collect()
    }

    /// What an operator has to correct before this node borrows.
    fn error(&self) -> Option<String> {
        if self.is_own_store_taken() {
            return Some("--store is marked as the store of another region".to_owned());
        }
        let error = |link: &Arc<RegionLink>| match link.state() {
            RegionState::Mismatch(MarkerProblem::Missing) => None,
            RegionState::Mismatch(problem) => {
                Some(format!("nothing is borrowed from region {}: {problem}", link.region))
            }
            _ => None,
        };
        let errors: Vec<String> = self.iter().filter_map(error).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// From which regions nothing can be borrowed at present.
    fn warnings(&self, notices: &[RegionNotice]) -> Vec<String> {
        let warning = |link: &Arc<RegionLink>| {
            let why = match link.state() {
                RegionState::Unreachable(why) => why,
                RegionState::Mismatch(MarkerProblem::Missing) => MarkerProblem::Missing.to_string(),
                _ => return None,
            };
            Some(format!("nothing is borrowed from region {}: {why}", link.region))
        };
        self.iter().filter_map(warning).chain(notices.iter().map(ToString::to_string)).collect()
    }
}
