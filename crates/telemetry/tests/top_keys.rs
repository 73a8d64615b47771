//! Who asks most and who is refused most: within the told error, for a while, and nobody's API key.

#![expect(clippy::unwrap_used, reason = "what a test did not expect fails it")]

use std::collections::HashMap;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_core::key::Secret;
use tidegate_core::time::{Clock as _, ManualClock, Micros, Timestamp};
use tidegate_limiter::{DecisionObserver, Limiter};
use tidegate_memory::MemoryStore;
use tidegate_rules::{Document, Facts, RuleSet};
use tidegate_telemetry::{IdentityPolicy, TopKey, TopKeys, TopKind, TopQuery, Visibility};

const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

struct TopKeysFixture {
    limiter: Limiter<MemoryStore>,
    top: Arc<TopKeys>,
    clock: ManualClock,
}

fn rules(source: &str) -> RuleSet {
    RuleSet::compile(&Document::parse("t", source).unwrap(), Secret::UNSET).unwrap()
}

fn poll_ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a decision on memory waits for nothing"),
    }
}

fn fixture(source: &str) -> TopKeysFixture {
    fixture_with_identities(IdentityPolicy { secret: Secret::UNSET, plain: false }, source)
}

fn fixture_with_identities(identities: IdentityPolicy, source: &str) -> TopKeysFixture {
    let clock = ManualClock::new(START);
    let read = clock.clone();
    let top = Arc::new(TopKeys::new(identities, Arc::new(move || read.now())));
    let limiter = Limiter::new(MemoryStore::new(), rules(source));
    let limiter = limiter.with_observer(Arc::clone(&top) as Arc<dyn DecisionObserver>);
    TopKeysFixture { limiter, top, clock }
}

impl TopKeysFixture {
    fn decide(&self, facts: &[(&str, &str)]) {
        let facts: Facts<'_> = facts.iter().copied().collect();
        poll_ready(self.limiter.decide(&facts, 1));
    }

    fn top_keys(&self, kind: TopKind, sight: Visibility) -> Vec<TopKey> {
        self.top.query(&TopQuery { kind: Some(kind), rule: None, limit: 1_000, visibility: sight })
    }

    /// Who and how often, in clear.
    fn counts(&self, kind: TopKind) -> Vec<(String, u64)> {
        let told = self.top_keys(kind, Visibility::Clear).into_iter();
        told.map(|key| (key.who.unwrap_or_default(), key.count)).collect()
    }
}

const BY_IP: &str = "rules: [{ id: r, key_by: ip, limit: 2/h using fixed_window }]";

#[test]
fn busiest_and_refused_are_separate_lists() {
    let house = fixture(BY_IP);
    (0..5).for_each(|_| house.decide(&[("ip", "192.0.2.1")]));
    (0..3).for_each(|_| house.decide(&[("ip", "192.0.2.2")]));
    let (one, other) = ("ip=192.0.2.1".to_owned(), "ip=192.0.2.2".to_owned());
    assert_eq!(house.counts(TopKind::Busiest), [(one.clone(), 5), (other.clone(), 3)]);
    assert_eq!(house.counts(TopKind::Refused), [(one, 3), (other, 1)]);
    let both = TopQuery { kind: None, rule: Some("r"), limit: 1, visibility: Visibility::Clear };
    let kinds: Vec<_> = house.top.query(&both).into_iter().map(|key| key.kind).collect();
    assert_eq!(kinds, ["refused", "busiest"]);
    assert_eq!(house.top.query(&TopQuery { rule: Some("other"), ..both }), []);
}

#[test]
fn deny_and_shadow_rules_are_listed() {
    let house = fixture(
        "rules:
  - { id: internal, match: { path: /admin }, key_by: ip, limit: { requests: deny } }
  - { id: watched, key_by: ip, limit: 1/h using fixed_window, mode: shadow }",
    );
    (0..3).for_each(|_| house.decide(&[("ip", "192.0.2.1"), ("path", "/admin")]));
    (0..3).for_each(|_| house.decide(&[("ip", "192.0.2.2"), ("path", "/")]));
    let told = house.top_keys(TopKind::Refused, Visibility::Clear);
    let told: Vec<_> = told.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(told, [("internal", 3), ("watched", 2)]);
}

#[test]
fn api_keys_are_always_hashed() {
    let house = fixture(
        "identity: { api_key: { header: x-api-key } }
rules:
  - { id: keys, key_by: api_key, limit: 10/h }
  - { id: users, key_by: [user_id, ip], limit: 10/h }
  - { id: all, key_by: global, limit: 100/h }",
    );
    house.decide(&[("api_key", "s3cret-key"), ("user_id", "alice"), ("ip", "192.0.2.1")]);
    let text = |sight| format!("{:?}", house.top_keys(TopKind::Busiest, sight));
    let (clear, hashed) = (text(Visibility::Clear), text(Visibility::Hashed));
    assert!(!clear.contains("s3cret") && clear.contains("api_key=h:"), "{clear}");
    assert!(clear.contains("user_id=alice, ip=192.0.2.1") && clear.contains("everyone"), "{clear}");
    for hidden in ["s3cret", "alice", "192.0.2.1"] {
        assert!(!hashed.contains(hidden), "{hidden} in {hashed}");
    }
    // By the fingerprint, too, an address would be found when the fleet's secret is not set.
    for key in house.top_keys(TopKind::Busiest, Visibility::Clear) {
        assert!(key.key.len() == 32 && !hashed.contains(&key.key), "{key:?} in {hashed}");
    }
}

