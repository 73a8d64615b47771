//! Properties that hold for every response, whatever the rule, the history and the settings.

use futures_util::FutureExt;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, HeaderMap, RETRY_AFTER};
use proptest::prelude::*;
use sfv::{List, ListEntry, Parser};
use tidegate_core::decision::Retry;
use tidegate_core::time::Micros;
use tidegate_limiter::Decision;
use tidegate_response as respond;
use tidegate_response::{HeaderSettings, HeaderStyle, ResetStyle};
use tidegate_testkit::property::cases;

use crate::fixture::{ONE_PER_HOUR, ResponseFixture, facts_for_ip, parse_settings};

const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
];

/// Parses a List with one member: its String, and the Integer parameters named by `keys`.
fn parse_list_member(
    headers: &HeaderMap,
    name: &str,
    keys: [&str; 2],
) -> (String, [Option<i64>; 2]) {
    let list: List = Parser::new(headers[name].as_bytes()).parse().unwrap();
    let [ListEntry::Item(item)] = &list[..] else { panic!("{list:?}") };
    assert!(item.params.keys().all(|key| keys.contains(&key.as_str())), "{item:?}");
    let number = |key: &str| Some(i64::from(item.params.get(key)?.as_integer().unwrap()));
    (item.bare_item.as_string().unwrap().as_str().to_owned(), keys.map(number))
}

fn header_number(headers: &HeaderMap, name: &str) -> Option<u64> {
    Some(headers.get(name)?.to_str().unwrap().parse().unwrap())
}

fn any_settings() -> impl Strategy<Value = HeaderSettings> {
    use HeaderStyle::{All, Ietf, Legacy, None as Nothing, X};
    let style = prop::sample::select(vec![All, X, Ietf, Legacy, Nothing]);
    let reset = prop::sample::select(vec![ResetStyle::Epoch, ResetStyle::Delta]);
    let jitter = prop::option::of((1_u64..100_000_000).prop_map(Micros::new));
    (style, reset, jitter, any::<bool>()).prop_map(|(style, reset, retry_jitter, expose)| {
        HeaderSettings { style, reset, retry_jitter, expose }
    })
}

/// A decision after a few requests under one rule.
fn any_decision() -> impl Strategy<Value = Decision> {
    let id = "[ -~]{1,20}".prop_filter("not a valid rule ID", |id| id.trim() == id);
    let limit = (1_u64..50, 1_u64..100_000, 0..ALGORITHMS.len());
    let arrivals = prop::collection::vec((1_u32..60, 0_u64..20_000), 1..8);
    (id, limit, arrivals).prop_map(|(id, (requests, window_ms, algorithm), arrivals)| {
        let algorithm = ALGORITHMS[algorithm];
        let id = serde_json::to_string(&id).unwrap();
        let limit = format!("requests: {requests}, window: {window_ms}ms, algorithm: {algorithm}");
        let ban = "ban: { after: 2, within: 10m, for: 15m }";
        let fixture =
            ResponseFixture::new(&format!("rules: [{{ id: {id}, limit: {{ {limit} }}, {ban} }}]"));
        let mut last = None;
        for (cost, wait_ms) in arrivals {
            fixture.clock.advance(Micros::from_millis(wait_ms));
            last = fixture.decide(&facts_for_ip("192.0.2.1"), cost).now_or_never();
        }
        last.unwrap()
    })
}

/// How many requests the rule admits within `secs` seconds. The client uses up the limit at the
/// start, at the last moment, and at the given moments in between.
fn admitted_within(fixture: &ResponseFixture, secs: u64, moments: &[u64]) -> u64 {
    let (micros, mut spent, mut now) = (secs * 1_000_000, 0, 0);
    let mut moments: Vec<u64> = moments.iter().map(|moment| moment % micros).collect();
    moments.extend([0, micros - 1]);
    moments.sort_unstable();
    for moment in moments {
        fixture.clock.advance(Micros::new(moment - now));
        now = moment;
        while fixture.decide(&facts_for_ip("192.0.2.1"), 1).now_or_never().unwrap().is_allowed() {
            spent += 1;
        }
    }
    spent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 100))]

    /// The draft defines that at most `r` requests are admitted within `t`, whatever a client does.
    #[test]
    fn no_more_than_r_admitted_within_t(
        limit in (1_u64..20, 1_u64..60_000, 0..ALGORITHMS.len(), 0_u64..40),
        arrivals in prop::collection::vec((1_u32..20, 0_u64..20_000), 1..6),
        moments in prop::collection::vec(any::<u64>(), 0..3),
        charge in prop::sample::select(vec!["admitted", "always"]),
    ) {
        let (requests, window_ms, algorithm, burst) = limit;
        let algorithm = ALGORITHMS[algorithm];
        let burst = match algorithm.ends_with("bucket") && burst > 0 {
            true => format!(", burst: {burst}"),
            false => String::new(),
        };
        let limit =
            format!("requests: {requests}, window: {window_ms}ms, algorithm: {algorithm}{burst}");
        let fixture =
            ResponseFixture::new(&format!("rules: [{{ id: r, charge: {charge}, limit: {{ {limit} }} }}]"));
        for (cost, wait_ms) in arrivals {
            fixture.clock.advance(Micros::from_millis(wait_ms));
            let decision = fixture.decide(&facts_for_ip("192.0.2.1"), cost).now_or_never().unwrap();
            let mut headers = HeaderMap::new();
            respond::write_headers(&decision, &parse_settings("style=ietf"), 0, &mut headers);
            let (_, [r, t]) = parse_list_member(&headers, "ratelimit", ["r", "t"]);
            if let (true, Some(t)) = (decision.is_allowed(), t) {
                let spent = admitted_within(&fixture, u64::try_from(t).unwrap(), &moments);
                prop_assert!(spent <= u64::try_from(r.unwrap()).unwrap(), "{spent} in {t} s: {headers:?}");
            }
        }
    }

}

