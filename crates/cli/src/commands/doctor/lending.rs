//! Warns about rules whose regions are too far apart to lend all that they leave.

use std::time::Duration;

use tidegate_core::time::Micros;
use tidegate_redis::{FindingSeverity, RedisServerReport, StoreFinding};
use tidegate_rules::{LendingShortage, RegionLender, Rule, RuleSet};

/// A region, and the round trip to its store.
pub(super) struct RegionDistance {
    pub(super) region: String,
    pub(super) round_trip: Duration,
}

impl RegionDistance {
    /// The distance of the slowest of the servers of a region; `None` if none answered.
    pub(super) fn measured(region: &str, servers: &[RedisServerReport]) -> Option<Self> {
        let round_trip = servers.iter().map(|server| server.round_trip.p50).max()?;
        Some(Self { region: region.to_owned(), round_trip })
    }
}

/// One warning for each rule of which a region lends less than refills until the next question. It
/// names the most distant of these regions, since what suffices for that one suffices for all.
pub(super) fn lending_findings(rules: &RuleSet, distances: &[RegionDistance]) -> Vec<StoreFinding> {
    let active = rules.rules().iter().filter(|rule| rule.is_active());
    active.filter_map(|rule| lending_finding(rule, distances)).collect()
}

fn lending_finding(rule: &Rule, distances: &[RegionDistance]) -> Option<StoreFinding> {
    let regional = rule.regional()?;
    let shortage = |lender: &RegionLender| {
        let distance = distances.iter().find(|it| it.region == lender.region())?;
        let round_trip = Micros::new(u64::try_from(distance.round_trip.as_micros()).ok()?);
        Some((distance, regional.lending_shortage(lender, round_trip)?))
    };
    let shortages = regional.lenders().iter().filter_map(shortage);
    let (distance, shortage) = shortages.max_by_key(|(distance, _)| distance.round_trip)?;
    let LendingShortage { lent_at_once, refilled, .. } = shortage;
    let pause = distance.round_trip + Duration::from(regional.shares().borrow_terms()?.every);
    let (id, region) = (rule.id(), &distance.region);
    Some(StoreFinding {
        severity: FindingSeverity::Warning,
        server: String::new(),
        what: format!(
            "rule {id}: region {region} lends at most {lent_at_once} units at once, but {refilled} \
             refill in `every` and a round trip, {} ms: a part of what it leaves stays unused",
            pause.as_millis()
        ),
        advice: advice(&shortage),
    })
}

fn advice(LendingShortage { min_burst, max_keep, .. }: &LendingShortage) -> String {
    let burst = min_burst.map(|burst| format!("a `burst` of {burst} or more"));
    let keep = max_keep.map(|keep| format!("`borrow: {{ keep: {keep} }}` or less"));
    burst.into_iter().chain(keep).collect::<Vec<_>>().join(", or ")
}

#[cfg(test)]
mod tests {
    use tidegate_core::key::Secret;
    use tidegate_rules::Document;

    use super::*;

    fn findings(burst: u64, borrow: &str, distances: &[(&str, u64)]) -> Vec<String> {
        let text = format!(
            "rules:
  - id: customers
    key_by: api_key
    limit: 1000/s burst {burst}
    consistency: leased
    regions: {{ shares: {{ eu: 50%, us: 30%, ap: 20% }}, borrow: {borrow} }}
  - {{ id: undivided, key_by: ip, limit: 5/s }}
"
        );
        let mut document = Document::parse("t", &text).unwrap();
        document.set_region(Some("eu"));
        let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
        let distance = |(region, millis): &(&str, u64)| RegionDistance {
            region: (*region).to_owned(),
            round_trip: Duration::from_millis(*millis),
        };
        let distances: Vec<RegionDistance> = distances.iter().map(distance).collect();
        let found = lending_findings(&rules, &distances).into_iter();
        found.map(|found| format!("{}; {}", found.what, found.advice)).collect()
    }

    #[test]
    fn shortage_names_most_distant_region_and_remedies() {
        let found = findings(1_000, "{}", &[("us", 170), ("ap", 200)]);
        let expected = "rule customers: region ap lends at most 50 units at once, but 60 refill in \
                        `every` and a round trip, 300 ms: a part of what it leaves stays unused; \
                        a `burst` of 1100 or more, or `borrow: { keep: 40% }` or less";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn sufficient_burst_or_keep_gives_no_warning() {
        assert_eq!(findings(1_100, "{}", &[("us", 170), ("ap", 200)]), [""; 0]);
        assert_eq!(findings(1_000, "{ keep: 40% }", &[("us", 170), ("ap", 200)]), [""; 0]);
        assert_eq!(findings(1_000, "{}", &[("us", 100)]), [""; 0]);
        assert_eq!(findings(1_000, "{}", &[]), [""; 0], "no region was measured");
    }

    #[test]
    fn impossible_remedies_are_not_recommended() {
        let far = findings(1_000, "{}", &[("us", 900)]);
        assert!(far[0].ends_with("; a `burst` of 2500 or more"), "{far:?}");
        let kept = findings(2_000, "{ keep: 100% }", &[("us", 100)]);
        assert!(kept[0].ends_with("; `borrow: { keep: 86% }` or less"), "{kept:?}");
    }
}
