//! Shared test helpers: a store on a server, and short constructors of charges.

#![allow(dead_code, clippy::expect_used, reason = "each test file uses some of it")]

pub(crate) mod batch_history;
pub(crate) mod seeded_rng;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::key::{Fingerprint, Key, KeyHasher, Secret};
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Charge, Op, Store as _, StoreError};
use tidegate_core::time::{ManualClock, Micros, Timestamp};
use tidegate_redis::{RedisAddress, RedisOptions, RedisStore};
use tidegate_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

/// A time that lies inside a window of any round length.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_123_457);

/// Long enough for a busy machine: the tests check decisions, not latency.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A store with its runtime.
pub(crate) struct RedisFixture {
    pub(crate) store: RedisStore,
    pub(crate) clock: ManualClock,
    pub(crate) runtime: Runtime,
}

/// One request of a batch.
#[derive(Clone, Debug)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) op: Op,
    pub(crate) charges: Vec<Charge<'a>>,
}

impl<'a> StoreRequest<'a> {
    pub(crate) fn single(op: Op, charge: Charge<'a>) -> Self {
        Self { op, charges: vec![charge] }
    }
}

/// Default options with a long deadline and without the deny cache.
pub(crate) fn options(url: &str) -> RedisOptions {
    let address = RedisAddress::parse(url).expect("an address");
    RedisOptions { deny_cache: false, deadline: TEST_TIMEOUT, ..RedisOptions::new(address) }
}

impl RedisFixture {
    /// A store on the server's clock.
    pub(crate) fn connect(url: &str) -> Self {
        Self::with_options(&options(url))
    }

    /// A store on a test clock.
    pub(crate) fn with_test_clock(url: &str) -> Self {
        Self::with_options(&RedisOptions {
            test_clock: Some(ManualClock::new(START)),
            ..options(url)
        })
    }

    /// Uses a single thread, so that requests are queued in the order in which they are made.
    pub(crate) fn with_options(options: &RedisOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let clock = options.test_clock.clone().unwrap_or_default();
        let store = runtime.block_on(async { RedisStore::start(options) });
        assert!(
            runtime.block_on(store.wait_ready(TEST_TIMEOUT)),
            "{:?}",
            store.unavailable_reason()
        );
        Self { store, clock, runtime }
    }

    /// Applies one request; also returns the source of the answer.
    pub(crate) fn apply_with_source(
        &self,
        op: Op,
        charges: &[Charge<'_>],
    ) -> (AnsweredBy, Vec<Reading>) {
        self.runtime.block_on(apply_with_source(&self.store, op, charges))
    }

    pub(crate) fn apply(&self, op: Op, charges: &[Charge<'_>]) -> Vec<Reading> {
        self.apply_with_source(op, charges).1
    }

    pub(crate) fn apply_one(&self, op: Op, charge: Charge<'_>) -> Reading {
        self.apply(op, &[charge])[0]
    }

    /// Several requests in one call of the script, in this order.
    pub(crate) fn apply_batch(&self, requests: &[StoreRequest<'_>]) -> Vec<Vec<Reading>> {
        self.try_apply_batch(requests).expect("the server answers")
    }

    /// Like `apply_batch`, but the script may fail.
    pub(crate) fn try_apply_batch(
        &self,
        requests: &[StoreRequest<'_>],
    ) -> Result<Vec<Vec<Reading>>, StoreError> {
        assert!(requests.len() <= 64, "a batch has at most 64 requests");
        let pending = requests.iter().map(async |request| {
            let mut readings = vec![Reading::default(); request.charges.len()];
            let answered = self.store.apply(request.op, &request.charges, &mut readings);
            answered.await.map(|_| readings)
        });
        self.runtime.block_on(join_all(pending)).into_iter().collect()
    }
}

/// Applies one request; also returns the source of the answer.
pub(crate) async fn apply_with_source(
    store: &RedisStore,
    op: Op,
    charges: &[Charge<'_>],
) -> (AnsweredBy, Vec<Reading>) {
    let mut readings = vec![Reading::default(); charges.len()];
    let by = store.apply(op, charges, &mut readings).await.expect("the server answers");
    (by, readings)
}

pub(crate) fn policy(algorithm: Algorithm, requests: u64, window: Micros) -> Policy {
    Policy::new(algorithm, Quota::new(requests, window)).expect("numbers that work")
}

pub(crate) fn fingerprint(name: u64) -> Fingerprint {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(&name.to_le_bytes());
    hasher.finish()
}

pub(crate) fn charge(name: u64, policy: &Policy) -> Charge<'_> {
    charge_for("law", fingerprint(name), policy)
}

pub(crate) fn charge_for<'a>(
    rule: &'a str,
    fingerprint: Fingerprint,
    policy: &'a Policy,
) -> Charge<'a> {
    let key = Key::without_namespace(rule, fingerprint);
    Charge::plain(key, policy, 1)
}

/// The encoding of a hash in a key's name: 22 characters of six bits, the last with only two.
pub(crate) fn hash_tag(Fingerprint { hi, lo }: Fingerprint) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from(hi) << 64 | u128::from(lo);
    let digit = |i: u32| {
        let six = if i < 21 { bits >> (122 - 6 * i) } else { bits << 4 } & 0x3f;
        char::from(DIGITS[usize::try_from(six).expect("six bits")])
    };
    (0..22).map(digit).collect()
}

/// The documented name of a standalone counter's page.
pub(crate) fn page_name(rule: &str, key: Fingerprint) -> String {
    format!("tg:{rule}:{{{}}}", hash_tag(key))
}

/// The documented name of a log, which ends with the tag of its rule's counters.
pub(crate) fn log_name(rule: &str, owner: Fingerprint, tag: u64) -> String {
    format!("tg:{rule}:{{{}}}{}", hash_tag(owner), &hash_tag(Fingerprint { hi: tag, lo: 0 })[..11])
}

/// The tag of standalone counters.
pub(crate) const STANDALONE_TAG: u64 = 0xd3a5_7c19_e86b_42f4;

/// The server's statistics by command: calls and total microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandStats(BTreeMap<String, (u64, u64)>);

impl CommandStats {
    pub(crate) fn from_server(server: &RedisServer) -> Self {
        let text = server.command(&["INFO", "commandstats"]).text();
        let reply = text.lines().filter_map(|line| {
            let (name, reply) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let number = |field: &str| {
                let reply = reply.split(',').filter_map(|part| part.split_once('='));
                reply.into_iter().find(|(name, _)| *name == field)?.1.parse().ok()
            };
            Some((name.to_owned(), (number("calls")?, number("usec")?)))
        });
        Self(reply.collect())
    }

    /// The number of calls of a command.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.0.get(command).map_or(0, |reply| reply.0)
    }

    /// The total microseconds of all calls of a command.
    pub(crate) fn micros_in(&self, command: &str) -> u64 {
        self.0.get(command).map_or(0, |reply| reply.1)
    }
}

/// The number of calls of a command while `act` runs.
pub(crate) fn calls_during(server: &RedisServer, command: &str, act: impl FnOnce()) -> u64 {
    let before = CommandStats::from_server(server).calls(command);
    act();
    CommandStats::from_server(server).calls(command) - before
}
