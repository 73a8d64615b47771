//! Rules that divide their limit among regions: accepted forms, errors, shares, edits and
//! overrides.

use std::path::Path;

use crate::common::{error_text, facts};
use proptest::prelude::*;
use tidegate_core::key::Secret;
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::golden::assert_golden;
use tidegate_rules::{
    BorrowTerms, Document, ExternalRecords, OverrideLimit, OverrideRecord, RecordError,
    RegionLender, Rule, RuleLimit, RuleSet,
};

const ANN: [(&str, &str); 1] = [("user_id", "ann")];

/// Compiles the single rule `r` for a node in a region.
fn compile_in(region: Option<&str>, fields: &str) -> Result<RuleSet, String> {
    let source = format!("rules: [{{ id: r, key_by: user_id, {fields} }}]");
    let mut document = Document::parse("t", &source).map_err(|error| error.to_string())?;
    document.set_region(region);
    RuleSet::compile(&document, Secret::UNSET).map_err(|error| error.to_string())
}

fn in_region(region: &str, fields: &str) -> RuleSet {
    compile_in(Some(region), fields).unwrap()
}

/// Requests and burst of the limit that the store counts by.
fn numbers(rule: &Rule) -> (u64, Option<u64>) {
    let quota = rule.limit().policy().unwrap().quota();
    (quota.requests, quota.burst)
}

const SHARES: &str = "regions: { shares: { eu: 50%, us: 30%, ap: 20% } }";

#[test]
fn region_enforces_its_share_rounded_down() {
    let limit = format!("limit: 60001/min burst 2005, {SHARES}");
    for (region, expected) in
        [("eu", (30_000, 1_002)), ("us", (18_000, 601)), ("ap", (12_000, 401))]
    {
        let set = in_region(region, &limit);
        let rule = &set.rules()[0];
        let RuleLimit::Policy(whole) = rule.document_limit() else { panic!("no limit") };
        assert_eq!(numbers(rule), (expected.0, Some(expected.1)), "{region}");
        assert_eq!(whole.quota().requests, 60_001, "{region}");
        assert_eq!(rule.max_in_window(), Some(expected.0 + expected.1), "{region}");
        let all = 30_000 + 1_002 + 18_000 + 601 + 12_000 + 401;
        assert_eq!(rule.max_in_all_regions(), Some(all), "{region}");
    }
}

#[test]
fn region_leases_from_its_share() {
    let fields = format!("limit: 1000/s burst 2000, consistency: leased, {SHARES}");
    let set = in_region("us", &fields).for_shared_store();
    // 30 % of both, less what refills in 100 ms.
    assert_eq!(numbers(&set.rules()[0]), (300, Some(570)));
    assert_eq!(set.rules()[0].max_in_window(), Some(900));
}

#[test]
fn mistakes_in_regions_are_errors() {
    let wrong = [
        ("limit: 9/s", "shares: { eu: 60%, us: 50% }", "add up to 110%", "`tolerance: 10%`"),
        ("limit: 9/s", "shares: { eu: 60%, us: 51% }, tolerance: 10%", "above 110%", "smaller"),
        ("limit: 9/s", "shares: { us: 50% }", "`eu` has no share", "`eu` in `shares`"),
        ("limit: 9/s", "shares: { eu: 99%, us: 1% }", "rounds to nothing", "a larger limit"),
        ("limit: 9/s burst 2", "shares: { eu: 60%, us: 40% }", "rounds to nothing", "a larger"),
        ("limit: 9/s", "shares: { eu: 0.5 }", "ends with `%`", "such as `50%`"),
        ("limit: 9/s", "shares: { eu: 50%, \"u s\": 50% }", "not the name of a region", "`eu-1`"),
        ("limit: 9/s", "shares: {}", "no region has a share", "`shares:"),
        ("limit: 9/s", "tolerance: 1%", "`shares` is missing", "`shares:"),
        ("limit: 9/s", "share: { eu: 50% }", "found `share`", "`shares`"),
        ("limit: unlimited", "shares: { eu: 50% }", "no limit to divide", "leave `regions` out"),
        ("limit: 90/s, cost: 5", "shares: { eu: 95%, us: 5% }", "costs 5", "or a larger share"),
        (
            "limit: 1000/s, consistency: leased",
            "shares: { eu: 50% }, borrow: {}",
            "only eu has a share, so no region can lend",
            "the share of another region",
        ),
        (
            "limit: 1000/s burst 105, consistency: leased",
            "shares: { eu: 90%, us: 10% }",
            "leave no room in a burst of 10: they reserve the 10 that refill",
            "a burst of 120 or more for all regions, or `lease: { bound: plus_ttl }`",
        ),
        (
            "limit: 100/s, split: 4",
            "shares: { eu: 90%, us: 10% }",
            "each part of a split limit needs",
            "leave `split` out",
        ),
    ];
    for (limit, regions, expected, hint) in wrong {
        let fields = format!("{limit}, regions: {{ {regions} }}");
        let error = compile_in(Some("eu"), &fields).map(|_| ()).unwrap_err();
        assert!(error.contains(expected) && error.contains(hint), "{fields}\n{error}");
    }
}

