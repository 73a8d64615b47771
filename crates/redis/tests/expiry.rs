//! I14 on the server's clock: every key expires, not before its state equals a fresh one and not
//! much later, and its name reveals no identity.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

use common::seeded_rng::SeededRng;
use common::{
    RedisFixture, STANDALONE_TAG, StoreRequest, calls_during, charge, hash_tag, log_name,
    page_name, policy,
};
use tidegate_core::batch::StateKind;
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::penalty::BanPolicy;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::process::eventually;
use tidegate_testkit::property::cases;
use tidegate_testkit::quotas::RATE_ALGORITHMS;
use tidegate_testkit::redis::{RedisReply, RedisServer, slot_of};
use tidegate_testkit::state_table::StateTable;

/// Identities that no key's name may contain.
const IDENTITIES: [&str; 3] = ["alice@example.com", "203.0.113.7", "sk_live_{4242}"];

/// Rule IDs, and how they are escaped in the names of keys.
const RULES: [(&str, &str); 3] =
    [("free-writes", "free-writes"), ("{odd}id", "(odd)id"), ("per{user", "per(user")];

const PARTS: [StateKind; 3] = [StateKind::Main, StateKind::Grace, StateKind::Ban];

struct ExpiryRule {
    id: &'static str,
    escaped_id: &'static str,
    namespace: Fingerprint,
    policy: Policy,
    grace: Option<Policy>,
    ban: Option<BanPolicy>,
}

fn rules(window: Micros) -> Vec<ExpiryRule> {
    let mut rules = Vec::new();
    for (i, algorithm) in RATE_ALGORITHMS.into_iter().enumerate() {
        let (id, named) = RULES[i % RULES.len()];
        let grace = (i % 2 == 0).then(|| policy(Algorithm::ALL[i % 5], 2, window));
        let ban = BanPolicy::new(3, window, Micros::new(window.get() / 2), 2, window);
        let ban = (i % 3 != 0).then_some(ban);
        let namespace = Secret::UNSET.namespace(&[&[u8::try_from(i).expect("few rules")]]);
        let policy = policy(algorithm, 7, window);
        rules.push(ExpiryRule { id, escaped_id: named, namespace, policy, grace, ban });
    }
    rules
}

impl ExpiryRule {
    fn key(&self, owner: Fingerprint) -> Key<'_> {
        let (rule, namespace) = (self.id, self.namespace);
        Key { namespace, ..Key::without_namespace(rule, owner ^ namespace) }
    }

    /// The policy of a part; bans have none.
    fn policy(&self, part: StateKind) -> Option<&Policy> {
        match part {
            StateKind::Main => Some(&self.policy),
            StateKind::Grace => self.grace.as_ref(),
            StateKind::Ban => None,
        }
    }

    /// The documented name of the key that holds a part.
    fn name(&self, owner: Fingerprint, part: StateKind) -> String {
        let is_log = self.policy(part).is_some_and(|policy| policy.max_log_entries().is_some());
        let tag = self.namespace.hi & !3 | part as u64;
        if is_log { log_name(self.escaped_id, owner, tag) } else { owner_page(owner) }
    }
}

fn owner_page(owner: Fingerprint) -> String {
    format!("tg:{{{}}}", hash_tag(owner))
}

/// The fingerprint of the owner of counters.
fn owner_fingerprint(window: Micros, who: &str) -> Fingerprint {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(&window.get().to_be_bytes());
    hasher.write_part(who.as_bytes());
    hasher.finish()
}

fn server_time(server: &RedisServer) -> Timestamp {
    let time = server.command(&["TIME"]);
    let number = |i: usize| u64::try_from(time.items()[i].integer()).expect("a time");
    Timestamp::from_micros(number(0) * 1_000_000 + number(1))
}

fn key_names(server: &RedisServer) -> BTreeSet<String> {
    let (mut cursor, mut names) = ("0".to_owned(), BTreeSet::new());
    loop {
        let reply = server.command(&["SCAN", &cursor, "COUNT", "1000"]);
        cursor = reply.items()[0].text();
        names.extend(reply.items()[1].items().iter().map(RedisReply::text));
        if cursor == "0" {
            return names;
        }
    }
}

