//! Consistency modes: accepted forms, errors, the limits that stores count by, and reloads.

use std::collections::HashSet;
use std::path::Path;

use crate::common::{compile, error_text, facts};
use proptest::prelude::*;
use tidegate_core::key::{Fingerprint, Key, Secret};
use tidegate_core::lending::{LeaseBound, LeaseTerms};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_fixtures::golden::assert_golden;
use tidegate_rules::{
    Consistency, Document, ExternalRecords, InlineLimit, OverrideLimit, OverrideRecord,
    RecordError, Rule, RuleLimit, RuleSet,
};

const ANN: [(&str, &str); 1] = [("user_id", "ann")];

/// A rule set with the single rule `r`, keyed by user.
fn single(fields: &str) -> RuleSet {
    compile(&format!("rules: [{{ id: r, key_by: user_id, {fields} }}]"))
}

fn shared(fields: &str) -> RuleSet {
    single(fields).for_shared_store()
}

fn policy(rule: &Rule) -> &Policy {
    rule.limit().policy().unwrap()
}

fn limit_text(algorithm: Algorithm) -> String {
    format!("limit: {{ requests: 1000, window: 1s, algorithm: {algorithm} }}")
}

/// Number of cases: `TIDEGATE_CASES`, or a default that suits every change.
fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// The rule set with an override for Ann.
fn with_override(set: RuleSet, limit: OverrideLimit) -> Result<RuleSet, Vec<RecordError>> {
    let key = set.override_key("r", &facts(&ANN)).unwrap();
    let overrides = vec![OverrideRecord { rule: "r".to_owned(), key, limit }];
    set.with_records(&ExternalRecords { overrides, ..ExternalRecords::default() })
}

const fn requests(requests: u64, burst: u64) -> OverrideLimit {
    OverrideLimit::Requests { requests, burst: Some(burst) }
}

/// The rule that applies to Ann.
fn rule_for_ann(set: &RuleSet) -> &Rule {
    &set[set.variant_for(0, &facts(&ANN))]
}

#[test]
fn consistency_forms_are_accepted() {
    for (fields, name, text) in [
        ("", "exact", "exact"),
        (", consistency: exact", "exact", "exact"),
        (", consistency: leased", "leased", "leased (ttl 100ms, bound exact)"),
        (", consistency: leased, lease: {}", "leased", "leased (ttl 100ms, bound exact)"),
        (
            ", consistency: leased, lease: { ttl: 20ms, bound: plus_ttl }",
            "leased",
            "leased (ttl 20ms, bound plus_ttl)",
        ),
        (", consistency: async", "async", "async (flush 100ms)"),
        (", consistency: ASYNC, flush: 10ms", "async", "async (flush 10ms)"),
        (", consistency: async, flush: 10s", "async", "async (flush 10s)"),
        (", split: 2", "split", "split (2 parts)"),
        (", consistency: exact, split: 64", "split", "split (64 parts)"),
    ] {
        let set = single(&format!("limit: 1000/s{fields}"));
        let consistency = set.rules()[0].consistency();
        assert_eq!(
            (consistency.name(), consistency.to_string().as_str()),
            (name, text),
            "{fields}"
        );
    }
}

#[test]
fn leased_rule_has_terms_and_both_policies() {
    let set = single("limit: 1000/s burst 2000, consistency: leased, lease: { ttl: 50ms }");
    let Consistency::Leased(leased) = set.rules()[0].consistency() else { panic!("leased") };
    let terms = LeaseTerms { ttl: Micros::from_millis(50), bound: LeaseBound::Exact };
    assert_eq!(leased.terms(), terms);
    assert_eq!((leased.policy().limit(), leased.lending_policy().limit()), (2000, 1950));
    assert_eq!(*leased.lending_policy(), leased.policy().lending(terms).unwrap());
}

#[test]
fn split_parts_add_up_to_limit() {
    let set = single("limit: 103/s burst 21, split: 8");
    let Consistency::Split(split) = set.rules()[0].consistency() else { panic!("split") };
    let quotas = split.parts().iter().map(|part| *part.quota());
    let (requests, bursts): (Vec<_>, Vec<_>) =
        quotas.map(|quota| (quota.requests, quota.burst())).unzip();
    assert_eq!(requests, [13, 13, 13, 13, 13, 13, 13, 12]);
    assert_eq!(bursts, [3, 3, 3, 3, 3, 2, 2, 2]);
    assert_eq!(split.count(), 8);
}

/// Compares the exact text, so that every change to it is reviewed; `UPDATE_GOLDEN=1` rewrites it.
#[test]
fn consistency_errors_are_reported_with_advice() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/consistency.txt");
    let error = error_text(include_str!("../golden/consistency.yaml"));
    assert_golden(Path::new(path), error);
}

