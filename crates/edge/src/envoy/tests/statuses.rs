//! What is decided, as Envoy is told it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::prost::Message as _;
use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_engine::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{Document, Door, RuleSet};

use super::super::answer::Answer;
use super::super::json::{AnswerView, parse};
use super::super::proto::write;
use super::super::service::{ChargeMode, Service, Settings};
use super::prost::RateLimitResponse;
use crate::respond::{HeaderSettings, ResetStyle};

struct House {
    clock: ManualClock,
    service: Service<MemoryStore<ManualClock>, tidegate_engine::NoLocal>,
}

/// A service on a clock that stands at 23 seconds past a full minute.
fn house(rules: &str, settings: Settings) -> House {
    let document = Document::parse("rules.yaml", rules).unwrap();
    let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_003_000_000));
    let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
    House {
        clock,
        service: Service::new(Arc::new(Limiter::new(store, rules)), settings, Door::Grpc),
    }
}

impl House {
    /// The answer to a call in JSON, as protobuf and as JSON; a library reads the one.
    fn ask(&self, call: &str) -> (RateLimitResponse, serde_json::Value, Vec<u8>) {
        let call = parse(call.as_bytes()).unwrap();
        call.check().unwrap();
        let deciding = pin!(self.service.decide(&call));
        let Poll::Ready(decided) = deciding.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("memory waits for nothing")
        };
        let decided = decided.unwrap();
        let answer = Answer::of(&decided);
        let (bytes, json) = (write(&answer, 0), serde_json::to_value(AnswerView(&answer)).unwrap());
        (RateLimitResponse::decode(&bytes[..]).unwrap(), json, bytes)
    }

    /// `code requests/unit name remaining reset` of each status.
    fn told(&self, call: &str) -> Vec<String> {
        let (response, ..) = self.ask(call);
        let over = response.statuses.iter().any(|status| status.code == 2);
        assert_eq!(response.overall_code, if over { 2 } else { 1 }, "never 0");
        let statuses = response.statuses.iter().map(|status| {
            let limit = status.current_limit.as_ref();
            let limit = limit.map(|l| format!("{}/{} {}", l.requests_per_unit, l.unit, l.name));
            let reset = status.duration_until_reset.map(|reset| {
                assert_eq!(reset.nanos, 0, "Envoy drops them");
                reset.seconds
            });
            let (limit, left) = (limit.unwrap_or_else(|| "-".to_owned()), status.limit_remaining);
            let reset = reset.map_or("-".to_owned(), |secs| secs.to_string());
            format!("{} {limit} {left} {reset}", status.code)
        });
        statuses.collect()
    }
}

fn plain() -> Settings {
    Settings { headers: None, ..Settings::default() }
}

