//! Who asks most and who is refused most: within the told error, for a while, and nobody's API key.

#![expect(clippy::unwrap_used, reason = "what a test did not expect fails it")]

use std::collections::HashMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_control::{Identities, Sight, Top, TopKey, TopKind, TopQuery};
use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_engine::{Limiter, Observer};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, RuleSet};

const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

struct House {
    limiter: Limiter<MemoryStore>,
    top: Arc<Top>,
    clock: ManualClock,
}

fn rules(source: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
}

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision on memory waits for nothing"),
    }
}

fn house(source: &str) -> House {
    let clock = ManualClock::new(START);
    let read = clock.clone();
    let identities = Identities { secret: Secret::UNSET, plain: false };
    let top = Arc::new(Top::new(identities, Arc::new(move || read.now())));
    let limiter = Limiter::new(MemoryStore::new(), rules(source));
    let limiter = limiter.observed_by(Arc::clone(&top) as Arc<dyn Observer>);
    House { limiter, top, clock }
}

impl House {
    fn ask(&self, facts: &[(&str, &str)]) {
        let facts: Facts<'_> = facts.iter().copied().collect();
        ready(self.limiter.decide(&facts, 1));
    }

    fn told(&self, kind: TopKind, sight: Sight) -> Vec<TopKey> {
        self.top.told(&TopQuery { kind: Some(kind), rule: None, limit: 1_000, sight })
    }

    /// Who and how often, in clear.
    fn counts(&self, kind: TopKind) -> Vec<(String, u64)> {
        let told = self.told(kind, Sight::Clear).into_iter();
        told.map(|key| (key.who.unwrap_or_default(), key.count)).collect()
    }
}

const BY_IP: &str = "rules: [{ id: r, key_by: ip, limit: 2/h using fixed_window }]";

#[test]
fn who_asks_and_who_is_refused_are_two_lists() {
    let house = house(BY_IP);
    (0..5).for_each(|_| house.ask(&[("ip", "192.0.2.1")]));
    (0..3).for_each(|_| house.ask(&[("ip", "192.0.2.2")]));
    let (one, other) = ("ip=192.0.2.1".to_owned(), "ip=192.0.2.2".to_owned());
    assert_eq!(house.counts(TopKind::Busiest), [(one.clone(), 5), (other.clone(), 3)]);
    assert_eq!(house.counts(TopKind::Refused), [(one, 3), (other, 1)]);
    let both = TopQuery { kind: None, rule: Some("r"), limit: 1, sight: Sight::Clear };
    let kinds: Vec<_> = house.top.told(&both).into_iter().map(|key| key.kind).collect();
    assert_eq!(kinds, ["refused", "busiest"]);
    assert_eq!(house.top.told(&TopQuery { rule: Some("other"), ..both }), []);
}

#[test]
fn rules_that_refuse_without_counting_are_listed_and_those_in_shadow() {
    let house = house(
        "rules:
  - { id: internal, match: { path: /admin }, key_by: ip, limit: { requests: deny } }
  - { id: watched, key_by: ip, limit: 1/h using fixed_window, mode: shadow }",
    );
    (0..3).for_each(|_| house.ask(&[("ip", "192.0.2.1"), ("path", "/admin")]));
    (0..3).for_each(|_| house.ask(&[("ip", "192.0.2.2"), ("path", "/")]));
    let told = house.told(TopKind::Refused, Sight::Clear);
    let told: Vec<_> = told.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(told, [("internal", 3), ("watched", 2)]);
}

#[test]
fn api_keys_are_never_told_and_others_only_to_those_who_may_see_them() {
    let house = house(
        "identity: { api_key: { header: x-api-key } }
rules:
  - { id: keys, key_by: api_key, limit: 10/h }
  - { id: users, key_by: [user_id, ip], limit: 10/h }
  - { id: all, key_by: global, limit: 100/h }",
    );
    house.ask(&[("api_key", "s3cret-key"), ("user_id", "alice"), ("ip", "192.0.2.1")]);
    let text = |sight| format!("{:?}", house.told(TopKind::Busiest, sight));
    let (clear, hashed) = (text(Sight::Clear), text(Sight::Hashed));
    assert!(!clear.contains("s3cret") && clear.contains("api_key=h:"), "{clear}");
    assert!(clear.contains("user_id=alice, ip=192.0.2.1") && clear.contains("everyone"), "{clear}");
    for hidden in ["s3cret", "alice", "192.0.2.1"] {
        assert!(!hashed.contains(hidden), "{hidden} in {hashed}");
    }
    // By the fingerprint, too, an address would be found when the fleet's secret is not set.
    for key in house.told(TopKind::Busiest, Sight::Clear) {
        assert!(key.key.len() == 32 && !hashed.contains(&key.key), "{key:?} in {hashed}");
    }
}

