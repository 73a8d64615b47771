//! I14 on the server's own clock: every key that is written expires, not before its state equals none
//! and hardly later, and is called so that nobody is told by it.

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

/// Who must not be told by a name.
const IDENTITIES: [&str; 3] = ["alice@example.com", "203.0.113.7", "sk_live_{4242}"];

/// A rule, as it is called by people and as it is called in names.
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
        Key { rule, fingerprint: owner ^ namespace, namespace }
    }

    /// The policy of a part; there is none for bans.
    fn policy(&self, part: StateKind) -> Option<&Policy> {
        match part {
            StateKind::Main => Some(&self.policy),
            StateKind::Grace => self.grace.as_ref(),
            StateKind::Ban => None,
        }
    }

    /// Where a part is, as it is documented.
    fn name(&self, owner: Fingerprint, part: StateKind) -> String {
        let is_log = self.policy(part).is_some_and(|policy| policy.max_log_entries().is_some());
        let tag = self.namespace.hi & !3 | part as u64;
        if is_log { log_name(self.escaped_id, owner, tag) } else { owner_page(owner) }
    }
}

fn owner_page(owner: Fingerprint) -> String {
    format!("tg:{{{}}}", hash_tag(owner))
}

/// Whose counters.
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
        let told = server.command(&["SCAN", &cursor, "COUNT", "1000"]);
        cursor = told.items()[0].text();
        names.extend(told.items()[1].items().iter().map(RedisReply::text));
        if cursor == "0" {
            return names;
        }
    }
}

/// Random requests on the server's clock; the table is told when they were decided.
fn run_random_requests(
    stand: &RedisFixture,
    dice: &mut SeededRng,
    window: Micros,
    steps: u64,
    table: &mut StateTable,
) {
    let rules = rules(window);
    let mut charged = None;
    for _ in 0..steps {
        let mut requests = Vec::new();
        for _ in 0..dice.between(1, 8) {
            let i = usize::try_from(dice.below(6)).expect("a place");
            let rule = &rules[i];
            let op = match (dice.below(40), charged) {
                (0, _) => Op::Reset,
                (1..=3, Some(charged_at)) => Op::Refund { charged_at },
                (4..=6, _) => Op::Force,
                (7, _) => Op::Peek,
                _ => Op::Charge,
            };
            let key = rule.key(owner_fingerprint(window, dice.choose(&IDENTITIES)));
            let cost = if dice.one_in(3) { dice.between(1, 9) } else { 1 };
            let mut charge = Charge::plain(key, &rule.policy, cost);
            charge.grace = rule.grace.as_ref();
            charge.ban = rule.ban.as_ref();
            requests.push(StoreRequest::single(op, charge));
        }
        let told = stand.apply_batch(&requests);
        for (request, told) in requests.iter().zip(told) {
            let expected = table.apply(request.op, &request.charges, told[0].now);
            assert_eq!(told, expected, "{request:?}");
            charged = Some(told[0].now);
        }
    }
}

/// By how much a key may outlive its state, in microseconds; nothing is told of a ban.
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

/// Whether a key expires at or after this instant, and not after that.
fn assert_expires(told: i64, fresh_at: u64, latest: u64, what: &str) {
    let told = u64::try_from(told).expect("a time");
    assert!(told * 1_000 >= fresh_at, "{what} expires {} us early", fresh_at - told * 1_000);
    let latest = latest.div_ceil(1_000);
    assert!(told <= latest, "{what} expires {} ms late", told - latest);
}

/// Whether every key expires when the last of its states equals none; returns how many were there.
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
        let told = server.command(&["PEXPIRETIME", &name]).integer();
        let now = server_time(server).as_micros();
        if told == -2 {
            assert!(fresh_at <= now, "{name} is gone {} us early", fresh_at - now);
        } else {
            // A page that is written anew stays for a second, whatever is on it.
            assert_expires(told, fresh_at, latest.max(now + 1_000_000), &name);
            there += 1;
        }
    }
    there
}

#[test]
fn keys_expire_when_their_state_is_fresh() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    let (mut dice, mut table) = (SeededRng::new(14), StateTable::default());
    let mut checked = 0;
    for window in [Micros::from_secs(3_600), Micros::from_secs(60), Micros::from_millis(30)] {
        for _ in 0..(u64::from(cases()) / 2_000).max(1) {
            run_random_requests(&stand, &mut dice, window, 10, &mut table);
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
        assert!(IDENTITIES.iter().all(|who| !name.contains(who)), "{name} tells who");
        if name != "tg:nodes" && name != "tg:canary:{0}" {
            assert!(expected.contains(name), "{name} is not a name of ours");
            let (_, tag) = name.split_once('{').expect("a hash");
            assert_eq!(slot_of(name), slot_of(&tag[..22]), "{name} is not where its hash is");
        }
    }
    assert!(names.len() > 9, "{names:?}");
}

