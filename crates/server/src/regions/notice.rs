//! Compares the rules that borrow with the region stores that are configured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate_rules::RuleSet;
use tidegate_rules::decode::nearest;

use super::borrowing::borrow_shares;

/// Something that a user should know about a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionNotice {
    /// What it is.
    pub what: String,
    /// What to write.
    pub advice: String,
}

/// From which regions the rules borrow nothing because they have no store, and which stores no
/// rule uses. `stores` are the regions with a store.
pub fn rule_notices(rules: &RuleSet, stores: &[&str]) -> Vec<RegionNotice> {
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut lending: BTreeSet<&str> = BTreeSet::new();
    for rule in rules.rules().iter().filter(|rule| rule.is_active()) {
        let Some(regional) = borrow_shares(rule) else { continue };
        let others = regional.shares().iter().map(|(region, _)| region);
        for region in others.filter(|region| *region != regional.region()) {
            lending.insert(region);
            if !stores.contains(&region) {
                missing.entry(region).or_default().push(rule.id());
            }
        }
    }
    let unused = stores.iter().filter(|region| !lending.contains(*region));
    let without = missing.into_iter().map(|(region, rules)| missing_store(region, &rules));
    without.chain(unused.map(|region| unused_store(region, &lending))).collect()
}

fn missing_store(region: &str, rules: &[&str]) -> RegionNotice {
    let (first, more) = (rules.first().unwrap_or(&""), rules.len().saturating_sub(1));
    let rules = match more {
        0 => format!("rule {first}"),
        more => format!("rule {first} and {more} more"),
    };
    RegionNotice {
        what: format!("{rules}: nothing is borrowed from region {region}, which has no store here"),
        advice: format!("--region-store {region}=redis://HOST:6379"),
    }
}

fn unused_store(region: &str, lending: &BTreeSet<&str>) -> RegionNotice {
    let advice = match nearest(region, lending.iter().copied()) {
        Some(near) => format!("--region-store {near}=URL"),
        None => format!("`{region}` in the `shares` of a rule with `borrow`, or no store for it"),
    };
    let what =
        format!("the store of region {region} is not used: no rule borrows from that region");
    RegionNotice { what, advice }
}

impl fmt::Display for RegionNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write: {}", self.what, self.advice)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    use super::*;

    fn notices(regions: &str, stores: &[&str]) -> Vec<String> {
        let rule = format!("id: r, limit: 1000/s burst 2000, consistency: leased, {regions}");
        let text = format!("rules:\n  - {{ {rule} }}\n");
        let mut document = Document::parse("t", &text).unwrap();
        document.set_region(Some("eu"));
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        rule_notices(&rules, stores).iter().map(ToString::to_string).collect()
    }

    const BORROW: &str = "regions: { shares: { eu: 50%, us: 30%, ap: 20% }, borrow: {} }";

    #[test]
    fn every_lender_with_store_needs_no_notice() {
        assert_eq!(notices(BORROW, &["us", "ap"]), [""; 0]);
        assert_eq!(notices("regions: { shares: { eu: 50%, us: 50% } }", &[]), [""; 0]);
    }

    #[test]
    fn region_without_store_is_noticed() {
        let found = notices(BORROW, &["us"]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("rule r: nothing is borrowed from region ap"), "{found:?}");
        assert!(found[0].contains("--region-store ap=redis://"), "{found:?}");
    }

    #[test]
    fn misspelled_region_is_noticed_with_nearest_name() {
        let found = notices(BORROW, &["us", "app"]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].contains("region app is not used"), "{found:?}");
        assert!(found[1].ends_with("write: --region-store ap=URL"), "{found:?}");
    }
}
