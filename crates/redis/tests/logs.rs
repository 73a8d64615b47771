//! Long logs of requests and of concurrency slots. The server stores them in chunks; the reference
//! table keeps each in one list.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod common;

use common::seeded_rng::SeededRng;
use common::{
    CommandStats, RedisFixture, STANDALONE_TAG, StoreRequest, charge, fingerprint, log_name, policy,
};
use tidegate_core::algorithm::sliding_window_log::Entry;
use tidegate_core::algorithm::{State, Tally};
use tidegate_core::batch::StateKind;
use tidegate_core::decision::Verdict;
use tidegate_core::policy::{Algorithm, MAX_LOG_REQUESTS, Policy};
use tidegate_core::store::{Charge, Op};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_testkit::property::cases;
use tidegate_testkit::redis::{RedisReply, RedisServer};
use tidegate_testkit::state_table::StateTable;

const WINDOW: Micros = Micros::from_secs(1);

/// Records per chunk, as in `lua/decide.lua`. The tests aim at the boundaries of chunks.
const CHUNK: u64 = 64;

/// Limits around the boundaries of chunks, and large ones.
const LIMITS: [u64; 14] = [1, 2, 5, 63, 64, 65, 100, 127, 128, 129, 300, 500, 999, 1_000];

/// Keys with requests at each instant.
const KEYS: usize = 8;

/// Instants of a history.
const ROUNDS: u32 = 3_000;

fn log_policy(requests: u64) -> Policy {
    policy(Algorithm::SlidingWindowLog, requests, WINDOW)
}

fn table_entries(table: &StateTable, key: u64) -> Vec<Entry> {
    match table.state(fingerprint(key), StateKind::Main) {
        Some(State { tally: Tally::Log(log), .. }) => log.entries().copied().collect(),
        _ => Vec::new(),
    }
}

/// The entries of a log on the server. Asserts that the hash has no other fields.
fn server_entries(server: &RedisServer, key: u64) -> Vec<Entry> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let bytes = |reply: &RedisReply| match reply {
        RedisReply::Bulk(bytes) => bytes.clone(),
        RedisReply::Nil => Vec::new(),
        other => panic!("bytes were expected, not {other:?}"),
    };
    let name = log_name("law", fingerprint(key), STANDALONE_TAG);
    let field = |field: &str| bytes(&server.command(&["HGET", &name, field]));
    let directory = field("d");
    let Some((head, chunks)) = directory.split_at_checked(6) else { return Vec::new() };
    let mut records = Vec::new();
    for entry in chunks.chunks(15) {
        let (last, total, count) = (&entry[..7], &entry[7..10], entry[10]);
        let chunk = field(&number(&entry[11..]).to_string());
        let first = records.len();
        records.extend(chunk.chunks(10).map(|record| Entry {
            at: Timestamp::from_micros(number(&record[..7])),
            cost: number(&record[7..]),
        }));
        let here = &records[first..];
        assert_eq!(here.len(), usize::from(count), "a chunk is as long as the directory says");
        assert_eq!(here.iter().map(|record| record.cost).sum::<u64>(), number(total));
        assert_eq!(here[here.len() - 1].at, Timestamp::from_micros(number(last)));
    }
    assert_eq!(records.iter().map(|record| record.cost).sum::<u64>(), number(&head[..3]));
    assert_eq!(records.len() as u64, number(&head[3..]));
    let fields = server.command(&["HLEN", &name]).integer();
    assert_eq!(fields, 1 + chunks.len() as i64 / 15, "no chunk is left behind");
    records
}

/// A refund or renewal of an existing entry, often at a chunk's boundary, or of a missing one.
fn random_refund(rng: &mut SeededRng, table: &StateTable, key: u64, now: Timestamp) -> (Op, u64) {
    let entries = table_entries(table, key);
    let count = entries.len() as u64;
    let place = match rng.below(8) {
        0 => 0,
        1 => count.saturating_sub(1),
        2 => CHUNK - 1,
        3 => CHUNK,
        4 => (count / CHUNK).saturating_sub(1) * CHUNK,
        _ => rng.below(count),
    };
    let place = usize::try_from(place).expect("a place");
    let Some(entry) = entries.get(place) else { return (Op::Refund { charged_at: now }, 1) };
    let cost = match rng.below(4) {
        0 => 1,
        1 => entry.cost + rng.below(3),
        _ => entry.cost,
    };
    let beside = u64::from(rng.one_in(10));
    let charged_at = entry.at.plus(Micros::new(beside));
    // A renewal moves a held slot, and does nothing in a log of requests.
    (if rng.one_in(2) { Op::Renew { charged_at } } else { Op::Refund { charged_at } }, cost)
}

