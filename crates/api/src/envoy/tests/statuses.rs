//! Tests how decisions appear in the response to Envoy.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::prost::Message as _;
use tidegate_core::key::Secret;
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_limiter::Limiter;
use tidegate_memory::{DEFAULT_MAX_BYTES, MemoryStore};
use tidegate_rules::{ApiKind, Document, RuleSet};

use super::super::proto::write_response;
use super::super::proto_json::{EnvoyResponseView, parse};
use super::super::response::EnvoyResponse;
use super::super::service::{ChargeMode, RateLimitService, Settings};
use super::prost::RateLimitResponse;
use tidegate_response::{HeaderSettings, ResetStyle};

struct EnvoyFixture {
    clock: ManualClock,
    service: RateLimitService<MemoryStore<ManualClock>, tidegate_limiter::NoFallback>,
}

/// A service whose clock is at 23 seconds past a full minute.
fn fixture(rules: &str, settings: Settings) -> EnvoyFixture {
    let document = Document::parse("rules.yaml", rules).unwrap();
    let rules = RuleSet::compile(&document, Secret::UNSET).unwrap();
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_003_000_000));
    let store = MemoryStore::with_clock(clock.clone(), DEFAULT_MAX_BYTES);
    EnvoyFixture {
        clock,
        service: RateLimitService::new(
            Arc::new(Limiter::new(store, rules)),
            settings,
            ApiKind::Grpc,
        ),
    }
}

impl EnvoyFixture {
    /// Returns the response to a JSON request: decoded by prost, as JSON, and as protobuf bytes.
    fn decide(&self, call: &str) -> (RateLimitResponse, serde_json::Value, Vec<u8>) {
        let call = parse(call.as_bytes()).unwrap();
        call.validate().unwrap();
        let deciding = pin!(self.service.decide(&call));
        let Poll::Ready(decided) = deciding.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the memory store never waits")
        };
        let decided = decided.unwrap();
        let answer = EnvoyResponse::from_decisions(&decided);
        let (bytes, json) =
            (write_response(&answer, 0), serde_json::to_value(EnvoyResponseView(&answer)).unwrap());
        (RateLimitResponse::decode(&bytes[..]).unwrap(), json, bytes)
    }

    /// `code requests/unit name remaining reset` of each status.
    fn statuses(&self, call: &str) -> Vec<String> {
        let (response, ..) = self.decide(call);
        let over = response.statuses.iter().any(|status| status.code == 2);
        assert_eq!(response.overall_code, if over { 2 } else { 1 }, "never 0");
        let statuses = response.statuses.iter().map(|status| {
            let limit = status.current_limit.as_ref();
            let limit = limit.map(|l| format!("{}/{} {}", l.requests_per_unit, l.unit, l.name));
            let reset = status.duration_until_reset.map(|reset| {
                assert_eq!(reset.nanos, 0, "Envoy ignores fractions of a second");
                reset.seconds
            });
            let (limit, left) = (limit.unwrap_or_else(|| "-".to_owned()), status.limit_remaining);
            let reset = reset.map_or("-".to_owned(), |secs| secs.to_string());
            format!("{} {limit} {left} {reset}", status.code)
        });
        statuses.collect()
    }
}

fn settings_without_headers() -> Settings {
    Settings { headers: None, ..Settings::default() }
}

