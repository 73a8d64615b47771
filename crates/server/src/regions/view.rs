//! The regions, their shares, and what was borrowed and lent, as JSON for the admin API and the
//! dashboard.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tidegate_core::store::Store;
use tidegate_core::time::Micros;
use tidegate_limiter::{LenderStats, Limiter, RuleBorrowing};
use tidegate_rules::RegionalLimit;

use super::loans::LentUnits;
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
        let (stats, lent) =
            (self.limiter.borrow_stats().unwrap_or_default(), self.links.lent_units());
        let lender = |link: &Arc<RegionLink>| {
            let stats = stats.lenders.iter().find(|stats| *stats.region == *link.region);
            lender_json(link, stats)
        };
        let rules = self.limiter.rules();
        let divided = rules.rules().iter().filter_map(|rule| Some((rule.id(), rule.regional()?)));
        let rules: Map<String, Json> = divided
            .map(|(id, regional)| {
                let json = rule_json(regional, stats.rules.get(id), lent.get(id));
                (id.to_owned(), json)
            })
            .collect();
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

fn rule_json(
    regional: &RegionalLimit,
    borrowed: Option<&RuleBorrowing>,
    lent: Option<&BTreeMap<String, LentUnits>>,
) -> Json {
    let total = borrowed.map(RuleBorrowing::total).unwrap_or_default();
    let lent = lent.into_iter().flatten().map(|(region, LentUnits { granted, returned })| {
        (region.clone(), json!({"granted": granted, "returned": returned}))
    });
    json!({
        "share": regional.own_share().to_string(),
        "held": total.held,
        "granted": total.granted,
        "spent": total.spent(),
        "refused_with_room": borrowed.map_or(0, |borrowed| borrowed.refused_with_room),
        "lent": lent.collect::<Map<String, Json>>(),
    })
}