#[test]
fn node_without_region_rejects_shares() {
    let error = compile_in(None, &format!("limit: 9/s, {SHARES}")).map(|_| ()).unwrap_err();
    for expected in ["t:1:", "has no region", "`--region eu`", "`server: { region: eu }`"] {
        assert!(error.contains(expected), "{expected}\n{error}");
    }
    assert!(compile_in(None, "limit: 9/s").is_ok());
}

#[test]
fn undivided_rule_applies_in_every_region() {
    let set = in_region("eu", "limit: 9/s burst 4");
    assert_eq!(numbers(&set.rules()[0]), (9, Some(4)));
    assert_eq!(set.rules()[0].max_in_all_regions(), None);
}

#[test]
fn changed_share_keeps_counter() {
    let before = in_region("eu", &format!("limit: 100/s, {SHARES}"));
    let (at, later) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
    let before = before.inherit_from(&in_region("eu", "limit: 7/s"), at);
    let since = |set: &RuleSet| set.rules()[0].limit().policy().unwrap().effective_since();
    let fingerprint = |set: &RuleSet| set.rules()[0].fingerprint(&facts(&ANN), set);
    let unchanged = in_region("eu", &format!("limit: 100/s, {SHARES}"));
    let changed = in_region("eu", "limit: 100/s, regions: { shares: { eu: 70%, us: 30% } }");
    let undivided = in_region("eu", "limit: 100/s");
    for (next, expected) in [(unchanged, at), (changed, later), (undivided, later)] {
        let next = next.inherit_from(&before, later);
        assert_eq!((since(&next), fingerprint(&next)), (expected, fingerprint(&before)));
        assert!(next.rules()[0].predecessor().is_none());
    }
}

/// The rule set with an override for Ann.
fn with_override(set: RuleSet, limit: OverrideLimit) -> Result<RuleSet, Vec<RecordError>> {
    let key = set.override_key("r", &facts(&ANN)).unwrap();
    let overrides = vec![OverrideRecord { rule: "r".to_owned(), key, limit }];
    set.with_records(&ExternalRecords { overrides, ..ExternalRecords::default() })
}

#[test]
fn override_is_divided_among_regions() {
    let base = || in_region("us", &format!("limit: 100/s burst 50, {SHARES}"));
    let raised = OverrideLimit::Requests { requests: 1_000, burst: Some(500) };
    let set = with_override(base(), raised).unwrap();
    let for_ann = |set: &RuleSet| numbers(&set[set.variant_for(0, &facts(&ANN))]);
    assert_eq!(for_ann(&set), (300, Some(150)));
    let next = with_override(base(), raised).unwrap();
    let next = next.inherit_from(&set, Timestamp::from_micros(9));
    assert_eq!(for_ann(&next), (300, Some(150)), "a reload divides the override once");
    let lost = base().inherit_from(&set, Timestamp::from_micros(9));
    assert_eq!(for_ann(&lost), (30, Some(15)));
    let tiny = OverrideLimit::Requests { requests: 2, burst: None };
    let error = with_override(base(), tiny).map(|_| ()).unwrap_err().remove(0).message;
    assert!(error.contains("divided among regions") && error.contains("nothing"), "{error}");
}

/// 1000/s, of which Europe has 500/s, with these settings of `borrow`.
fn borrowing(settings: &str) -> String {
    format!(
        "limit: 1000/s burst 2000, consistency: leased,
         regions: {{ shares: {{ eu: 50%, us: 30%, ap: 20% }}, borrow: {settings} }}"
    )
}

fn borrow_terms(set: &RuleSet) -> BorrowTerms {
    *set.rules()[0].regional().unwrap().shares().borrow_terms().unwrap()
}

#[test]
fn borrow_settings_have_defaults() {
    for (settings, millis, keep) in [
        ("{}", (500, 100), "50%"),
        ("{ ttl: 1s, keep: 0% }", (1_000, 100), "0%"),
        ("{ ttl: 200ms }", (200, 40), "50%"),
        ("{ ttl: 10ms }", (10, 10), "50%"),
        ("{ every: 500ms, keep: 100% }", (500, 500), "100%"),
    ] {
        let BorrowTerms { ttl, every, keep: kept } =
            borrow_terms(&in_region("eu", &borrowing(settings)));
        let (ttl_ms, every_ms) = millis;
        let expected = (Micros::from_millis(ttl_ms), Micros::from_millis(every_ms));
        assert_eq!(((ttl, every), &*kept.to_string()), (expected, keep), "{settings}");
    }
    let set = in_region("eu", &format!("limit: 9/s, {SHARES}"));
    assert_eq!(set.rules()[0].regional().unwrap().shares().borrow_terms(), None);
}