/// Follows the advice for a limit without room: the longest ttl, the smallest burst, the bound.
#[test]
fn advice_for_limits_without_room_is_accepted() {
    let error = error_text("rules: [{ limit: 1000/s burst 20, consistency: leased }]");
    for part in ["`lease: { ttl: 18ms }` or shorter", "a burst of 102 or more", "bound: plus_ttl"] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    for (limit, lease, accepted) in [
        ("1000/s burst 20", "ttl: 18ms", true),
        ("1000/s burst 20", "ttl: 19ms", false),
        ("1000/s burst 102", "", true),
        ("1000/s burst 101", "", false),
        ("1000/s burst 20", "bound: plus_ttl", true),
    ] {
        let source =
            format!("rules: [{{ limit: {limit}, consistency: leased, lease: {{ {lease} }} }}]");
        let document = Document::parse("rules.yaml", &source);
        assert_eq!(document.is_ok(), accepted, "{source}");
    }
}

#[test]
fn rules_without_counter_are_exact_in_every_mode() {
    for limit in ["unlimited", "deny"] {
        for mode in ["consistency: leased", "consistency: async", "split: 8"] {
            let set = shared(&format!("limit: {limit}, {mode}"));
            let rule = &set.rules()[0];
            assert_eq!((rule.consistency(), rule.limit().policy()), (&Consistency::Exact, None));
            assert_eq!(rule.max_in_window(), None);
        }
    }
}

#[test]
fn only_shared_stores_count_by_lending_policy() {
    let fields = "limit: 1000/s burst 2000, consistency: leased";
    let set = single(fields);
    let rule = &set.rules()[0];
    assert_eq!((policy(rule).limit(), rule.applied_consistency()), (2000, &Consistency::Exact));
    let set = set.for_shared_store().for_shared_store();
    let rule = &set.rules()[0];
    assert_eq!((policy(rule).limit(), rule.applied_consistency()), (1900, rule.consistency()));
    let RuleLimit::Policy(document) = rule.document_limit() else { panic!("a policy") };
    assert_eq!(document.limit(), 2000);
}

#[test]
fn max_in_window_follows_mode_and_store() {
    let bucket = "limit: 1000/s burst 2000";
    let window = |algorithm| format!("limit: 1000/s using {algorithm}");
    let plus = "consistency: leased, lease: { ttl: 50ms, bound: plus_ttl }";
    for (limit, mode, expected, in_process) in [
        (bucket.to_owned(), "mode: enforce", 3000, 3000),
        (bucket.to_owned(), "consistency: leased", 3000, 3000),
        (bucket.to_owned(), plus, 3050, 3000),
        (bucket.to_owned(), "consistency: async, flush: 20ms", 5020, 3000),
        (bucket.to_owned(), "split: 8", 3000, 3000),
        (window("fixed_window"), "consistency: leased", 2000, 2000),
        (window("fixed_window"), plus, 2000, 2000),
        (window("fixed_window"), "consistency: async", 4000, 2000),
        (window("sliding_window_log"), "consistency: leased", 1000, 1000),
        (window("sliding_window_log"), plus, 2000, 1000),
        (window("sliding_window_log"), "consistency: async", 2000, 1000),
        (window("sliding_window_counter"), "consistency: leased", 2000, 2000),
        (window("sliding_window_counter"), plus, 2050, 2000),
    ] {
        let set = single(&format!("{limit}, {mode}"));
        assert_eq!(set.rules()[0].max_in_window(), Some(in_process), "{limit}, {mode}");
        let set = set.for_shared_store();
        assert_eq!(set.rules()[0].max_in_window(), Some(expected), "{limit}, {mode}, shared");
    }
}

#[test]
fn consistency_edit_keeps_counter_and_derived_id() {
    let key = |set: &RuleSet| set.rules()[0].fingerprint(&facts(&ANN), set);
    for algorithm in Algorithm::ALL {
        let limit = limit_text(algorithm);
        let exact = single(&limit);
        let unnamed = |mode: &str| {
            let set = compile(&format!("rules: [{{ {limit}, {mode} }}]")).for_shared_store();
            set.rules()[0].id().to_owned()
        };
        for mode in [
            "consistency: leased",
            "consistency: leased, lease: { ttl: 20ms }",
            "consistency: leased, lease: { bound: plus_ttl }",
            "consistency: async",
            "split: 4",
        ] {
            let fields = format!("{limit}, {mode}, on_change: keep");
            assert_eq!(key(&exact), key(&single(&fields)), "{fields}");
            assert_eq!(key(&exact), key(&shared(&fields)), "{fields}");
            let edited = shared(&fields).inherit_from(&exact, Timestamp::from_micros(5));
            let has_new_counters = mode == "split: 4";
            let predecessor = edited.rules()[0].predecessor();
            assert_eq!(predecessor.is_some(), has_new_counters, "{fields}");
            assert_eq!(unnamed("mode: enforce"), unnamed(mode), "{fields}");
        }
    }
}