/// A clock that goes back leaves no key with the expiry of a later time.
#[test]
fn keys_expire_after_clock_step_back() {
    let server = RedisServer::start_with_fake_clock();
    let stand = RedisFixture::connect(&server.url());
    let (mut dice, mut table) = (SeededRng::new(1_582), StateTable::default());
    let window = Micros::from_secs(3_600);
    for step in [0, -1, -600, -86_400] {
        server.step_clock(step);
        run_random_requests(&stand, &mut dice, window, 40, &mut table);
        assert!(check_expiries(&server, window, &table) > 5);
    }
}

/// What makes several rules cheap: what they count of one owner is read and written at once.
#[test]
fn rules_of_one_owner_share_one_page() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    let owner = owner_fingerprint(Micros::from_secs(1), IDENTITIES[0]);
    let hour = policy(Algorithm::TokenBucket, 1_000, Micros::from_secs(3_600));
    let namespaces = [7, 1, 9, 4, 3].map(|rule: u8| Secret::UNSET.namespace(&[&[rule]]));
    let charge = |namespace| {
        Charge::plain(Key { rule: "law", fingerprint: owner ^ namespace, namespace }, &hour, 1)
    };
    // The page comes about in an order that is not that of the rules.
    for rules in [vec![0, 2], vec![3], vec![1, 2, 3], vec![0, 1, 2, 3, 4]] {
        let charges: Vec<_> = rules.iter().map(|rule| charge(namespaces[*rule])).collect();
        stand.apply(Op::Charge, &charges);
        for command in ["mget", "setrange"] {
            let calls = calls_during(&server, command, || _ = stand.apply(Op::Charge, &charges));
            assert_eq!(calls, 1, "{command} for {rules:?}");
        }
        let set = calls_during(&server, "set", || _ = stand.apply(Op::Charge, &charges));
        assert_eq!(set, 0, "{rules:?}");
    }
    // What lets them be read and written in one go.
    let RedisReply::Bulk(page) = server.command(&["GET", &owner_page(owner)]) else {
        panic!("no page")
    };
    let tags: Vec<&[u8]> = page.chunks(43).map(|record| &record[..8]).collect();
    assert!(tags.is_sorted() && tags.len() == namespaces.len(), "{tags:?}");
    let left = namespaces.map(|rule| stand.apply_one(Op::Peek, charge(rule)).remaining);
    assert_eq!(left, [992, 992, 988, 988, 996]);
}

/// Records of rules that are long over do not stay on the page of somebody who keeps coming.
#[test]
fn long_page_drops_expired_records() {
    const SHORT: u64 = 30;
    let server = RedisServer::start();
    let stand = RedisFixture::with_test_clock(&server.url());
    let owner = owner_fingerprint(Micros::from_secs(1), IDENTITIES[0]);
    let (day, second) = (Micros::from_secs(86_400), Micros::from_secs(1));
    let (long, short) =
        (policy(Algorithm::TokenBucket, 5, day), policy(Algorithm::FixedWindow, 5, second));
    let charge = |rule: u64, policy| {
        let namespace = Secret::UNSET.namespace(&[&rule.to_be_bytes()]);
        Charge::plain(Key { rule: "law", fingerprint: owner ^ namespace, namespace }, policy, 1)
    };
    let records = || server.command(&["STRLEN", &owner_page(owner)]).integer() / 43;
    stand.clock.set(common::START);
    stand.apply_one(Op::Charge, charge(0, &long));
    for rule in 1..=SHORT {
        stand.apply_one(Op::Charge, charge(rule, &short));
    }
    assert_eq!(records(), 31);
    stand.clock.set(common::START.plus(Micros::from_secs(10)));
    assert_eq!(stand.apply_one(Op::Charge, charge(1, &short)).remaining, 4);
    assert_eq!(records(), 2, "the day's and the one that came again");
    assert_eq!(stand.apply_one(Op::Peek, charge(0, &long)).remaining, 4);
}

/// What makes a write cheap: the expiry that is there is left alone.
#[test]
fn most_writes_keep_the_expiry() {
    const WRITES: u64 = 200;
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    let kinds = RATE_ALGORITHMS.into_iter().filter(|each| *each != Algorithm::SlidingWindowLog);
    for (i, algorithm) in (0..).zip(kinds) {
        let policy = policy(algorithm, 1_000, Micros::from_secs(3_600));
        for (op, key) in [(Op::Charge, 2 * i), (Op::Force, 2 * i + 1)] {
            let one = charge(key, &policy);
            let name = page_name("law", one.key.fingerprint);
            let (mut state, mut ends) = (RedisReply::Nil, BTreeSet::new());
            let sets = calls_during(&server, "set", || {
                for _ in 0..WRITES {
                    stand.apply_one(op, one);
                    let before = replace(&mut state, server.command(&["GET", &name]));
                    assert_ne!(state, before, "{algorithm}, {op:?}: it is written");
                    ends.insert(server.command(&["PEXPIRETIME", &name]).integer());
                }
            });
            // 200 requests of 3.6 s each, or the hour ends meanwhile.
            assert!(sets <= 4, "{algorithm}, {op:?}: {sets} of {WRITES} set the expiry");
            assert_eq!(ends.len() as u64, sets, "{algorithm}, {op:?}");
        }
    }
}