fn random_request(
    rng: &mut SeededRng,
    table: &StateTable,
    key: u64,
    limit: u64,
    now: Timestamp,
) -> (Op, u64) {
    // Every second key gets larger costs; the logs of the others grow long.
    let cost = if rng.one_in(if key.is_multiple_of(2) { 4 } else { 100 }) {
        rng.between(1, 30)
    } else {
        1
    };
    match rng.below(2_000) {
        0 => (Op::Reset, 1),
        1..=60 => (Op::Force, cost),
        61 => (Op::Force, rng.between(1, 2 * limit)),
        62..=200 => random_refund(rng, table, key, now),
        201..=400 => (Op::Peek, rng.between(1, limit + 1)),
        _ => (Op::Charge, cost),
    }
}

fn random_time_step(rng: &mut SeededRng) -> u64 {
    let window = WINDOW.get();
    match rng.below(3_000) {
        0 => window,
        1 => window - 1,
        2..=4 => window / 2,
        5 => 2 * window,
        6..=10 => rng.below(window / 4),
        11..=400 => 0,
        _ => rng.between(1, 800),
    }
}

fn run_random_history(
    server: &RedisServer,
    fixture: &RedisFixture,
    algorithm: Algorithm,
    seed: u64,
    longest: &mut usize,
) {
    let log = |requests| policy(algorithm, requests, WINDOW);
    let mut rng = SeededRng::new(seed);
    let (mut table, mut now) = (StateTable::default(), common::START.plus(Micros::new(seed)));
    let mut policies: [Policy; KEYS] = std::array::from_fn(|_| log(rng.choose(&LIMITS)));
    policies[1] = log(1_000);
    let key = |i: usize| seed * KEYS as u64 + i as u64;
    for round in 0..ROUNDS {
        now = now.plus(Micros::new(random_time_step(&mut rng)));
        fixture.clock.set(now);
        if rng.one_in(100) {
            let changed = usize::try_from(rng.below(KEYS as u64)).expect("a place");
            let limits = if changed == 1 { &LIMITS[11..] } else { &LIMITS };
            policies[changed] = log(rng.choose(limits)).with_effective_since(now);
        }
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for (i, policy) in policies.iter().enumerate() {
            for _ in 0..if rng.one_in(8) { rng.below(4) } else { 1 } {
                let (op, cost) = random_request(&mut rng, &table, key(i), policy.limit(), now);
                let request = StoreRequest::single(op, Charge { cost, ..charge(key(i), policy) });
                expected.push(table.apply(op, &request.charges, now));
                requests.push(request);
            }
        }
        let reply = fixture.apply_batch(&requests);
        for ((request, reply), expected) in requests.iter().zip(reply).zip(expected) {
            assert_eq!(reply, expected, "seed {seed}, round {round}: {request:?}");
        }
        if rng.one_in(100) || round == ROUNDS - 1 {
            for i in 0..KEYS {
                let expected = table_entries(&table, key(i));
                *longest = expected.len().max(*longest);
                let kept = server_entries(server, key(i));
                // The table keeps a log whose entries have all expired; the server may drop it.
                let gone = kept.is_empty() && expected.iter().all(|e| now.since(e.at) >= WINDOW);
                assert!(gone || kept == expected, "seed {seed}, round {round}, key {i}");
            }
        }
    }
}

#[test]
fn long_logs_match_reference_table() {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrent] {
        let server = RedisServer::start();
        let fixture = RedisFixture::with_test_clock(&server.url());
        let (seeds, mut longest) = (u64::from(cases()) / 20_000, 0);
        for seed in 1..=seeds.max(1) {
            run_random_history(&server, &fixture, algorithm, seed, &mut longest);
        }
        println!("{algorithm}: {seeds} seeds, the longest log had {longest} records");
        assert!(longest > 600, "the longest log had only {longest} records");
    }
}

/// The number of HGET calls and the microseconds of one script call.
fn measure_call(server: &RedisServer, act: impl FnOnce()) -> (u64, u64) {
    let before = CommandStats::from_server(server);
    act();
    let after = CommandStats::from_server(server);
    assert_eq!(after.calls("evalsha") - before.calls("evalsha"), 1, "one call");
    let reads = after.calls("hget") - before.calls("hget");
    (reads, after.micros_in("evalsha") - before.micros_in("evalsha"))
}