/// Runs random requests on the server's clock, and applies them to the table at the same times.
fn run_random_requests(
    fixture: &RedisFixture,
    rng: &mut SeededRng,
    window: Micros,
    steps: u64,
    table: &mut StateTable,
) {
    let rules = rules(window);
    let mut charged = None;
    for _ in 0..steps {
        let mut requests = Vec::new();
        for _ in 0..rng.between(1, 8) {
            let i = usize::try_from(rng.below(6)).expect("a place");
            let rule = &rules[i];
            let op = match (rng.below(40), charged) {
                (0, _) => Op::Reset,
                (1..=3, Some(charged_at)) => Op::Refund { charged_at },
                (4..=6, _) => Op::Force,
                (7, _) => Op::Peek,
                _ => Op::Charge,
            };
            let key = rule.key(owner_fingerprint(window, rng.choose(&IDENTITIES)));
            let cost = if rng.one_in(3) { rng.between(1, 9) } else { 1 };
            let mut charge = Charge::plain(key, &rule.policy, cost);
            charge.grace = rule.grace.as_ref();
            charge.ban = rule.ban.as_ref();
            requests.push(StoreRequest::single(op, charge));
        }
        let reply = fixture.apply_batch(&requests);
        for (request, reply) in requests.iter().zip(reply) {
            let expected = table.apply(request.op, &request.charges, reply[0].now);
            assert_eq!(reply, expected, "{request:?}");
            charged = Some(reply[0].now);
        }
    }
}

/// By how much a key may outlive its state, in microseconds. `None` is a ban.
fn expiry_slack_us(policy: Option<&Policy>) -> u64 {
    let short = 2_000_000;
    match policy.map(Policy::algorithm) {
        Some(Algorithm::SlidingWindowLog) => 0,
        Some(Algorithm::TokenBucket | Algorithm::LeakyBucket(_)) => {
            policy.map_or(0, |policy| policy.period().get() / 4).clamp(short, 300_000_000)
        }
        _ => short,
    }
}

/// Asserts that a key expires at or after `fresh_at`, and not after `latest`.
fn assert_expires(reply: i64, fresh_at: u64, latest: u64, what: &str) {
    let reply = u64::try_from(reply).expect("a time");
    assert!(reply * 1_000 >= fresh_at, "{what} expires {} us early", fresh_at - reply * 1_000);
    let latest = latest.div_ceil(1_000);
    assert!(reply <= latest, "{what} expires {} ms late", reply - latest);
}

/// Asserts that every key expires when its last state is fresh. Returns the number of existing
/// keys.
fn check_expiries(server: &RedisServer, window: Micros, table: &StateTable) -> usize {
    let mut ends: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (rule, who) in rules(window).iter().flat_map(|rule| IDENTITIES.map(|who| (rule, who))) {
        for part in PARTS {
            let owner = owner_fingerprint(window, who);
            let state = table.state(rule.key(owner).fingerprint, part);
            let fresh_at = state.map_or(0, |state| state.expires_at().as_micros());
            let latest = fresh_at + expiry_slack_us(rule.policy(part));
            let [earliest, last] = ends.entry(rule.name(owner, part)).or_default();
            (*earliest, *last) = (fresh_at.max(*earliest), latest.max(*last));
        }
    }
    let mut there = 0;
    for (name, [fresh_at, latest]) in ends {
        let reply = server.command(&["PEXPIRETIME", &name]).integer();
        let now = server_time(server).as_micros();
        if reply == -2 {
            assert!(fresh_at <= now, "{name} disappeared {} us early", fresh_at - now);
        } else {
            // A rewritten page stays for at least a second, whatever its content.
            assert_expires(reply, fresh_at, latest.max(now + 1_000_000), &name);
            there += 1;
        }
    }
    there
}

