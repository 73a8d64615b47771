//! Tests of the busiest and most refused keys: the reported errors hold, counts expire, and API
//! keys are never disclosed.

#![expect(clippy::unwrap_used, reason = "tests")]

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
        Poll::Pending => panic!("a decision of the memory store is pending"),
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

    fn top_keys(&self, kind: TopKind, visibility: Visibility) -> Vec<TopKey> {
        self.top.query(&TopQuery { kind: Some(kind), rule: None, limit: 1_000, visibility })
    }

    /// Clients in clear text and their counts.
    fn counts(&self, kind: TopKind) -> Vec<(String, u64)> {
        let keys = self.top_keys(kind, Visibility::Clear).into_iter();
        keys.map(|key| (key.client.unwrap_or_default(), key.count)).collect()
    }
}

const BY_IP: &str = "rules: [{ id: r, key_by: ip, limit: 2/h using fixed_window }]";

#[test]
fn busiest_and_refused_are_separate_lists() {
    let fixture = fixture(BY_IP);
    (0..5).for_each(|_| fixture.decide(&[("ip", "192.0.2.1")]));
    (0..3).for_each(|_| fixture.decide(&[("ip", "192.0.2.2")]));
    let (one, other) = ("ip=192.0.2.1".to_owned(), "ip=192.0.2.2".to_owned());
    assert_eq!(fixture.counts(TopKind::Busiest), [(one.clone(), 5), (other.clone(), 3)]);
    assert_eq!(fixture.counts(TopKind::Refused), [(one, 3), (other, 1)]);
    let both = TopQuery { kind: None, rule: Some("r"), limit: 1, visibility: Visibility::Clear };
    let kinds: Vec<_> = fixture.top.query(&both).into_iter().map(|key| key.kind).collect();
    assert_eq!(kinds, ["refused", "busiest"]);
    assert_eq!(fixture.top.query(&TopQuery { rule: Some("other"), ..both }), []);
}

#[test]
fn deny_and_shadow_rules_are_listed() {
    let fixture = fixture(
        "rules:
  - { id: internal, match: { path: /admin }, key_by: ip, limit: { requests: deny } }
  - { id: watched, key_by: ip, limit: 1/h using fixed_window, mode: shadow }",
    );
    (0..3).for_each(|_| fixture.decide(&[("ip", "192.0.2.1"), ("path", "/admin")]));
    (0..3).for_each(|_| fixture.decide(&[("ip", "192.0.2.2"), ("path", "/")]));
    let keys = fixture.top_keys(TopKind::Refused, Visibility::Clear);
    let keys: Vec<_> = keys.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(keys, [("internal", 3), ("watched", 2)]);
}

#[test]
fn api_keys_are_always_hashed() {
    let fixture = fixture(
        "identity: { api_key: { header: x-api-key } }
rules:
  - { id: keys, key_by: api_key, limit: 10/h }
  - { id: users, key_by: [user_id, ip], limit: 10/h }
  - { id: all, key_by: global, limit: 100/h }",
    );
    fixture.decide(&[("api_key", "s3cret-key"), ("user_id", "alice"), ("ip", "192.0.2.1")]);
    let text = |visibility| format!("{:?}", fixture.top_keys(TopKind::Busiest, visibility));
    let (clear, hashed) = (text(Visibility::Clear), text(Visibility::Hashed));
    assert!(!clear.contains("s3cret") && clear.contains("api_key=h:"), "{clear}");
    assert!(clear.contains("user_id=alice, ip=192.0.2.1") && clear.contains("everyone"), "{clear}");
    for hidden in ["s3cret", "alice", "192.0.2.1"] {
        assert!(!hashed.contains(hidden), "{hidden} in {hashed}");
    }
    // Without a secret, the fingerprint would reveal the address as well.
    for key in fixture.top_keys(TopKind::Busiest, Visibility::Clear) {
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
    let fixture = fixture_with_identities(identities, document);
    let user = "é".repeat(5_000);
    for ip in ["2001:db8::1", "2001:db8::2"] {
        fixture.decide(&[("api_key", "s3cret-key"), ("user_id", &user), ("ip", ip)]);
    }
    let hashed = fixture.top_keys(TopKind::Busiest, Visibility::Hashed);
    let mut shown: Vec<_> = hashed.iter().filter_map(|key| key.client.as_deref()).collect();
    shown.sort_unstable();
    let hash = |name, value| format!("{name}={}", identities.hash_value(name, value));
    let network = hash("ip", "2001:db8::/64");
    assert_eq!(shown, [hash("api_key", "s3cret-key"), network, hash("user_id", &user)]);
    // With a secret, the key's fingerprint is a keyed hash too, the same as in violations.
    let clear = fixture.top_keys(TopKind::Busiest, Visibility::Clear);
    let keys = |list: &[TopKey]| list.iter().map(|key| key.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&clear), keys(&hashed));
}

#[test]
fn long_client_names_are_truncated() {
    let fixture = fixture("rules: [{ id: r, key_by: user_id, limit: 10/h }]");
    fixture.decide(&[("user_id", &"é".repeat(5_000))]);
    let keys = fixture.top_keys(TopKind::Busiest, Visibility::Clear);
    let who = keys[0].client.as_deref().unwrap();
    assert!(who.len() < 250 && who.ends_with('…'), "{who}");
}