/// One descriptor with one entry, and what else it says.
fn one(key: &str, value: &str, more: &str) -> String {
    format!(r#"{{"domain":"edge","descriptors":[{}]}}"#, part(key, value, more))
}

fn part(key: &str, value: &str, more: &str) -> String {
    format!(r#"{{"entries":[{{"key":"{key}","value":"{value}"}}]{more}}}"#)
}

fn both(one: &str, two: &str) -> String {
    format!(r#"{{"domain":"edge","descriptors":[{one},{two}]}}"#)
}

#[test]
fn the_refusal_that_is_written_down() {
    let rules = "rules: [{ id: per-ip, key_by: ip, limit: 10/m using fixed_window }]";
    let house = house(rules, plain());
    let call = |hits| one("remote_address", "192.0.2.7", &format!(r#","hitsAddend":{hits}"#));
    assert_eq!(house.told(&call(10)), ["1 10/2 per-ip 0 37"]);
    let (_, json, bytes) = house.ask(&call(1));
    let expected =
        b"\x08\x02\x12\x14\x08\x02\x12\x0c\x08\x0a\x10\x02\x1a\x06per-ip\x22\x02\x08\x25";
    assert_eq!(bytes, expected, "24 bytes");
    // As a value: in which order names come depends on what else is built.
    let limit = serde_json::json!({"name": "per-ip", "requestsPerUnit": 10, "unit": "MINUTE"});
    let status = serde_json::json!(
        {"code": "OVER_LIMIT", "currentLimit": limit, "durationUntilReset": "37s"}
    );
    assert_eq!(json, serde_json::json!({"overallCode": "OVER_LIMIT", "statuses": [status]}));
}

#[test]
fn a_reset_is_rounded_up_and_a_refusal_tells_when_it_passes() {
    let rules = "rules: [{ id: r, key_by: ip, limit: 2/s }]";
    let house = house(rules, plain());
    let call = one("remote_address", "192.0.2.7", "");
    assert_eq!(house.told(&call), ["1 2/1 r 1 1"], "half a second is not none");
    assert_eq!(house.told(&call), ["1 2/1 r 0 1"]);
    assert_eq!(house.told(&call), ["2 2/1 r 0 1"]);
    house.clock.advance(Micros::from_millis(500));
    assert_eq!(house.told(&call), ["1 2/1 r 0 1"]);
}

#[test]
fn a_limit_is_told_in_a_unit_only_where_it_has_one() {
    let rules = "facts: [k]
rules:
      - { id: second, match: { k: '1' }, key_by: k, limit: 5/s using fixed_window }
      - { id: hour, match: { k: '2' }, key_by: k, limit: 5/h using fixed_window }
      - { id: day, match: { k: '3' }, key_by: k, limit: 5/d using sliding_window_counter }
      - { id: week, match: { k: '4' }, key_by: k, limit: 5/7d using fixed_window }
      - { id: month, match: { k: '5' }, key_by: k, limit: 5/30d using fixed_window }
      - { id: year, match: { k: '6' }, key_by: k, limit: 5/365d using fixed_window }
      - { id: ten, match: { k: '7' }, key_by: k, limit: 5/10s using fixed_window }
      - { id: burst, match: { k: '8' }, key_by: k, limit: 10/s burst 20 }
      - { id: slow, match: { k: '9' }, key_by: k, limit: 1/s burst 60 }
      - { id: slots, match: { k: '10' }, key_by: k, limit: { concurrent: 5, lease: 1m } }";
    let house = house(rules, plain());
    let unit = |k: u32| {
        let told = house.told(&one("k", &k.to_string(), "")).remove(0);
        told.split(' ').take(3).collect::<Vec<_>>().join(" ")
    };
    let told: Vec<String> = (1..=10).map(unit).collect();
    assert_eq!(
        told,
        [
            "1 5/1 second",
            "1 5/3 hour",
            "1 5/4 day",
            "1 5/7 week",
            "1 5/5 month",
            "1 5/6 year",
            "1 5/0 ten",
            "1 20/0 burst",
            "1 60/2 slow",
            "1 5/0 slots"
        ]
    );
}

#[test]
fn what_is_not_limited_says_so() {
    let rules = "facts: [kind]
rules:
      - { id: free, match: { kind: gold }, key_by: kind, limit: { requests: unlimited } }
      - { id: shut, match: { kind: none }, key_by: kind, limit: { requests: deny } }
      - { id: seen, match: { kind: trial }, mode: shadow, key_by: kind, limit: 1/h }
      - { id: here, match: { domain: edge, kind: basic }, key_by: kind, limit: 5/h }";
    let house = house(rules, plain());
    let told = |plan: &str| house.told(&one("kind", plan, ""));
    assert_eq!(told("gold"), ["1 - 4294967295 -"], "unlimited");
    assert_eq!(told("none"), ["2 0/0 shut 0 -"]);
    assert_eq!(told("trial"), ["1 - 0 -"], "of a rule in shadow nothing is told");
    assert_eq!(told("trial"), ["1 - 0 -"], "and it refuses nobody");
    assert_eq!(told("other"), ["1 - 0 -"], "no rule");
    let elsewhere = one("kind", "basic", "").replace("edge", "elsewhere");
    assert_eq!(house.told(&elsewhere), ["1 - 0 -"], "an unknown domain");
}

#[test]
fn statuses_are_as_many_as_descriptors_and_in_their_order() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/h using fixed_window }";
    let call = format!(
        r#"{{"domain":"edge","descriptors":[{},{},{}]}}"#,
        part("k", "b", ""),
        part("x", "y", ""),
        part("k", "a", "")
    );
    let house = house(rules, plain());
    let first = house.told(&call);
    assert_eq!(first, ["1 5/3 b 4 2797", "1 - 0 -", "1 1/3 a 0 2797"]);
    assert_eq!(house.told(&call), ["1 5/3 b 4 2797", "1 - 0 -", "2 1/3 a 0 2797"], "none or all");
}

/// Its only fact is the domain: rules on that alone apply, and nothing else does.
#[test]
fn a_descriptor_without_entries_is_decided_by_its_domain_alone_and_the_others_count() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 5/h using fixed_window }
      - { id: one, match: { domain: edge, descriptor: [k] }, key_by: descriptor, limit: 9/h using fixed_window }";
    let call = both(r#"{"entries":[]}"#, &part("k", "a", ""));
    for charge in [ChargeMode::Together, ChargeMode::Independent] {
        let house = house(rules, Settings { charge, ..plain() });
        assert_eq!(house.told(&call), ["1 - 0 -", "1 5/3 a 4 2797"]);
        assert_eq!(house.told(&call), ["1 - 0 -", "1 5/3 a 3 2797"]);
    }
    let rules = "facts: [k]
rules:
      - { id: all, match: { domain: edge }, key_by: global, limit: 3/h using fixed_window }
      - { id: a, match: { k: a }, key_by: k, limit: 5/h using fixed_window }";
    let house = house(rules, plain());
    assert_eq!(house.told(&call), ["1 3/3 all 1 2797", "1 3/3 all 1 2797"], "two of three");
    assert_eq!(house.told(&call), ["2 3/3 all 1 2797", "2 3/3 all 1 2797"]);
    assert_eq!(house.told(r#"{"domain":"edge","descriptors":[{}]}"#), ["1 3/3 all 0 2797"]);
}

/// Envoy takes any name of its enum from metadata, `UNKNOWN` included.
#[test]
fn a_limit_in_no_unit_is_decided_by_the_rules() {
    let rules = "facts: [k]
rules: [{ id: r, match: { k: v }, key_by: k, limit: 1/h using fixed_window }]";
    let house = house(rules, plain());
    let call = one("k", "v", r#","limit":{"requestsPerUnit":9,"unit":"UNKNOWN"}"#);
    assert_eq!(house.told(&call), ["1 1/3 r 0 2797"]);
    assert_eq!(house.told(&call), ["2 1/3 r 0 2797"]);
}

#[test]
fn independent_descriptors_are_charged_though_another_is_refused() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/h using fixed_window }";
    let house = house(rules, Settings { charge: ChargeMode::Independent, ..plain() });
    let call = both(&part("k", "a", ""), &part("k", "b", ""));
    let left = |told: Vec<String>| {
        told.iter().map(|status| status.split(' ').nth(3).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(left(house.told(&call)), ["0", "4"]);
    assert_eq!(left(house.told(&call)), ["0", "3"], "the second was charged");
}

#[test]
fn looks_refunds_and_charges_after_the_fact() {
    let rules = "{ facts: [user], rules: [{ id: tokens, charge: always, key_by: user, limit: 100/h using fixed_window }] }";
    let house = house(rules, plain());
    let call = |more: &str| house.told(&one("user", "ann", more));
    assert_eq!(call(r#","hitsAddend":0"#), ["1 100/3 tokens 100 0"], "the gate on the way in");
    assert_eq!(call(r#","hitsAddend":"99""#), ["1 100/3 tokens 1 2797"]);
    assert_eq!(call(r#","hitsAddend":50"#), ["2 100/3 tokens 0 2797"], "recorded all the same");
    assert_eq!(call(r#","hitsAddend":0"#), ["2 100/3 tokens 0 2797"], "so that the gate shuts");
    assert_eq!(call(r#","hitsAddend":49,"isNegativeHits":true"#), ["1 100/3 tokens 0 2797"]);
    assert_eq!(
        call(r#","hitsAddend":0"#),
        ["1 100/3 tokens 0 2797"],
        "at the limit is not over it"
    );
    assert_eq!(call(r#","hitsAddend":1000,"isNegativeHits":true"#), ["1 100/3 tokens 100 0"]);
}

#[test]
fn a_limit_in_the_descriptor_counts_instead_of_rules_or_without_any() {
    let rules = "facts: [k]
rules: [{ id: r, match: { k: v }, key_by: k, limit: 1/h using fixed_window }]";
    let house = house(rules, plain());
    let limit = |requests: u32, unit: &str| {
        format!(r#","limit":{{"requestsPerUnit":{requests},"unit":"{unit}"}}"#)
    };
    assert_eq!(house.told(&one("k", "v", &limit(3, "MINUTE"))), ["1 3/2 override 2 37"]);
    assert_eq!(house.told(&one("k", "v", &limit(9, "MINUTE"))), ["1 9/2 override 7 37"]);
    assert_eq!(house.told(&one("k", "w", &limit(1, "MONTH")))[0].split(' ').nth(1), Some("1/5"));
    let reset = house.told(&one("k", "w", &limit(0, "MINUTE")));
    assert_eq!(reset, ["2 0/2 override 0 37"], "a limit of 0 tells its unit and reset");
    assert_eq!(house.told(&one("k", "v", "")), ["1 1/3 r 0 2797"], "the rule was not charged");
}

/// Each by itself, a limit in the descriptor counts as the reference server counts it.
#[test]
fn an_independent_limit_counts_what_it_refuses_on_the_counter_of_the_rule_in_known_domains() {
    let rules = "rules:
      - { id: r, match: { domain: edge, descriptor: [k] }, key_by: descriptor, charge: always,
          limit: 5/m using fixed_window }
      - { id: other, match: { domain: other }, key_by: global, limit: 9/m }";
    let house = house(rules, Settings { charge: ChargeMode::Independent, ..plain() });
    let limit = |requests: u32, hits: u32| {
        let limit = format!(r#""limit":{{"requestsPerUnit":{requests},"unit":"MINUTE"}}"#);
        one("k", "v", &format!(r#",{limit},"hitsAddend":{hits}"#))
    };
    assert_eq!(house.told(&one("k", "v", "")), ["1 5/2 r 4 37"]);
    assert_eq!(house.told(&limit(3, 1)), ["1 3/2 override 1 37"], "the rule's counter");
    assert_eq!(house.told(&limit(3, 2)), ["2 3/2 override 0 37"]);
    assert_eq!(house.told(&one("k", "v", "")), ["1 5/2 r 0 37"], "what was refused is counted");
    assert_eq!(house.told(&limit(9, 1)), ["1 9/2 override 3 37"]);
    let hour = limit(9, 1).replace("MINUTE", "HOUR");
    assert_eq!(house.told(&hour), ["1 9/3 override 8 2797"], "another window, another counter");
    let unknown = limit(9, 1).replace("edge", "unknown");
    assert_eq!(house.told(&unknown), ["1 - 0 -"], "a domain that no rule names");
    assert_eq!(house.told(&limit(9, 1).replace("edge", "other")), ["1 9/2 override 8 37"]);
}

#[test]
fn headers_are_told_for_the_tightest_descriptor_as_the_setting_says() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/m using fixed_window }";
    let headers = |house: &House, call: &str| {
        let (response, ..) = house.ask(call);
        let headers = response.response_headers_to_add.into_iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect::<Vec<_>>()
    };
    let call = both(&part("k", "b", ""), &part("k", "a", ""));
    let usual = house(rules, Settings::default());
    assert_eq!(headers(&usual, &call), Vec::<String>::new(), "none where it passes");
    let refused = ["retry-after: 2797", "retry-after-ms: 2797000", "cache-control: no-store"];
    assert_eq!(headers(&usual, &call), refused);
    let delta = HeaderSettings { reset: ResetStyle::Delta, ..HeaderSettings::default() };
    let all = house(rules, Settings { headers: Some(delta), ..Settings::default() });
    let passed = [
        "x-ratelimit-limit: 1",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 2797",
        "ratelimit-policy: \"a\";q=1;w=3600",
        "ratelimit: \"a\";r=0;t=2797",
    ];
    assert_eq!(headers(&all, &call), passed);
    assert_eq!(headers(&all, &call)[5..], refused);
    let none = house(rules, plain());
    none.ask(&call);
    assert_eq!(headers(&none, &call), Vec::<String>::new());
}