#[test]
fn hashed_client_equals_recorded_violation() {
    let secret = Secret::from_bytes(b"a secret that other people do not know");
    let identities = IdentityPolicy { secret, plain: false };
    let document = "
identity: { api_key: { header: x-api-key } }
rules:
  - { id: keys, key_by: api_key, limit: 10/h }
  - { id: users, key_by: user_id, limit: 10/h }
  - { id: addresses, key_by: ip, limit: 10/h }";
    let house = fixture_with_identities(identities, document);
    let user = "é".repeat(5_000);
    for ip in ["2001:db8::1", "2001:db8::2"] {
        house.decide(&[("api_key", "s3cret-key"), ("user_id", &user), ("ip", ip)]);
    }
    let hashed = house.top_keys(TopKind::Busiest, Visibility::Hashed);
    let mut shown: Vec<_> = hashed.iter().filter_map(|key| key.who.as_deref()).collect();
    shown.sort_unstable();
    let hash = |name, value| format!("{name}={}", identities.hash_value(name, value));
    let network = hash("ip", "2001:db8::/64");
    assert_eq!(shown, [hash("api_key", "s3cret-key"), network, hash("user_id", &user)]);
    // Under a secret the key itself is such a hash, the one that violations have too.
    let clear = house.top_keys(TopKind::Busiest, Visibility::Clear);
    let keys = |told: &[TopKey]| told.iter().map(|key| key.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&clear), keys(&hashed));
}

#[test]
fn long_client_names_are_truncated() {
    let house = fixture("rules: [{ id: r, key_by: user_id, limit: 10/h }]");
    house.decide(&[("user_id", &"é".repeat(5_000))]);
    let told = house.top_keys(TopKind::Busiest, Visibility::Clear);
    let who = told[0].who.as_deref().unwrap();
    assert!(who.len() < 250 && who.ends_with('…'), "{who}");
}

#[test]
fn counts_are_forgotten_after_two_minutes() {
    let house = fixture(BY_IP);
    let ask = |ip: &str| house.decide(&[("ip", ip)]);
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
fn deleted_rule_drops_its_list() {
    let house = fixture(BY_IP);
    house.decide(&[("ip", "192.0.2.1")]);
    let edited = "rules:\n  - { id: r, key_by: ip, limit: 5/h using fixed_window }\n  - { id: new, key_by: ip, limit: 5/h }";
    poll_ready(house.limiter.install(rules(edited))).unwrap();
    house.decide(&[("ip", "192.0.2.1")]);
    let told = house.top_keys(TopKind::Busiest, Visibility::Clear);
    let told: Vec<_> = told.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(told, [("r", 2), ("new", 1)]);
    poll_ready(house.limiter.install(rules("rules: []"))).unwrap();
    assert_eq!(house.top_keys(TopKind::Busiest, Visibility::Clear), []);
}

/// More keys and decisions than there is room and time for: estimates within what is told of them.
#[test]
fn busiest_keys_are_within_reported_error() {
    let house = fixture(BY_IP);
    let mut exact: HashMap<String, u64> = HashMap::new();
    for i in 0..400_000_u32 {
        // Ten clients have half of it, each twice as much as the next.
        let client = if i % 2 == 0 { (i / 2).trailing_ones().min(9) } else { 1_000 + i };
        let ip = Ipv4Addr::from(client).to_string();
        house.decide(&[("ip", &ip)]);
        *exact.entry(format!("ip={ip}")).or_default() += 1;
        if i % 100 == 0 {
            house.clock.advance(Micros::from_millis(1));
        }
    }
    let told = house.top_keys(TopKind::Busiest, Visibility::Clear);
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
fn tenfold_key_rate_is_one_burst() {
    let house = fixture("rules: [{ id: r, key_by: ip, limit: 1000000/s }]");
    let second = |clients: &[(&str, u32)]| {
        for (ip, times) in clients {
            (0..*times).for_each(|_| house.decide(&[("ip", ip)]));
        }
        house.clock.advance(Micros::from_secs(1));
    };
    let (steady, sudden) = ("192.0.2.1", "192.0.2.2");
    (0..30).for_each(|_| second(&[(steady, 120), (sudden, 5)]));
    assert_eq!(house.top.bursts(0, Visibility::Clear), [], "what is steady is no burst");
    (0..5).for_each(|_| second(&[(steady, 120), (sudden, 150)]));
    let told = house.top.bursts(0, Visibility::Clear);
    let [burst] = &told[..] else { panic!("{told:#?}") };
    assert_eq!((burst.rule.as_str(), burst.who.as_deref()), ("r", Some("ip=192.0.2.2")));
    assert_eq!((burst.rate, burst.mean), (100, 5));
    assert_eq!(house.top.bursts(burst.number, Visibility::Clear), []);
    assert!(!format!("{:?}", house.top.bursts(0, Visibility::Hashed)).contains("192.0.2"));
}