/// By the formula of docs/internals/regions.md: (1 − keep) · the lending burst is at least what
/// refills in `every` and a round trip.
#[test]
fn lending_shortage_names_what_suffices() {
    // Regions with 150 ms between them: half of 300/s refills in 250 ms.
    let shortage = |fields: &str, round_trip_ms| {
        let set = in_region("eu", fields);
        let regional = set.rules()[0].regional().unwrap();
        let us = regional.lenders().iter().find(|lender| lender.region() == "us").unwrap();
        regional.lending_shortage(us, Micros::from_millis(round_trip_ms))
    };
    assert_eq!(shortage(&borrowing("{}"), 150), None, "225 of a lending burst of 450");
    // The lending burst is 1000 · 30 % − 150 = 150.
    let tight = borrowing("{}").replace("burst 2000", "burst 1000");
    let found = shortage(&tight, 500).unwrap();
    assert_eq!((found.lent_at_once, found.refilled), (75, 180));
    assert_eq!((found.min_burst, found.max_keep), (Some(1_700), None));
    let found = shortage(&tight, 200).unwrap();
    assert_eq!((found.lent_at_once, found.refilled), (75, 90));
    let (burst, keep) = (found.min_burst.unwrap(), found.max_keep.unwrap());
    assert_eq!((burst, &*keep.to_string()), (1_100, "40%"));
    let with_burst = |burst: u64| tight.replace("burst 1000", &format!("burst {burst}"));
    assert_eq!(shortage(&with_burst(burst), 200), None);
    assert_ne!(shortage(&with_burst(burst - 4), 200), None);
    assert_eq!(shortage(&borrowing("{ keep: 40% }").replace("2000", "1000"), 200), None);
    assert_ne!(shortage(&borrowing("{ keep: 41% }").replace("2000", "1000"), 200), None);
    let nothing = shortage(&borrowing("{ keep: 100% }"), 1).unwrap();
    assert_eq!((nothing.lent_at_once, nothing.min_burst), (0, None));
    let window = borrowing("{}").replace("burst 2000", "using fixed_window");
    assert_eq!(shortage(&window, 200), None);
}

/// The store of a region lends for the longer of the two leases.
#[test]
fn share_leaves_room_for_longer_lease() {
    for (settings, lease, burst) in [
        ("{}", "100ms", 600 - 150),
        ("{ ttl: 50ms }", "100ms", 600 - 30),
        ("{ ttl: 1s }", "100ms", 600 - 300),
        ("{}", "1s", 600 - 300),
    ] {
        let fields = format!("{}, lease: {{ ttl: {lease} }}", borrowing(settings));
        let set = in_region("us", &fields).for_shared_store();
        assert_eq!(numbers(&set.rules()[0]), (300, Some(burst)), "{settings} {lease}");
        assert_eq!(set.rules()[0].max_in_window(), Some(900), "{settings} {lease}");
        assert_eq!(set.rules()[0].max_in_all_regions(), Some(3_000), "{settings} {lease}");
    }
    let twice = format!("{}, lease: {{ bound: plus_ttl }}", borrowing("{}"));
    let set = in_region("us", &twice).for_shared_store();
    assert_eq!(set.rules()[0].max_in_window(), Some(900 + 150), "500 ms at 300 a second");
}

/// A borrowing node must count exactly like the nodes of the region that it borrows from.
#[test]
fn lenders_count_like_their_own_nodes() {
    for limit in [
        "1000/s burst 2000",
        "1000/10s using fixed_window",
        "1000/10s using sliding_window_log",
        "1000/10s using sliding_window_counter",
    ] {
        let fields = borrowing("{ keep: 25% }").replace("1000/s burst 2000", limit);
        let set = |region| {
            let at = Timestamp::from_micros(7);
            let empty = in_region(region, "limit: 7/s").for_shared_store();
            in_region(region, &fields).inherit_from(&empty, at)
        };
        let (eu, facts) = (set("eu"), facts(&ANN));
        let lenders = eu.rules()[0].lenders();
        assert_eq!(lenders.len(), 2);
        for lender in lenders {
            let theirs = set(lender.region());
            let (rule, own) = (&theirs.rules()[0], &eu.rules()[0]);
            assert_eq!(rule.limit().policy(), Some(lender.policy()), "{limit}");
            assert_eq!(lender.kept_units(), lender.policy().limit() / 4, "{limit}");
            let (key, own_key) = (rule.fingerprint(&facts, &theirs), own.fingerprint(&facts, &eu));
            assert_eq!(rule.key(key), own.key(own_key), "{limit}");
        }
    }
}