/// The key of the first rule for ann, if it is not split.
fn whole(set: &RuleSet) -> Key<'_> {
    let rule = &set.rules()[0];
    rule.key(rule.fingerprint(&facts(&ANN), set))
}

/// The hash and the limit of each part of the first rule for ann.
fn split_parts(set: &RuleSet) -> Vec<(Fingerprint, u64)> {
    let whole = whole(set);
    let part = |at| {
        let part = &set[at];
        let key = part.split_part().unwrap().key(whole);
        assert_eq!(key, part.key(key.fingerprint), "receipts keep the hash only");
        assert_eq!(key.owner(), whole.owner());
        (key.fingerprint, policy(part).limit())
    };
    set.rules()[0].split_parts().map(part).collect()
}

#[test]
fn split_rule_has_rule_for_each_part() {
    for key_by in ["user_id", "global"] {
        let load = |fields: &str| {
            compile(&format!("rules: [{{ id: r, key_by: {key_by}, limit: 103/s, {fields} }}]"))
        };
        assert!(split_parts(&load("split: 4")).is_empty(), "one process has one counter");
        let set = load("split: 4").for_shared_store().for_shared_store();
        let four = split_parts(&set);
        assert_eq!(four.iter().map(|(_, limit)| *limit).collect::<Vec<_>>(), [26, 26, 26, 25]);
        let three = load("split: 3").for_shared_store();
        let three = split_parts(&three);
        let whole = whole(&set).fingerprint;
        let prints = four.iter().chain(&three).map(|(print, _)| *print).chain([whole]);
        let distinct: HashSet<Fingerprint> = prints.collect();
        assert_eq!(distinct.len(), 8, "another number of parts has other counters");
        // A reload keeps them, and they follow the limit.
        let edited = load("split: 4, on_fail: deny").inherit_from(&set, Timestamp::EPOCH);
        assert_eq!(split_parts(&edited), four);
        assert_eq!(edited.rules_and_variants().len(), 5);
    }
}

#[test]
fn override_of_split_rule_has_own_parts() {
    let limits = |set: &RuleSet| {
        let limit = |at| policy(&set[at]).limit();
        rule_for_ann(set).split_parts().map(limit).collect::<Vec<_>>()
    };
    let shared_first = with_override(shared("limit: 100/s, split: 2"), requests(41, 60)).unwrap();
    assert_eq!(limits(&shared_first), [30, 30]);
    let shared_last = with_override(single("limit: 100/s, split: 2"), requests(41, 60)).unwrap();
    let shared_last = shared_last.for_shared_store();
    assert_eq!(limits(&shared_last), [30, 30]);
    let at = Timestamp::from_micros;
    let edited = with_override(shared("limit: 100/s, split: 2"), requests(41, 50)).unwrap();
    let edited = edited.inherit_from(&shared_last, at(9));
    assert_eq!(limits(&edited), [25, 25]);
    let since = |rule: &Rule| {
        let since = |at| policy(&edited[at]).effective_since();
        rule.split_parts().map(since).collect::<Vec<_>>()
    };
    assert_eq!(since(rule_for_ann(&edited)), [at(9); 2]);
    assert_eq!(since(&edited.rules()[0]), [Timestamp::EPOCH; 2], "unchanged");
}

/// The usage of the old parts is found under the policies by which they counted.
#[test]
fn changed_split_remembers_old_parts() {
    let load = |fields: &str| shared(&format!("limit: 100/s, on_change: keep, {fields}"));
    let (exact, two) = (load("on_fail: deny"), load("split: 2"));
    let to_four = load("split: 4").inherit_from(&two, Timestamp::EPOCH);
    let counters = to_four.rules()[0].predecessor().unwrap().counters(whole(&two));
    let found = counters.iter().map(|(key, policy)| (key.fingerprint, policy.limit()));
    assert_eq!(found.collect::<Vec<_>>(), split_parts(&two));
    let to_two = load("split: 2").inherit_from(&exact, Timestamp::EPOCH);
    let counters = to_two.rules()[0].predecessor().unwrap().counters(whole(&exact));
    assert_eq!(counters, [(whole(&exact), policy(&exact.rules()[0]))]);
    let reset = shared("limit: 100/s, split: 2").inherit_from(&exact, Timestamp::EPOCH);
    assert!(reset.rules()[0].predecessor().is_none(), "`on_change: reset` is the default");
}

