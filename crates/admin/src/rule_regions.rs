//! How the regions divide the limit of a rule, and what this node has borrowed of it, as JSON.

use serde_json::{Map, Value as Json, json};
use tidegate_limiter::BorrowStats;
use tidegate_rules::{BorrowTerms, RegionalLimit, Rule};

/// `borrowed` is `None` if this node cannot borrow.
pub(super) fn to_json(
    rule: &Rule,
    regional: &RegionalLimit,
    borrowed: Option<&BorrowStats>,
) -> Json {
    let shares = regional.shares();
    let all: Map<String, Json> = shares
        .iter()
        .map(|(region, share)| (region.to_owned(), share.to_string().into()))
        .collect();
    json!({
        "region": regional.region(),
        "share": regional.own_share().to_string(),
        "shares": all,
        "tolerance": shares.tolerance().to_string(),
        "max_in_window": rule.max_in_all_regions(),
        "borrow": shares.borrow_terms().map(|terms| borrow_json(rule, terms, borrowed)),
    })
}

fn borrow_json(rule: &Rule, terms: &BorrowTerms, borrowed: Option<&BorrowStats>) -> Json {
    let units = borrowed.and_then(|stats| stats.rules.get(rule.id())).cloned().unwrap_or_default();
    let lender = |region: &str| {
        let known = borrowed.iter().flat_map(|stats| &stats.lenders);
        let store = known.into_iter().find(|lender| *lender.region == *region);
        let units = units.lenders.get(region).copied().unwrap_or_default();
        json!({
            "region": region,
            "has_store": store.is_some(),
            "usable": store.is_some_and(|lender| lender.is_usable),
            "held": units.held,
            "granted": units.granted,
            "spent": units.spent(),
            "returned": units.returned,
            "expired": units.expired,
        })
    };
    json!({
        "ttl_ms": terms.ttl.as_millis_ceil(),
        "every_ms": terms.every.as_millis_ceil(),
        "keep": terms.keep.to_string(),
        "refused_with_room": units.refused_with_room,
        "lenders": rule.lenders().iter().map(|it| lender(it.region())).collect::<Vec<_>>(),
    })
}