proptest! {
    #[test]
    fn rate_limit_headers_are_consistent(decision in any_decision(), settings in any_settings(), random: u64) {
        let mut headers = HeaderMap::new();
        respond::write_headers(&decision, &settings, random, &mut headers);
        let (rule, reading) = decision.tightest().unwrap();
        let retry_after = header_number(&headers, "retry-after");
        let ms = header_number(&headers, "retry-after-ms");
        let wait = match reading.retry() {
            Retry::After(wait) if !decision.is_allowed() => Some(wait.get()),
            _ => None,
        };
        prop_assert_eq!((retry_after.is_some(), ms.is_some()), (wait.is_some(), wait.is_some()));
        if let (Some(secs), Some(ms), Some(wait)) = (retry_after, ms, wait) {
            let most = wait + settings.retry_jitter.map_or(0, |cap| cap.get() - 1);
            prop_assert!(secs >= 1 && secs * 1_000_000 >= wait);
            prop_assert!(secs <= most.div_ceil(1_000_000).max(1));
            prop_assert!(ms >= 1 && ms * 1_000 >= wait && ms <= secs * 1_000);
            prop_assert!(ms <= most.div_ceil(1_000));
        }
        prop_assert_eq!(headers.contains_key(CACHE_CONTROL), !decision.is_allowed());
        let has_pair = matches!(settings.style, HeaderStyle::All | HeaderStyle::Ietf);
        prop_assert_eq!(headers.contains_key("ratelimit"), has_pair);
        if has_pair {
            let (name, [q, w]) = parse_list_member(&headers, "ratelimit-policy", ["q", "w"]);
            prop_assert_eq!(name, rule.id());
            prop_assert!(q.unwrap() >= 1 && w.unwrap() >= 1);
            let (name, [r, t]) = parse_list_member(&headers, "ratelimit", ["r", "t"]);
            prop_assert_eq!(name, rule.id());
            prop_assert!((0..=q.unwrap()).contains(&r.unwrap()));
            let t = t.map(|t| u64::try_from(t).unwrap());
            if !decision.is_allowed() {
                prop_assert_eq!(t, retry_after, "`Retry-After` differs from the effective window");
            } else {
                let next = reading.numbers.unwrap().next_after.get() / 1_000_000;
                prop_assert_eq!(t, Some(next).filter(|secs| *secs > 0));
            }
        }
        if let (Some(secs), Some(reset)) = (retry_after, header_number(&headers, "ratelimit-reset")) {
            prop_assert!(secs >= reset);
        }
        if let (Some(wait), Some(reset)) = (wait, header_number(&headers, "x-ratelimit-reset")) {
            let now = match settings.reset {
                ResetStyle::Epoch => decision.now().unwrap().as_micros(),
                ResetStyle::Delta => 0,
            };
            prop_assert!(reset * 1_000_000 >= now + wait, "the reset is before the end of the wait");
        }
        let exposed = headers.get(ACCESS_CONTROL_EXPOSE_HEADERS);
        let exposed = exposed.map_or("", |names| names.to_str().unwrap());
        for name in headers.keys() {
            let named = exposed.split(", ").any(|other| name == other);
            let hidden = [ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL].contains(name);
            prop_assert_eq!(named, settings.expose && !hidden, "{}", name);
        }
        for name in exposed.split(", ").filter(|name| !name.is_empty()) {
            prop_assert!(headers.contains_key(name), "exposed header {name} is missing");
        }
    }
}

/// With a fixed window, all refused clients wait for the same instant (thundering herd).
#[tokio::test]
async fn retry_jitter_spreads_clients_and_stays_stable() {
    let fixture =
        ResponseFixture::new("rules: [{ id: w, key_by: ip, limit: 1/h using fixed_window }]");
    let settings = parse_settings("jitter=100s");
    let mut ends = std::collections::BTreeSet::new();
    for n in 0..50 {
        let ip = format!("192.0.2.{n}");
        let facts = facts_for_ip(&ip);
        let mut instants = Vec::new();
        for waited in [0, 7] {
            fixture.clock.advance(Micros::from_secs(waited));
            let decision = fixture.exhaust_limit(&facts).await;
            let random = settings.jitter_seed(&decision, &facts);
            let mut headers = HeaderMap::new();
            respond::write_headers(&decision, &settings, random, &mut headers);
            let now = decision.now().unwrap().as_micros() / 1_000_000;
            instants.push(now + header_number(&headers, RETRY_AFTER.as_str()).unwrap());
        }
        assert_eq!(instants[0], instants[1], "the retry instant of {ip} changed");
        ends.insert(instants[0]);
    }
    assert!(ends.len() > 30, "{ends:?}");
    assert!(ends.last().unwrap() - ends.first().unwrap() > 50, "{ends:?}");
}

#[tokio::test]
async fn jitter_seed_changes_with_each_wait() {
    let fixture = ResponseFixture::new(ONE_PER_HOUR);
    let facts = facts_for_ip("192.0.2.1");
    let plain = parse_settings("");
    let jittered = parse_settings("jitter=100s");
    let allowed = fixture.decide(&facts, 1).await;
    assert_eq!(jittered.jitter_seed(&allowed, &facts), 0);
    let first = fixture.exhaust_limit(&facts).await;
    assert_eq!(plain.jitter_seed(&first, &facts), 0);
    fixture.clock.advance(Micros::from_secs(5_000));
    let second = fixture.exhaust_limit(&facts).await;
    assert_ne!(jittered.jitter_seed(&first, &facts), jittered.jitter_seed(&second, &facts));
}