#[test]
fn window_edit_of_leased_rule_has_predecessor() {
    let fields = |window| {
        format!(
            "limit: 1000/{window} using sliding_window_log, consistency: leased, on_change: keep"
        )
    };
    let before = shared(&fields("s"));
    let after = shared(&fields("m")).inherit_from(&before, Timestamp::from_micros(5));
    let predecessor = after.rules()[0].predecessor().unwrap();
    assert_eq!(predecessor.policy(), policy(&before.rules()[0]), "as the store counted");
}

#[test]
fn reload_keeps_effective_time_of_unchanged_leased_rules() {
    let at = Timestamp::from_micros;
    let since = |set: &RuleSet| policy(&set.rules()[0]).effective_since();
    for algorithm in Algorithm::ALL {
        let limit = limit_text(algorithm);
        let leased = format!("{limit}, consistency: leased");
        let first = shared(&leased).inherit_from(&shared("limit: 1/s"), at(100));
        assert_eq!(since(&first), at(100), "{algorithm}");
        let second = shared(&leased).inherit_from(&first, at(200));
        assert_eq!(since(&second), at(100), "{algorithm}");
        // A new rule set is shared if the previous one is.
        let third = single(&leased).inherit_from(&second, at(300));
        assert_eq!((since(&third), third.rules()[0].limit()), (at(100), second.rules()[0].limit()));
        let Consistency::Leased(held) = third.rules()[0].consistency() else { panic!("leased") };
        assert_eq!(held.policy().effective_since(), at(100));
        assert_eq!(held.lending_policy(), policy(&third.rules()[0]));
        let edited = shared(&format!("{leased}, lease: {{ ttl: 50ms }}"));
        let edited = edited.inherit_from(&third, at(400));
        // The store counts fixed windows by the same policy for every ttl.
        let expected = if algorithm == Algorithm::FixedWindow { at(100) } else { at(400) };
        assert_eq!(since(&edited), expected, "{algorithm}");
    }
}

#[test]
fn override_of_leased_rule_has_lending_policy() {
    let fields = "limit: 1000/s using sliding_window_log, consistency: leased";
    let numbers = OverrideLimit::Requests { requests: 50, burst: None };
    let windows = |set: &RuleSet| {
        let rule = rule_for_ann(set);
        let RuleLimit::Policy(document) = rule.document_limit() else { panic!("a policy") };
        (policy(rule).quota().window, document.quota().window, policy(rule).limit())
    };
    let (window, lent) = (Micros::from_millis(1000), Micros::from_millis(1100));
    let exact = with_override(single(fields), numbers).unwrap();
    assert_eq!(windows(&exact), (window, window, 50));
    assert_eq!(windows(&exact.for_shared_store()), (lent, window, 50));
    let late = with_override(shared(fields), numbers).unwrap();
    assert_eq!(windows(&late), (lent, window, 50), "an override of a shared rule set");
    let reloaded = with_override(shared(fields), numbers).unwrap();
    let reloaded = reloaded.inherit_from(&late, Timestamp::from_micros(9));
    assert_eq!(windows(&reloaded), (lent, window, 50));
    assert_eq!(policy(rule_for_ann(&reloaded)).effective_since(), Timestamp::EPOCH);
    // A key that lost its override counts by the rule's own lending policy from then on.
    let lost = shared(fields).inherit_from(&reloaded, Timestamp::from_micros(20));
    assert_eq!(windows(&lost), (lent, window, 1000));
    assert_eq!(policy(rule_for_ann(&lost)).effective_since(), Timestamp::from_micros(20));
    assert_eq!(policy(&lost.rules()[0]).effective_since(), Timestamp::EPOCH);
    for limit in [OverrideLimit::Unlimited, OverrideLimit::Deny] {
        let set = with_override(shared(fields), limit).unwrap();
        assert_eq!(*rule_for_ann(&set).consistency(), Consistency::Exact);
    }
}