#[test]
fn keys_expire_when_their_state_is_fresh() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    let (mut rng, mut table) = (SeededRng::new(14), StateTable::default());
    let mut checked = 0;
    for window in [Micros::from_secs(3_600), Micros::from_secs(60), Micros::from_millis(30)] {
        for _ in 0..(u64::from(cases()) / 2_000).max(1) {
            run_random_requests(&fixture, &mut rng, window, 10, &mut table);
            checked += check_expiries(&server, window, &table);
        }
    }
    println!("{checked} keys expire when they should");
    let names = key_names(&server);
    let expected: BTreeSet<String> = [3_600_000, 60_000, 30]
        .into_iter()
        .map(Micros::from_millis)
        .flat_map(|window| IDENTITIES.map(|who| (window, owner_fingerprint(window, who))))
        .flat_map(|(window, owner)| {
            let names = move |rule: ExpiryRule| PARTS.map(|part| rule.name(owner, part));
            rules(window).into_iter().flat_map(names)
        })
        .collect();
    for name in &names {
        let ttl = server.command(&["PTTL", name]).integer();
        assert!(ttl != -1, "{name} never expires");
        assert!(IDENTITIES.iter().all(|who| !name.contains(who)), "{name} reveals an identity");
        if name != "tg:nodes" && name != "tg:canary:{0}" {
            assert!(expected.contains(name), "{name} is not a documented name");
            let (_, tag) = name.split_once('{').expect("a hash");
            assert_eq!(slot_of(name), slot_of(&tag[..22]), "{name} is not in the slot of its hash");
        }
    }
    assert!(names.len() > 9, "{names:?}");
}

/// After a clock step back, no key keeps an expiry from the later time.
#[test]
fn keys_expire_after_clock_step_back() {
    let server = RedisServer::start_with_fake_clock();
    let fixture = RedisFixture::connect(&server.url());
    let (mut rng, mut table) = (SeededRng::new(1_582), StateTable::default());
    let window = Micros::from_secs(3_600);
    for step in [0, -1, -600, -86_400] {
        server.step_clock(step);
        run_random_requests(&fixture, &mut rng, window, 40, &mut table);
        assert!(check_expiries(&server, window, &table) > 5);
    }
}

/// Several rules are cheap because the counters of one owner are read and written together.
#[test]
fn rules_of_one_owner_share_one_page() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    let owner = owner_fingerprint(Micros::from_secs(1), IDENTITIES[0]);
    let hour = policy(Algorithm::TokenBucket, 1_000, Micros::from_secs(3_600));
    let namespaces = [7, 1, 9, 4, 3].map(|rule: u8| Secret::UNSET.namespace(&[&[rule]]));
    let charge = |namespace| {
        Charge::plain(
            Key { namespace, ..Key::without_namespace("law", owner ^ namespace) },
            &hour,
            1,
        )
    };
    // The page is built in an order that differs from the rules' order.
    for rules in [vec![0, 2], vec![3], vec![1, 2, 3], vec![0, 1, 2, 3, 4]] {
        let charges: Vec<_> = rules.iter().map(|rule| charge(namespaces[*rule])).collect();
        fixture.apply(Op::Charge, &charges);
        for command in ["mget", "setrange"] {
            let calls = calls_during(&server, command, || _ = fixture.apply(Op::Charge, &charges));
            assert_eq!(calls, 1, "{command} for {rules:?}");
        }
        let set = calls_during(&server, "set", || _ = fixture.apply(Op::Charge, &charges));
        assert_eq!(set, 0, "{rules:?}");
    }
    // Sorted records allow a single pass for reads and writes.
    let RedisReply::Bulk(page) = server.command(&["GET", &owner_page(owner)]) else {
        panic!("no page")
    };
    let tags: Vec<&[u8]> = page.chunks(43).map(|record| &record[..8]).collect();
    assert!(tags.is_sorted() && tags.len() == namespaces.len(), "{tags:?}");
    let left = namespaces.map(|rule| fixture.apply_one(Op::Peek, charge(rule)).remaining);
    assert_eq!(left, [992, 992, 988, 988, 996]);
}

