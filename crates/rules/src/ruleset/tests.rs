use proptest::prelude::*;
use tidegate_core::key::Secret;

use super::*;

fn compile(source: &str) -> RuleSet {
    let document = Document::parse("rules.yaml", source).unwrap_or_else(|error| panic!("{error}"));
    RuleSet::compile(&document, Secret::UNSET).unwrap_or_else(|error| panic!("{error}"))
}

fn linear_matches(set: &RuleSet, facts: &Facts<'_>) -> Vec<u32> {
    let request = MatchInput::new(facts);
    let rules = (0_u32..).zip(&set.rules);
    rules.filter(|(_, rule)| rule.active && rule.governs(&request)).map(|(at, _)| at).collect()
}

/// Number of rules whose conditions are evaluated.
fn candidate_count(set: &RuleSet, facts: &Facts<'_>) -> usize {
    let mut found = Vec::new();
    set.index.candidates(&MatchInput::new(facts), &mut found);
    found.len()
}

fn condition() -> impl Strategy<Value = String> {
    let tier = prop::sample::subsequence(vec!["free", "paid", "gold", "p*"], 1..=3)
        .prop_map(|values| format!("tier: [{}]", values.join(", ")));
    let tenant = (0..6).prop_map(|n| format!("tenant: t{n}"));
    let not = (0..3).prop_map(|n| format!("tenant: {{ not: [t{n}, x*] }}"));
    let ip = prop::sample::select(vec!["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32"])
        .prop_map(|net| format!("ip: [{net}, 192.0.2.0/24]"));
    let method = prop::sample::select(vec!["", "GET ", "POST ", "GET|PUT "]);
    let path = prop::sample::select(vec![
        "/",
        "/*",
        "/a",
        "/a/*",
        "/a/b",
        "/a/{x}",
        "/{x}/b",
        "/a/{x}/*",
        "/{x}/{y}/c",
        "/b/c/d",
    ]);
    let pattern = (method, path).prop_map(|(method, path)| format!("\"{method}{path}\""));
    let endpoint = prop::collection::vec(pattern, 1..3)
        .prop_map(|patterns| format!("endpoint: [{}]", patterns.join(", ")));
    prop_oneof![tier, tenant, not, ip, endpoint.clone(), endpoint]
}

fn document() -> impl Strategy<Value = String> {
    let rule = (prop::collection::vec(condition(), 0..4), prop::bool::weighted(0.95)).prop_map(
        |(mut conditions, active)| {
            // A `match` names each fact once.
            conditions.sort_by_key(|text| text.split(':').next().map(str::to_owned));
            conditions.dedup_by_key(|text| text.split(':').next().map(str::to_owned));
            let matched = conditions.join(", ");
            format!("- {{ match: {{ {matched} }}, is_active: {active}, limit: 1/s }}\n")
        },
    );
    prop::collection::vec(rule, 0..80)
        .prop_map(|rules| format!("facts: [tenant]\nrules:\n{}", rules.concat()))
}

fn request() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let values: [(&str, &[&str]); 6] = [
        ("tier", &["free", "paid", "gold", "other"]),
        ("tenant", &["t0", "t1", "t2", "t5", "x1"]),
        ("ip", &["10.1.2.3", "10.9.9.9", "192.0.2.8", "2001:db8::1", "::ffff:10.1.0.1", "?"]),
        ("method", &["GET", "POST", "PUT"]),
        ("path", &["/", "/a", "/a/", "/a/b", "/a/b/c", "//a//c/d", "/b/b", "/x/y/c", "/z"]),
        ("endpoint", &["GET /a/b", "/a", "search"]),
    ];
    let facts: Vec<_> = values
        .into_iter()
        .map(|(name, values)| {
            let likely = if name == "endpoint" { 0.1 } else { 0.8 };
            let value = prop::sample::select(values.to_vec());
            prop::option::weighted(likely, value.prop_map(move |value| (name, value)))
        })
        .collect();
    facts.prop_map(|facts| facts.into_iter().flatten().collect())
}

proptest! {
    // 500 rule sets with 50 requests each.
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn rule_index_equals_linear_scan(
        source in document(),
        requests in prop::collection::vec(request(), 50),
    ) {
        let set = compile(&source);
        let mut found = MatchedRules::new();
        for pairs in requests {
            let facts: Facts<'_> = pairs.into_iter().collect();
            set.match_rules(&facts, &mut found);
            prop_assert_eq!(found.to_vec(), linear_matches(&set, &facts), "{:?}\n{}", facts, source);
        }
    }
}

/// Measures the cost as the number of rules evaluated; benchmarks measure the time.
#[test]
fn candidate_count_is_independent_of_rules() {
    let grid: String = (0..10_000)
        .map(|n| {
            format!("- {{match: {{tier: t{}, endpoint: /e{}}}, limit: 1/s}}\n", n / 100, n % 100)
        })
        .collect();
    let set = compile(&format!("rules:\n{grid}"));
    let facts: Facts<'_> = [("tier", "t42"), ("path", "/e17")].into_iter().collect();
    assert_eq!((linear_matches(&set, &facts), candidate_count(&set, &facts)), (vec![4217], 1));

    let keys: String =
        (0..10_000).map(|n| format!("- {{match: {{api_key: k{n}}}, limit: 1/s}}\n")).collect();
    let set = compile(&format!("rules:\n{keys}"));
    let facts: Facts<'_> = [("api_key", "k777"), ("path", "/")].into_iter().collect();
    assert_eq!((linear_matches(&set, &facts), candidate_count(&set, &facts)), (vec![777], 1));

    let nets: String = (0..10_000)
        .map(|n| format!("- {{match: {{ip: 10.{}.{}.0/24}}, limit: 1/s}}\n", n / 100, n % 100))
        .collect();
    let set = compile(&format!("rules:\n{nets}"));
    let facts: Facts<'_> = [("ip", "10.7.5.200")].into_iter().collect();
    assert_eq!((linear_matches(&set, &facts), candidate_count(&set, &facts)), (vec![705], 1));
}

#[test]
fn rules_match_once_in_document_order() {
    let mut source = String::from(
        "rules:\n- { id: last-first, match: { endpoint: [/a/*, '/{x}/b', /a/b] }, limit: 1/s }\n",
    );
    for n in 0..20 {
        source += &format!("- {{ id: r{n}, match: {{ tier: [free, t{n}] }}, limit: 1/s }}\n");
    }
    let set = compile(&source);
    let facts: Facts<'_> = [("path", "/a/b"), ("tier", "free")].into_iter().collect();
    let mut found = MatchedRules::new();
    set.match_rules(&facts, &mut found);
    assert_eq!(found.to_vec(), (0..=20).collect::<Vec<u32>>());
}