#[test]
fn long_and_hostile_names_are_cut_and_kept_as_text() {
    let house = house("rules: [{ id: r, key_by: user_id, limit: 10/h }]");
    house.ask(&[("user_id", &"é".repeat(5_000))]);
    let told = house.told(TopKind::Busiest, Sight::Clear);
    let who = told[0].who.as_deref().unwrap();
    assert!(who.len() < 250 && who.ends_with('…'), "{who}");
}

#[test]
fn what_was_is_forgotten_after_two_minutes() {
    let house = house(BY_IP);
    let ask = |ip: &str| house.ask(&[("ip", ip)]);
    ask("192.0.2.1");
    house.clock.advance(Micros::from_secs(61));
    (0..2).for_each(|_| ask("192.0.2.2"));
    let names = |list: Vec<(String, u64)>| list.into_iter().map(|(who, _)| who).collect::<Vec<_>>();
    assert_eq!(names(house.counts(TopKind::Busiest)), ["ip=192.0.2.2", "ip=192.0.2.1"]);
    house.clock.advance(Micros::from_secs(60));
    assert_eq!(names(house.counts(TopKind::Busiest)), ["ip=192.0.2.2"]);
    ask("192.0.2.2");
    house.clock.advance(Micros::from_secs(600));
    assert_eq!(house.counts(TopKind::Busiest), []);
    // A clock that goes back brings nothing back, and nothing to an end.
    house.clock.set(START);
    ask("192.0.2.3");
    assert_eq!(names(house.counts(TopKind::Busiest)), ["ip=192.0.2.3"]);
}

#[test]
fn lists_of_deleted_rules_are_forgotten_and_others_go_on() {
    let house = house(BY_IP);
    house.ask(&[("ip", "192.0.2.1")]);
    let edited = "rules:\n  - { id: r, key_by: ip, limit: 5/h using fixed_window }\n  - { id: new, key_by: ip, limit: 5/h }";
    ready(house.limiter.install(rules(edited))).unwrap();
    house.ask(&[("ip", "192.0.2.1")]);
    let told = house.told(TopKind::Busiest, Sight::Clear);
    let told: Vec<_> = told.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(told, [("r", 2), ("new", 1)]);
    ready(house.limiter.install(rules("rules: []"))).unwrap();
    assert_eq!(house.told(TopKind::Busiest, Sight::Clear), []);
}

/// More keys and decisions than there is room and time for: estimates within what is told of them.
#[test]
fn among_very_many_the_busiest_are_found_within_the_told_error() {
    let house = house(BY_IP);
    let mut exact: HashMap<String, u64> = HashMap::new();
    for i in 0..400_000_u32 {
        // Ten clients have half of it, each twice as much as the next.
        let client = if i % 2 == 0 { (i / 2).trailing_ones().min(9) } else { 1_000 + i };
        let ip = Ipv4Addr::from(client).to_string();
        house.ask(&[("ip", &ip)]);
        *exact.entry(format!("ip={ip}")).or_default() += 1;
        if i % 100 == 0 {
            house.clock.advance(Micros::from_millis(1));
        }
    }
    let told = house.told(TopKind::Busiest, Sight::Clear);
    assert!((64..=128).contains(&told.len()), "{} keys", told.len());
    for (client, key) in told.iter().take(4).enumerate() {
        let name = format!("ip={}", Ipv4Addr::from(u32::try_from(client).unwrap()));
        assert_eq!(key.who.as_deref(), Some(name.as_str()), "{told:#?}");
        // Three times what is told as spread is six standard deviations: never, for people.
        let (truth, spread) = (exact[&name], 3 * key.spread);
        assert!(key.spread > 0, "so many are not all looked at: {key:?}");
        assert!(truth <= key.count + spread, "{truth}: {key:?}");
        assert!(truth + spread >= key.count - key.error, "{truth}: {key:?}");
    }
}

#[test]
fn a_key_that_comes_ten_times_as_fast_is_a_burst_and_told_once() {
    let house = house("rules: [{ id: r, key_by: ip, limit: 1000000/s }]");
    let second = |clients: &[(&str, u32)]| {
        for (ip, times) in clients {
            (0..*times).for_each(|_| house.ask(&[("ip", ip)]));
        }
        house.clock.advance(Micros::from_secs(1));
    };
    let (steady, sudden) = ("192.0.2.1", "192.0.2.2");
    (0..30).for_each(|_| second(&[(steady, 120), (sudden, 5)]));
    assert_eq!(house.top.bursts(0, Sight::Clear), [], "what is steady is no burst");
    (0..5).for_each(|_| second(&[(steady, 120), (sudden, 150)]));
    let told = house.top.bursts(0, Sight::Clear);
    let [burst] = &told[..] else { panic!("{told:#?}") };
    assert_eq!((burst.rule.as_str(), burst.who.as_deref()), ("r", Some("ip=192.0.2.2")));
    assert_eq!((burst.rate, burst.mean), (100, 5));
    assert_eq!(house.top.bursts(burst.number, Sight::Clear), []);
    assert!(!format!("{:?}", house.top.bursts(0, Sight::Hashed)).contains("192.0.2"));
}