/// A request with one descriptor with one entry; `more` is appended to the descriptor.
fn single_descriptor_call(key: &str, value: &str, more: &str) -> String {
    format!(r#"{{"domain":"edge","descriptors":[{}]}}"#, descriptor(key, value, more))
}

fn descriptor(key: &str, value: &str, more: &str) -> String {
    format!(r#"{{"entries":[{{"key":"{key}","value":"{value}"}}]{more}}}"#)
}

fn two_descriptor_call(one: &str, two: &str) -> String {
    format!(r#"{{"domain":"edge","descriptors":[{one},{two}]}}"#)
}

#[test]
fn refusal_bytes_match_documentation() {
    let rules = "rules: [{ id: per-ip, key_by: ip, limit: 10/m using fixed_window }]";
    let service = fixture(rules, settings_without_headers());
    let call = |hits| {
        single_descriptor_call("remote_address", "192.0.2.7", &format!(r#","hitsAddend":{hits}"#))
    };
    assert_eq!(service.statuses(&call(10)), ["1 10/2 per-ip 0 37"]);
    let (_, json, bytes) = service.decide(&call(1));
    let expected =
        b"\x08\x02\x12\x14\x08\x02\x12\x0c\x08\x0a\x10\x02\x1a\x06per-ip\x22\x02\x08\x25";
    assert_eq!(bytes, expected, "24 bytes");
    // Compared as values: the order of names depends on the enabled features of serde_json.
    let limit = serde_json::json!({"name": "per-ip", "requestsPerUnit": 10, "unit": "MINUTE"});
    let status = serde_json::json!(
        {"code": "OVER_LIMIT", "currentLimit": limit, "durationUntilReset": "37s"}
    );
    assert_eq!(json, serde_json::json!({"overallCode": "OVER_LIMIT", "statuses": [status]}));
}

#[test]
fn reset_rounds_up_to_whole_seconds() {
    let rules = "rules: [{ id: r, key_by: ip, limit: 2/s }]";
    let service = fixture(rules, settings_without_headers());
    let call = single_descriptor_call("remote_address", "192.0.2.7", "");
    assert_eq!(service.statuses(&call), ["1 2/1 r 1 1"], "half a second rounds up");
    assert_eq!(service.statuses(&call), ["1 2/1 r 0 1"]);
    assert_eq!(service.statuses(&call), ["2 2/1 r 0 1"]);
    service.clock.advance(Micros::from_millis(500));
    assert_eq!(service.statuses(&call), ["1 2/1 r 0 1"]);
}

#[test]
fn limit_unit_only_for_whole_units() {
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
      - { id: slots, match: { k: '10' }, key_by: k, limit: { concurrent: 5, hold: 1m } }";
    let service = fixture(rules, settings_without_headers());
    let unit = |k: u32| {
        let status = service.statuses(&single_descriptor_call("k", &k.to_string(), "")).remove(0);
        status.split(' ').take(3).collect::<Vec<_>>().join(" ")
    };
    let statuses: Vec<String> = (1..=10).map(unit).collect();
    assert_eq!(
        statuses,
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
fn unlimited_status_has_no_current_limit() {
    let rules = "facts: [kind]
rules:
      - { id: free, match: { kind: gold }, key_by: kind, limit: { requests: unlimited } }
      - { id: shut, match: { kind: none }, key_by: kind, limit: { requests: deny } }
      - { id: seen, match: { kind: trial }, mode: shadow, key_by: kind, limit: 1/h }
      - { id: here, match: { domain: edge, kind: basic }, key_by: kind, limit: 5/h }";
    let service = fixture(rules, settings_without_headers());
    let statuses = |plan: &str| service.statuses(&single_descriptor_call("kind", plan, ""));
    assert_eq!(statuses("gold"), ["1 - 4294967295 -"], "unlimited");
    assert_eq!(statuses("none"), ["2 0/0 shut 0 -"]);
    assert_eq!(statuses("trial"), ["1 - 0 -"], "rules in shadow mode are not reported");
    assert_eq!(statuses("trial"), ["1 - 0 -"], "rules in shadow mode refuse no request");
    assert_eq!(statuses("other"), ["1 - 0 -"], "no rule");
    let elsewhere = single_descriptor_call("kind", "basic", "").replace("edge", "elsewhere");
    assert_eq!(service.statuses(&elsewhere), ["1 - 0 -"], "an unknown domain");
}

#[test]
fn statuses_keep_descriptor_order() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/h using fixed_window }";
    let call = format!(
        r#"{{"domain":"edge","descriptors":[{},{},{}]}}"#,
        descriptor("k", "b", ""),
        descriptor("x", "y", ""),
        descriptor("k", "a", "")
    );
    let service = fixture(rules, settings_without_headers());
    let first = service.statuses(&call);
    assert_eq!(first, ["1 5/3 b 4 2797", "1 - 0 -", "1 1/3 a 0 2797"]);
    assert_eq!(
        service.statuses(&call),
        ["1 5/3 b 4 2797", "1 - 0 -", "2 1/3 a 0 2797"],
        "all or none are charged"
    );
}

/// Its only fact is the domain, so only rules on the domain alone apply.
#[test]
fn empty_descriptor_matches_only_domain_rules() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 5/h using fixed_window }
      - { id: one, match: { domain: edge, descriptor: [k] }, key_by: descriptor, limit: 9/h using fixed_window }";
    let call = two_descriptor_call(r#"{"entries":[]}"#, &descriptor("k", "a", ""));
    for charge in [ChargeMode::Together, ChargeMode::Independent] {
        let service = fixture(rules, Settings { charge, ..settings_without_headers() });
        assert_eq!(service.statuses(&call), ["1 - 0 -", "1 5/3 a 4 2797"]);
        assert_eq!(service.statuses(&call), ["1 - 0 -", "1 5/3 a 3 2797"]);
    }
    let rules = "facts: [k]
rules:
      - { id: all, match: { domain: edge }, key_by: global, limit: 3/h using fixed_window }
      - { id: a, match: { k: a }, key_by: k, limit: 5/h using fixed_window }";
    let service = fixture(rules, settings_without_headers());
    assert_eq!(service.statuses(&call), ["1 3/3 all 1 2797", "1 3/3 all 1 2797"], "two of three");
    assert_eq!(service.statuses(&call), ["2 3/3 all 1 2797", "2 3/3 all 1 2797"]);
    assert_eq!(service.statuses(r#"{"domain":"edge","descriptors":[{}]}"#), ["1 3/3 all 0 2797"]);
}

/// Envoy accepts any name of its enum from metadata, including `UNKNOWN`.
#[test]
fn override_without_unit_falls_back_to_rules() {
    let rules = "facts: [k]
rules: [{ id: r, match: { k: v }, key_by: k, limit: 1/h using fixed_window }]";
    let service = fixture(rules, settings_without_headers());
    let call =
        single_descriptor_call("k", "v", r#","limit":{"requestsPerUnit":9,"unit":"UNKNOWN"}"#);
    assert_eq!(service.statuses(&call), ["1 1/3 r 0 2797"]);
    assert_eq!(service.statuses(&call), ["2 1/3 r 0 2797"]);
}

#[test]
fn independent_mode_charges_despite_refusal() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/h using fixed_window }";
    let service =
        fixture(rules, Settings { charge: ChargeMode::Independent, ..settings_without_headers() });
    let call = two_descriptor_call(&descriptor("k", "a", ""), &descriptor("k", "b", ""));
    let left = |statuses: Vec<String>| {
        statuses
            .iter()
            .map(|status| status.split(' ').nth(3).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(left(service.statuses(&call)), ["0", "4"]);
    assert_eq!(left(service.statuses(&call)), ["0", "3"], "the second was charged");
}

#[test]
fn hits_addend_peeks_charges_and_refunds() {
    let rules = "{ facts: [user], rules: [{ id: tokens, charge: always, key_by: user, limit: 100/h using fixed_window }] }";
    let service = fixture(rules, settings_without_headers());
    let call = |more: &str| service.statuses(&single_descriptor_call("user", "ann", more));
    assert_eq!(call(r#","hitsAddend":0"#), ["1 100/3 tokens 100 0"], "a peek before the request");
    assert_eq!(call(r#","hitsAddend":"99""#), ["1 100/3 tokens 1 2797"]);
    assert_eq!(call(r#","hitsAddend":50"#), ["2 100/3 tokens 0 2797"], "charged although refused");
    assert_eq!(call(r#","hitsAddend":0"#), ["2 100/3 tokens 0 2797"], "the next peek is refused");
    assert_eq!(call(r#","hitsAddend":49,"isNegativeHits":true"#), ["1 100/3 tokens 0 2797"]);
    assert_eq!(
        call(r#","hitsAddend":0"#),
        ["1 100/3 tokens 0 2797"],
        "at the limit is not over it"
    );
    assert_eq!(call(r#","hitsAddend":1000,"isNegativeHits":true"#), ["1 100/3 tokens 100 0"]);
}

#[test]
fn descriptor_limit_replaces_rules() {
    let rules = "facts: [k]
rules: [{ id: r, match: { k: v }, key_by: k, limit: 1/h using fixed_window }]";
    let service = fixture(rules, settings_without_headers());
    let limit = |requests: u32, unit: &str| {
        format!(r#","limit":{{"requestsPerUnit":{requests},"unit":"{unit}"}}"#)
    };
    assert_eq!(
        service.statuses(&single_descriptor_call("k", "v", &limit(3, "MINUTE"))),
        ["1 3/2 override 2 37"]
    );
    assert_eq!(
        service.statuses(&single_descriptor_call("k", "v", &limit(9, "MINUTE"))),
        ["1 9/2 override 7 37"]
    );
    assert_eq!(
        service.statuses(&single_descriptor_call("k", "w", &limit(1, "MONTH")))[0]
            .split(' ')
            .nth(1),
        Some("1/5")
    );
    let reset = service.statuses(&single_descriptor_call("k", "w", &limit(0, "MINUTE")));
    assert_eq!(reset, ["2 0/2 override 0 37"], "a limit of 0 reports its unit and reset");
    assert_eq!(
        service.statuses(&single_descriptor_call("k", "v", "")),
        ["1 1/3 r 0 2797"],
        "the rule was not charged"
    );
}

/// As the reference server reports a configured limit of 0.
#[test]
fn rule_without_requests_reports_its_window() {
    let rules = |window: &str| {
        format!(
            "facts: [k]
rules:
  - {{ id: r, match: {{ k: v }}, key_by: k, limit: {{ requests: deny{window} }} }}
  - {{ id: others, key_by: k, limit: 9/m }}"
        )
    };
    for (window, expected) in
        [("", "2 0/0 r 0 -"), (", window: 1m", "2 0/2 r 0 37"), (", window: 10s", "2 0/0 r 0 7")]
    {
        let service = fixture(&rules(window), settings_without_headers());
        let statuses = service.statuses(&single_descriptor_call("k", "v", ""));
        assert_eq!(statuses, [expected], "{window}");
    }
}

/// In independent mode, a descriptor's limit is counted as the reference server counts it.
#[test]
fn independent_descriptor_limit_shares_rule_counter() {
    let rules = "rules:
      - { id: r, match: { domain: edge, descriptor: [k] }, key_by: descriptor, charge: always,
          limit: 5/m using fixed_window }
      - { id: other, match: { domain: other }, key_by: global, limit: 9/m }";
    let service =
        fixture(rules, Settings { charge: ChargeMode::Independent, ..settings_without_headers() });
    let limit = |requests: u32, hits: u32| {
        let limit = format!(r#""limit":{{"requestsPerUnit":{requests},"unit":"MINUTE"}}"#);
        single_descriptor_call("k", "v", &format!(r#",{limit},"hitsAddend":{hits}"#))
    };
    assert_eq!(service.statuses(&single_descriptor_call("k", "v", "")), ["1 5/2 r 4 37"]);
    assert_eq!(
        service.statuses(&limit(3, 1)),
        ["1 3/2 override 1 37"],
        "shares the rule's counter"
    );
    assert_eq!(service.statuses(&limit(3, 2)), ["2 3/2 override 0 37"]);
    assert_eq!(
        service.statuses(&single_descriptor_call("k", "v", "")),
        ["1 5/2 r 0 37"],
        "refused hits are counted"
    );
    assert_eq!(service.statuses(&limit(9, 1)), ["1 9/2 override 3 37"]);
    let hour = limit(9, 1).replace("MINUTE", "HOUR");
    assert_eq!(
        service.statuses(&hour),
        ["1 9/3 override 8 2797"],
        "another window, another counter"
    );
    let unknown = limit(9, 1).replace("edge", "unknown");
    assert_eq!(service.statuses(&unknown), ["1 - 0 -"], "a domain that no rule names");
    assert_eq!(service.statuses(&limit(9, 1).replace("edge", "other")), ["1 9/2 override 8 37"]);
}

#[test]
fn response_headers_describe_tightest_descriptor() {
    let rules = "facts: [k]
rules:
      - { id: a, match: { k: a }, key_by: k, limit: 1/h using fixed_window }
      - { id: b, match: { k: b }, key_by: k, limit: 5/m using fixed_window }";
    let headers = |service: &EnvoyFixture, call: &str| {
        let (response, ..) = service.decide(call);
        let headers = response.response_headers_to_add.into_iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect::<Vec<_>>()
    };
    let call = two_descriptor_call(&descriptor("k", "b", ""), &descriptor("k", "a", ""));
    let usual = fixture(rules, Settings::default());
    assert_eq!(headers(&usual, &call), Vec::<String>::new(), "no headers on an allowed request");
    let refused = ["retry-after: 2797", "retry-after-ms: 2797000", "cache-control: no-store"];
    assert_eq!(headers(&usual, &call), refused);
    let delta = HeaderSettings { reset: ResetStyle::Delta, ..HeaderSettings::default() };
    let all = fixture(rules, Settings { headers: Some(delta), ..Settings::default() });
    let passed = [
        "x-ratelimit-limit: 1",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 2797",
        "ratelimit-policy: \"a\";q=1;w=3600",
        "ratelimit: \"a\";r=0;t=2797",
    ];
    assert_eq!(headers(&all, &call), passed);
    assert_eq!(headers(&all, &call)[5..], refused);
    let none = fixture(rules, settings_without_headers());
    none.decide(&call);
    assert_eq!(headers(&none, &call), Vec::<String>::new());
}