#[test]
fn counts_are_forgotten_after_two_minutes() {
    let fixture = fixture(BY_IP);
    let decide = |ip: &str| fixture.decide(&[("ip", ip)]);
    decide("192.0.2.1");
    fixture.clock.advance(Micros::from_secs(61));
    (0..2).for_each(|_| decide("192.0.2.2"));
    let names = |list: Vec<(String, u64)>| list.into_iter().map(|(who, _)| who).collect::<Vec<_>>();
    assert_eq!(names(fixture.counts(TopKind::Busiest)), ["ip=192.0.2.2", "ip=192.0.2.1"]);
    fixture.clock.advance(Micros::from_secs(60));
    assert_eq!(names(fixture.counts(TopKind::Busiest)), ["ip=192.0.2.2"]);
    decide("192.0.2.2");
    fixture.clock.advance(Micros::from_secs(600));
    assert_eq!(fixture.counts(TopKind::Busiest), []);
    // A clock that goes backwards neither restores expired counts nor stops the counting.
    fixture.clock.set(START);
    decide("192.0.2.3");
    assert_eq!(names(fixture.counts(TopKind::Busiest)), ["ip=192.0.2.3"]);
}

#[test]
fn deleted_rule_drops_its_list() {
    let fixture = fixture(BY_IP);
    fixture.decide(&[("ip", "192.0.2.1")]);
    let edited = "rules:\n  - { id: r, key_by: ip, limit: 5/h using fixed_window }\n  - { id: new, key_by: ip, limit: 5/h }";
    poll_ready(fixture.limiter.install(rules(edited))).unwrap();
    fixture.decide(&[("ip", "192.0.2.1")]);
    let keys = fixture.top_keys(TopKind::Busiest, Visibility::Clear);
    let keys: Vec<_> = keys.iter().map(|key| (key.rule.as_str(), key.count)).collect();
    assert_eq!(keys, [("r", 2), ("new", 1)]);
    poll_ready(fixture.limiter.install(rules("rules: []"))).unwrap();
    assert_eq!(fixture.top_keys(TopKind::Busiest, Visibility::Clear), []);
}

/// With more keys than the sketch holds and more decisions than are sampled, the estimates are
/// within the reported errors.
#[test]
fn busiest_keys_are_within_reported_error() {
    let fixture = fixture(BY_IP);
    let mut exact: HashMap<String, u64> = HashMap::new();
    for i in 0..400_000_u32 {
        // Ten clients send half of the requests, each twice as many as the next.
        let client = if i % 2 == 0 { (i / 2).trailing_ones().min(9) } else { 1_000 + i };
        let ip = Ipv4Addr::from(client).to_string();
        fixture.decide(&[("ip", &ip)]);
        *exact.entry(format!("ip={ip}")).or_default() += 1;
        if i % 100 == 0 {
            fixture.clock.advance(Micros::from_millis(1));
        }
    }
    let keys = fixture.top_keys(TopKind::Busiest, Visibility::Clear);
    assert!((64..=128).contains(&keys.len()), "{} keys", keys.len());
    for (client, key) in keys.iter().take(4).enumerate() {
        let name = format!("ip={}", Ipv4Addr::from(u32::try_from(client).unwrap()));
        assert_eq!(key.client.as_deref(), Some(name.as_str()), "{keys:#?}");
        // Three times the reported spread is six standard deviations: practically never exceeded.
        let (truth, spread) = (exact[&name], 3 * key.spread);
        assert!(key.spread > 0, "not sampled: {key:?}");
        assert!(truth <= key.count + spread, "{truth}: {key:?}");
        assert!(truth + spread >= key.count - key.error, "{truth}: {key:?}");
    }
}

#[test]
fn tenfold_key_rate_is_one_burst() {
    let fixture = fixture("rules: [{ id: r, key_by: ip, limit: 1000000/s }]");
    let second = |clients: &[(&str, u32)]| {
        for (ip, times) in clients {
            (0..*times).for_each(|_| fixture.decide(&[("ip", ip)]));
        }
        fixture.clock.advance(Micros::from_secs(1));
    };
    let (steady, sudden) = ("192.0.2.1", "192.0.2.2");
    (0..30).for_each(|_| second(&[(steady, 120), (sudden, 5)]));
    assert_eq!(fixture.top.bursts(0, Visibility::Clear), [], "a steady rate is not a burst");
    (0..5).for_each(|_| second(&[(steady, 120), (sudden, 150)]));
    let bursts = fixture.top.bursts(0, Visibility::Clear);
    let [burst] = &bursts[..] else { panic!("{bursts:#?}") };
    assert_eq!((burst.rule.as_str(), burst.client.as_deref()), ("r", Some("ip=192.0.2.2")));
    assert_eq!((burst.rate, burst.mean), (100, 5));
    assert_eq!(fixture.top.bursts(burst.number, Visibility::Clear), []);
    assert!(!format!("{:?}", fixture.top.bursts(0, Visibility::Hashed)).contains("192.0.2"));
}