/// Both limits have the lending limit 90.
#[test]
fn overrides_with_equal_lending_policy_stay_distinct() {
    let set = shared("limit: 1000/s using sliding_window_counter, consistency: leased");
    let keys = [("ann", 99), ("bob", 100)].map(|(user, requests)| OverrideRecord {
        rule: "r".to_owned(),
        key: set.override_key("r", &facts(&[("user_id", user)])).unwrap(),
        limit: OverrideLimit::Requests { requests, burst: None },
    });
    let records = ExternalRecords { overrides: keys.to_vec(), ..ExternalRecords::default() };
    let set = set.with_records(&records).unwrap();
    let numbers = ["ann", "bob"].map(|user| {
        let rule = &set[set.variant_for(0, &facts(&[("user_id", user)]))];
        let RuleLimit::Policy(document) = rule.document_limit() else { panic!("a policy") };
        (policy(rule).limit(), document.limit())
    });
    assert_eq!(numbers, [(90, 99), (90, 100)]);
}

#[test]
fn override_without_room_is_reported() {
    let message = |fields: &str, limit| with_override(single(fields), limit).unwrap_err();
    let leased = message("limit: 1000/s burst 2000, consistency: leased", requests(1000, 20));
    assert_eq!(
        leased[0].message,
        "rule `r` is leased: leases of 100ms leave no room in a burst of 20: they reserve the 100 \
         that refill in that time; write `lease: { ttl: 18ms }` or shorter, a burst of 102 or \
         more, or `lease: { bound: plus_ttl }`"
    );
    let split = message("limit: 1000/s, split: 8", requests(50, 50));
    assert_eq!(
        split[0].message,
        "rule `r` is split: each part of a split limit needs 10 requests and a burst of 1; write \
         `split: 5` or less, or a larger limit"
    );
    let plus = single("limit: 1000/s, consistency: leased, lease: { bound: plus_ttl }");
    assert!(with_override(plus, requests(1000, 20)).is_ok());
}

/// A split rule counts in its parts, so that an inline limit must not charge one of them.
#[test]
fn inline_limit_shares_no_counter_with_split_rule() {
    let load = |mode: &str| {
        compile(&format!(
            "rules: [{{ id: r, match: {{ domain: d, descriptor: [{{ key: k }}] }}, \
             key_by: descriptor, limit: 1000/s using fixed_window, {mode} }}]"
        ))
    };
    let pairs = [tidegate_rules::DescriptorPair { key: "k".into(), value: "v".into() }];
    let mut request = facts(&[("domain", "d")]);
    request.set_descriptor(&pairs);
    let limit = InlineLimit { requests: 5, window: Micros::from_secs(1) };
    let shares = |set: &RuleSet| {
        let inline = set.with_inline_limit_as_envoy(limit, &request).unwrap();
        inline.rules()[0].fingerprint(&request, &inline)
            == set.rules()[0].fingerprint(&request, set)
    };
    assert!(shares(&load("consistency: leased")));
    assert!(!shares(&load("split: 4")));
}

fn leased_rule() -> impl Strategy<Value = String> {
    let numbers = (1_u64..20_000, 1_u64..20_000, 1_u64..5_000, 1_u64..1_000, any::<bool>());
    let algorithm = prop::sample::select(Algorithm::ALL.to_vec());
    (numbers, algorithm).prop_map(|((requests, burst, window, ttl, plus), algorithm)| {
        let requests =
            if algorithm == Algorithm::SlidingWindowLog { requests / 2 + 1 } else { requests };
        let burst = if algorithm.is_bucket() { format!(", burst: {burst}") } else { String::new() };
        let bound = if plus { "plus_ttl" } else { "exact" };
        format!(
            "limit: {{ requests: {requests}, window: {window}ms, algorithm: {algorithm}{burst} }}, \
             consistency: leased, lease: {{ ttl: {ttl}ms, bound: {bound} }}"
        )
    })
}

/// A document without its errors, or `None` if there are any.
fn compile_valid(source: &str) -> Option<RuleSet> {
    let document = Document::parse("rules.yaml", source).ok()?;
    Some(RuleSet::compile(&document, Secret::UNSET).expect("a parsed document compiles"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The store never counts a leased rule by more than the document's limit.
    #[test]
    fn lending_policy_is_within_document_policy(fields in leased_rule()) {
        let Some(set) = compile_valid(&format!("rules: [{{ id: r, {fields} }}]")) else {
            return Ok(());
        };
        let exact = set.rules()[0].max_in_window();
        let set = set.for_shared_store();
        let rule = &set.rules()[0];
        let RuleLimit::Policy(document) = rule.document_limit() else { panic!("a policy") };
        let lent = policy(rule);
        prop_assert!((1..=document.limit()).contains(&lent.limit()), "{}", fields);
        prop_assert!(lent.max_in_window() <= document.max_in_window(), "{}", fields);
        prop_assert!(rule.max_in_window() >= exact, "{}", fields);
        prop_assert_eq!(lent.algorithm(), document.algorithm());
    }
}
