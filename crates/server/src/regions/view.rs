//! The regions and what this node borrowed, as JSON for the admin API and the dashboard.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tidegate_core::store::Store;
use tidegate_core::time::Micros;
use tidegate_limiter::{LenderStats, Limiter, RuleBorrowing};

use super::{RegionLink, RegionLinks};

/// Reads the state of the regions.
pub(crate) struct RegionStatus<S, L> {
    pub(crate) limiter: Arc<Limiter<S, L>>,
    pub(crate) links: Arc<RegionLinks>,
}

impl<S: Store, L: Store> RegionStatus<S, L> {
    /// Null if the node has no region.
    pub(crate) fn to_json(&self) -> Json {
        let Some(own) = &self.links.own_marker else { return Json::Null };
        let stats = self.limiter.borrow_stats().unwrap_or_default();
        let lender = |link: &Arc<RegionLink>| {
            let stats = stats.lenders.iter().find(|stats| *stats.region == *link.region);
            lender_json(link, stats)
        };
        let rules: Map<String, Json> =
            stats.rules.iter().map(|(rule, units)| (rule.clone(), rule_json(units))).collect();
        json!({
            "region": own.region,
            "lenders": self.links.iter().map(lender).collect::<Vec<_>>(),
            "rules": rules,
        })
    }
}

fn lender_json(link: &RegionLink, stats: Option<&LenderStats>) -> Json {
    let state = link.state();
    json!({
        "region": link.region,
        "store": link.address,
        "state": state.name(),
        "reason": state.reason(),
        "since_answer_ms": stats.and_then(|stats| stats.since_answer).map(Micros::as_millis_ceil),
        "questions": stats.map_or(0, |stats| stats.questions),
        "unanswered": stats.map_or(0, |stats| stats.unanswered),
    })
}

fn rule_json(units: &RuleBorrowing) -> Json {
    let total = units.total();
    json!({
        "held": total.held,
        "granted": total.granted,
        "spent": total.spent(),
        "refused_with_room": units.refused_with_room,
    })
}