#[test]
fn rule_of_single_process_has_no_lenders() {
    let set = in_region("eu", &borrowing("{}"));
    assert!(set.rules()[0].lenders().is_empty());
    let shared = set.for_shared_store();
    let lenders = shared.rules()[0].lenders().iter();
    let regions: Vec<&str> = lenders.map(RegionLender::region).collect();
    assert_eq!(regions, ["us", "ap"]);
    let fixed = in_region("eu", &format!("limit: 9/s burst 9, {SHARES}")).for_shared_store();
    assert!(fixed.rules()[0].lenders().is_empty());
}

#[test]
fn changed_share_of_lender_takes_effect_then() {
    let (at, later) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
    let first = in_region("eu", &borrowing("{}"));
    let first = first.inherit_from(&in_region("eu", "limit: 7/s").for_shared_store(), at);
    let next = borrowing("{}").replace("us: 30%", "us: 25%");
    let next = in_region("eu", &next).inherit_from(&first, later);
    let since = |set: &RuleSet| -> Vec<Timestamp> {
        let lenders = set.rules()[0].lenders().iter();
        lenders.map(|lender| lender.policy().effective_since()).collect()
    };
    assert_eq!((since(&first), since(&next)), (vec![at, at], vec![later, at]));
}

#[test]
fn override_of_borrowing_rule_has_lenders() {
    let raised = OverrideLimit::Requests { requests: 10_000, burst: Some(20_000) };
    let set = with_override(in_region("eu", &borrowing("{}")), raised).unwrap();
    let set = set.for_shared_store();
    let lenders = set[set.variant_for(0, &facts(&ANN))].lenders();
    assert_eq!(lenders[0].policy().quota().burst, Some(6_000 - 1_500));
    let tight = OverrideLimit::Requests { requests: 1_000, burst: Some(500) };
    let error = with_override(in_region("eu", &borrowing("{}")), tight).map(|_| ()).unwrap_err();
    assert!(error[0].message.contains("leave no room in a burst of 250"), "{error:?}");
}

/// Compares the exact text, so that every change to it is reviewed; `UPDATE_GOLDEN=1` rewrites it.
#[test]
fn mistakes_in_borrowing_are_errors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/borrow.txt");
    assert_golden(Path::new(path), error_text(include_str!("../golden/borrow.yaml")));
}

proptest! {
    /// All regions together never have more than the limit plus the tolerance.
    #[test]
    fn shares_stay_within_limit_and_tolerance(
        requests in 1_000_u64..1_000_000,
        burst in 1_000_u64..1_000_000,
        shares in prop::collection::vec(1_u32..=1_000_000, 1..6),
        tolerance in 0_u32..=1_000_000,
    ) {
        let percent = |ppm: u32| format!("{}.{:04}%", ppm / 10_000, ppm % 10_000);
        let list = shares.iter().enumerate().map(|(at, share)| format!("r{at}: {}", percent(*share)));
        let list = list.collect::<Vec<_>>().join(", ");
        let regions = format!("regions: {{ shares: {{ {list} }}, tolerance: {} }}", percent(tolerance));
        let fields = format!("limit: {requests}/min burst {burst}, {regions}");
        let sum: u64 = shares.iter().map(|share| u64::from(*share)).sum();
        let sets: Result<Vec<RuleSet>, String> =
            (0..shares.len()).map(|at| compile_in(Some(&format!("r{at}")), &fields)).collect();
        match sets {
            Err(error) if sum > 1_000_000 + u64::from(tolerance) => {
                prop_assert!(error.contains("add up to"), "{error}");
            }
            Err(error) => prop_assert!(error.contains("rounds to nothing"), "{error}"),
            Ok(sets) => {
                let total = |number: fn(&Rule) -> u64| {
                    sets.iter().map(|set| number(&set.rules()[0])).sum::<u64>()
                };
                let most = |whole: u64| whole * (1_000_000 + u64::from(tolerance)) / 1_000_000;
                prop_assert!(total(|rule| numbers(rule).0) <= most(requests));
                prop_assert!(total(|rule| numbers(rule).1.unwrap()) <= most(burst));
            }
        }
    }
}

#[test]
fn region_errors_name_their_line() {
    let text = error_text("rules:\n  - limit: 9/s\n    regions: { shares: { eu: 50, us: 50% } }\n");
    assert!(text.contains(":3:"), "{text}");
}