/// Expired records of old rules do not stay on the page of an active client.
#[test]
fn long_page_drops_expired_records() {
    const SHORT: u64 = 30;
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let owner = owner_fingerprint(Micros::from_secs(1), IDENTITIES[0]);
    let (day, second) = (Micros::from_secs(86_400), Micros::from_secs(1));
    let (long, short) =
        (policy(Algorithm::TokenBucket, 5, day), policy(Algorithm::FixedWindow, 5, second));
    let charge = |rule: u64, policy| {
        let namespace = Secret::UNSET.namespace(&[&rule.to_be_bytes()]);
        Charge::plain(
            Key { namespace, ..Key::without_namespace("law", owner ^ namespace) },
            policy,
            1,
        )
    };
    let records = || server.command(&["STRLEN", &owner_page(owner)]).integer() / 43;
    fixture.clock.set(common::START);
    fixture.apply_one(Op::Charge, charge(0, &long));
    for rule in 1..=SHORT {
        fixture.apply_one(Op::Charge, charge(rule, &short));
    }
    assert_eq!(records(), 31);
    fixture.clock.set(common::START.plus(Micros::from_secs(10)));
    assert_eq!(fixture.apply_one(Op::Charge, charge(1, &short)).remaining, 4);
    assert_eq!(records(), 2, "the day's record and the renewed one");
    assert_eq!(fixture.apply_one(Op::Peek, charge(0, &long)).remaining, 4);
}

/// Writes are cheap because most of them keep the existing expiry.
#[test]
fn most_writes_keep_the_expiry() {
    const WRITES: u64 = 200;
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    let kinds = RATE_ALGORITHMS.into_iter().filter(|each| *each != Algorithm::SlidingWindowLog);
    for (i, algorithm) in (0..).zip(kinds) {
        let policy = policy(algorithm, 1_000, Micros::from_secs(3_600));
        for (op, key) in [(Op::Charge, 2 * i), (Op::Force, 2 * i + 1)] {
            let one = charge(key, &policy);
            let name = page_name("law", one.key.fingerprint);
            let (mut state, mut ends) = (RedisReply::Nil, BTreeSet::new());
            let sets = calls_during(&server, "set", || {
                for _ in 0..WRITES {
                    fixture.apply_one(op, one);
                    let before = replace(&mut state, server.command(&["GET", &name]));
                    assert_ne!(state, before, "{algorithm}, {op:?}: it is written");
                    ends.insert(server.command(&["PEXPIRETIME", &name]).integer());
                }
            });
            // 200 requests of 3.6 s each; the hour may also end during the test.
            assert!(sets <= 4, "{algorithm}, {op:?}: {sets} of {WRITES} set the expiry");
            assert_eq!(ends.len() as u64, sets, "{algorithm}, {op:?}");
        }
    }
}

/// MIGRATE transfers the remaining lifetime of a key, so on a server whose clock is behind, the key
/// expires earlier than its state requires.
#[test]
fn migrated_key_does_not_expire_early() {
    let (from, to) = (RedisServer::start_with_fake_clock(), RedisServer::start_with_fake_clock());
    to.step_clock(-1);
    // Half a second per request: some are as close to the expiry as the difference of the clocks.
    let policy = policy(Algorithm::TokenBucket, 7_200, Micros::from_secs(3_600));
    let (one, mut table) = (charge(1, &policy), StateTable::default());
    let name = page_name("law", one.key.fingerprint);
    for op in [Op::Charge, Op::Force] {
        let fixture = RedisFixture::connect(&from.url());
        for cost in [1, 100] {
            let some = Charge { cost, ..one };
            let reply = fixture.apply_one(op, some);
            assert_eq!(reply, table.apply_one(op, &some, reply.now));
        }
        let port = to.port().to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000", "REPLACE"]);
        assert_eq!(moved, RedisReply::Simple("OK".into()));
        let fixture = RedisFixture::connect(&to.url());
        for _ in 0..700 {
            let reply = fixture.apply_one(op, one);
            assert_eq!(reply, table.apply_one(op, &one, reply.now));
            let fresh_at =
                table.state(one.key.fingerprint, StateKind::Main).expect("a state").expires_at();
            let reply = to.command(&["PEXPIRETIME", &name]).integer();
            let fresh_at = fresh_at.as_micros();
            assert_expires(reply, fresh_at, fresh_at + expiry_slack_us(Some(&policy)), &name);
        }
        let reply = fixture.apply_one(Op::Reset, one);
        table.apply_one(Op::Reset, &one, reply.now);
    }
}