/// MIGRATE hands over how long a key has left, so on a server whose clock is behind it expires sooner
/// than its state says.
#[test]
fn migrated_key_does_not_expire_early() {
    let (from, to) = (RedisServer::start_with_fake_clock(), RedisServer::start_with_fake_clock());
    to.step_clock(-1);
    // Half a second each: some come as close to the expiry as the clocks are apart.
    let policy = policy(Algorithm::TokenBucket, 7_200, Micros::from_secs(3_600));
    let (one, mut table) = (charge(1, &policy), StateTable::default());
    let name = page_name("law", one.key.fingerprint);
    for op in [Op::Charge, Op::Force] {
        let stand = RedisFixture::connect(&from.url());
        for cost in [1, 100] {
            let some = Charge { cost, ..one };
            let told = stand.apply_one(op, some);
            assert_eq!(told, table.apply_one(op, &some, told.now));
        }
        let port = to.port().to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000", "REPLACE"]);
        assert_eq!(moved, RedisReply::Simple("OK".into()));
        let stand = RedisFixture::connect(&to.url());
        for _ in 0..700 {
            let told = stand.apply_one(op, one);
            assert_eq!(told, table.apply_one(op, &one, told.now));
            let fresh_at =
                table.state(one.key.fingerprint, StateKind::Main).expect("a state").expires_at();
            let told = to.command(&["PEXPIRETIME", &name]).integer();
            let fresh_at = fresh_at.as_micros();
            assert_expires(told, fresh_at, fresh_at + expiry_slack_us(Some(&policy)), &name);
        }
        let told = stand.apply_one(Op::Reset, one);
        table.apply_one(Op::Reset, &one, told.now);
    }
}

/// Somebody else's value counts as none, and is replaced by a state that expires.
#[test]
fn foreign_value_counts_as_absent() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
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
                        let told = stand.apply_one(op, one).remaining;
                        assert_eq!(told, left, "{algorithm} {value:?}");
                        assert!(server.command(&["PTTL", &name]).integer() > 0, "{algorithm}");
                    }
                };
                if is_log {
                    counts([9, 8]);
                } else {
                    server.command(&["SET", &name, value]);
                    counts([9, 8]);
                    // A page that somebody has written to is none of ours any more.
                    server.command(&["APPEND", &name, "x"]);
                    counts([9, 8]);
                }
            }
        }
    }
}

/// Short windows, until they are over: gone when they expire, and not before.
#[test]
fn expired_keys_disappear_on_time() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    let (mut dice, mut table) = (SeededRng::new(41), StateTable::default());
    let window = Micros::from_millis(150);
    run_random_requests(&stand, &mut dice, window, 60, &mut table);
    assert!(check_expiries(&server, window, &table) > 0);
    let mut waiting: Vec<(String, i64)> = key_names(&server)
        .into_iter()
        .filter(|name| name.contains(":{") && !name.contains("canary"))
        .map(|name| (name.clone(), server.command(&["PEXPIRETIME", &name]).integer()))
        .filter(|(_, told)| *told > 0)
        .collect();
    assert!(waiting.len() > 3, "{waiting:?}");
    eventually("all keys are gone", || {
        waiting.retain(|(name, expires)| {
            let millis = |time: Timestamp| i64::try_from(time.as_micros() / 1_000).expect("a time");
            let before = millis(server_time(&server));
            let there = server.command(&["EXISTS", name]).integer() == 1;
            assert!(!there || before <= *expires, "{name} was to be gone at {expires}");
            assert!(there || millis(server_time(&server)) >= *expires, "{name} is gone too early");
            there
        });
        waiting.is_empty()
    });
}

/// A log whose window is older than the epoch leaves nothing behind when it is emptied.
#[test]
fn emptied_log_leaves_no_key() {
    let server = RedisServer::start();
    let stand = RedisFixture::connect(&server.url());
    let quota = Quota::new(100, Micros::from_secs(100 * 365 * 86_400));
    let long = Policy::new(Algorithm::SlidingWindowLog, quota).expect("numbers that work");
    let one: Charge<'_> = common::charge(1, &long);
    let name = log_name("law", one.key.fingerprint, STANDALONE_TAG);
    for empty in [&(|_| Op::Reset) as &dyn Fn(Timestamp) -> Op, &|charged_at: Timestamp| {
        Op::Refund { charged_at }
    }] {
        let told = stand.apply_one(Op::Charge, one);
        assert_eq!(server.command(&["EXISTS", &name]).integer(), 1);
        stand.apply_one(empty(told.now), one);
        assert_eq!(server.command(&["EXISTS", &name]).integer(), 0);
    }
}