/// With the longest possible log, a request reads the directory and two or three chunks, whatever
/// the operation and however many entries have expired.
#[test]
fn longest_log_request_work_is_bounded() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let limit = MAX_LOG_REQUESTS;
    let long = log_policy(limit);
    let (mut table, mut now) = (StateTable::default(), common::START);
    let mut run_op = |op: Op, cost: u64, now: Timestamp| {
        fixture.clock.set(now);
        let charge = Charge { cost, ..charge(1, &long) };
        let reply = fixture.apply_one(op, charge);
        assert_eq!(reply, table.apply_one(op, &charge, now), "{op:?} of {cost} at {now:?}");
        reply
    };
    for _ in 0..limit {
        now = now.plus(Micros::new(90));
        assert_eq!(run_op(Op::Charge, 1, now).verdict, Verdict::Allow);
    }
    assert_eq!(server_entries(&server, 1).len() as u64, limit);
    let half = now.minus(Micros::new(90 * limit / 2));
    let old = now.minus(Micros::new(90 * (limit - 10)));
    let at_once = now.plus(Micros::new(WINDOW.get() - 200));
    let acts: [(&str, Op, u64, Timestamp); 9] = [
        ("refused", Op::Charge, 1, now),
        ("refused, half of it must expire", Op::Charge, limit / 2, now),
        ("refused, all of it must expire", Op::Charge, limit, now),
        ("peeked", Op::Peek, 100, now),
        ("forced, merges into the newest", Op::Force, 30, now.plus(Micros::new(1))),
        ("refunded, in the middle", Op::Refund { charged_at: half }, 1, now.plus(Micros::new(1))),
        ("refunded, near the oldest", Op::Refund { charged_at: old }, 1, now.plus(Micros::new(1))),
        ("peeked, nearly all has expired", Op::Peek, 1, at_once),
        ("charged, nearly all has expired", Op::Charge, 1, at_once),
    ];
    for (what, op, cost, now) in acts {
        let (reads, micros) = measure_call(&server, || _ = run_op(op, cost, now));
        println!("{what}: {reads} HGET, {micros} us");
        assert!(reads <= 5, "{what}: {reads} HGET");
        assert!(micros < 20_000, "{what}: {micros} us");
    }
    assert!(server_entries(&server, 1).len() < 10);
    let (reads, _) = measure_call(&server, || _ = run_op(Op::Reset, 1, at_once));
    assert_eq!((reads, server_entries(&server, 1)), (0, Vec::new()));
}

/// The maximum number of slots, all of them held, and as many again that were forced.
#[test]
fn longest_slot_log_renewal_work_is_bounded() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let slots = policy(Algorithm::Concurrent, MAX_LOG_REQUESTS, WINDOW);
    let (mut table, mut now) = (StateTable::default(), common::START);
    let mut run_op = |op: Op, now: Timestamp| {
        fixture.clock.set(now);
        let reply = fixture.apply_one(op, charge(1, &slots));
        assert_eq!(reply, table.apply_one(op, &charge(1, &slots), now), "{op:?} at {now:?}");
    };
    for _ in 0..2 * MAX_LOG_REQUESTS {
        now = now.plus(Micros::new(45));
        run_op(Op::Force, now);
    }
    assert_eq!(server_entries(&server, 1).len() as u64, 2 * MAX_LOG_REQUESTS);
    for ago in [1, MAX_LOG_REQUESTS, 2 * MAX_LOG_REQUESTS - 70] {
        let charged_at = now.minus(Micros::new(45 * ago));
        now = now.plus(Micros::new(1));
        let (reads, micros) = measure_call(&server, || run_op(Op::Renew { charged_at }, now));
        println!("renewed {ago} slots ago: {reads} HGET, {micros} us");
        assert!(reads <= 5, "{reads} HGET");
        assert!(micros < 20_000, "{micros} us");
        now = now.minus(Micros::new(1));
    }
}

/// A log that is never empty numbers its chunks consecutively. The numbers have four bytes, so at
/// ten thousand requests per second they wrap around within a year.
#[test]
fn chunk_numbers_wrap_around() {
    let server = RedisServer::start();
    let fixture = RedisFixture::with_test_clock(&server.url());
    let (long, mut table, mut now) = (log_policy(1_000), StateTable::default(), common::START);
    let mut charge_times = |count: u64| {
        for _ in 0..count {
            now = now.plus(Micros::new(10));
            fixture.clock.set(now);
            let reply = fixture.apply_one(Op::Charge, charge(1, &long));
            assert_eq!(reply, table.apply_one(Op::Charge, &charge(1, &long), now));
        }
        assert_eq!(server_entries(&server, 1), table_entries(&table, 1));
    };
    charge_times(CHUNK);
    let name = log_name("law", fingerprint(1), STANDALONE_TAG);
    let bytes = |field: &str| match server.command(&["HGET", &name, field]) {
        RedisReply::Bulk(bytes) => bytes,
        other => panic!("bytes were expected, not {other:?}"),
    };
    // Give the chunk the highest number.
    let (mut directory, chunk) = (bytes("d"), bytes("1"));
    directory.truncate(6 + 11);
    directory.extend(u32::MAX.to_be_bytes());
    let last = u32::MAX.to_string();
    let words: [&[u8]; 6] = [b"HSET", name.as_bytes(), b"d", &directory, last.as_bytes(), &chunk];
    server.command(&words);
    server.command(&["HDEL", &name, "1"]);
    charge_times(3 * CHUNK);
    assert_eq!(server.command(&["HEXISTS", &name, "0"]).integer(), 1);
}