/// A foreign value counts as absent, and is replaced by a state that expires.
#[test]
fn foreign_value_counts_as_absent() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    for (i, algorithm) in (0..).zip(RATE_ALGORITHMS) {
        let policy = policy(algorithm, 10, Micros::from_secs(3_600));
        for op in [Op::Charge, Op::Force] {
            for value in ["", "short", "a value that is longer than any state of ours is"] {
                let one = charge(i, &policy);
                let is_log = algorithm == Algorithm::SlidingWindowLog;
                let (name, key) = (page_name("law", one.key.fingerprint), one.key.fingerprint);
                let name = if is_log { log_name("law", key, STANDALONE_TAG) } else { name };
                server.command(&["DEL", &name]);
                let counts = |left: [u64; 2]| {
                    for left in left {
                        let reply = fixture.apply_one(op, one).remaining;
                        assert_eq!(reply, left, "{algorithm} {value:?}");
                        assert!(server.command(&["PTTL", &name]).integer() > 0, "{algorithm}");
                    }
                };
                if is_log {
                    counts([9, 8]);
                } else {
                    server.command(&["SET", &name, value]);
                    counts([9, 8]);
                    // A page that another program has modified counts as foreign.
                    server.command(&["APPEND", &name, "x"]);
                    counts([9, 8]);
                }
            }
        }
    }
}

/// Keys with short windows disappear when they expire, and not before.
#[test]
fn expired_keys_disappear_on_time() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    let (mut rng, mut table) = (SeededRng::new(41), StateTable::default());
    let window = Micros::from_millis(150);
    run_random_requests(&fixture, &mut rng, window, 60, &mut table);
    assert!(check_expiries(&server, window, &table) > 0);
    let mut waiting: Vec<(String, i64)> = key_names(&server)
        .into_iter()
        .filter(|name| name.contains(":{") && !name.contains("canary"))
        .map(|name| (name.clone(), server.command(&["PEXPIRETIME", &name]).integer()))
        .filter(|(_, reply)| *reply > 0)
        .collect();
    assert!(waiting.len() > 3, "{waiting:?}");
    eventually("all keys are gone", || {
        waiting.retain(|(name, expires)| {
            let millis = |time: Timestamp| i64::try_from(time.as_micros() / 1_000).expect("a time");
            let before = millis(server_time(&server));
            let there = server.command(&["EXISTS", name]).integer() == 1;
            assert!(!there || before <= *expires, "{name} should have expired at {expires}");
            assert!(there || millis(server_time(&server)) >= *expires, "{name} expired too early");
            there
        });
        waiting.is_empty()
    });
}

/// A log whose window starts before the epoch leaves no key when it is emptied.
#[test]
fn emptied_log_leaves_no_key() {
    let server = RedisServer::start();
    let fixture = RedisFixture::connect(&server.url());
    let quota = Quota::new(100, Micros::from_secs(100 * 365 * 86_400));
    let long = Policy::new(Algorithm::SlidingWindowLog, quota).expect("numbers that work");
    let one: Charge<'_> = common::charge(1, &long);
    let name = log_name("law", one.key.fingerprint, STANDALONE_TAG);
    for empty in [&(|_| Op::Reset) as &dyn Fn(Timestamp) -> Op, &|charged_at: Timestamp| {
        Op::Refund { charged_at }
    }] {
        let reply = fixture.apply_one(Op::Charge, one);
        assert_eq!(server.command(&["EXISTS", &name]).integer(), 1);
        fixture.apply_one(empty(reply.now), one);
        assert_eq!(server.command(&["EXISTS", &name]).integer(), 0);
    }
}
