//! Adds up what all nodes do for all keys.

use tidegate_limiter::DEFAULT_LEASE_BYTES;
use tidegate_limiter::sizing::{
    ASYNC_COUNTER_BYTES, HOT_TABLE_BYTES, LEASED_COUNTER_BYTES, MAX_FLUSH_COUNTERS, counter_budget,
};

use super::case::{Mode, ScaleCase, seconds};
use super::exact;
use super::fleet::{Fleet, FleetCounts, FleetPlan, SWEEP_NANOS};
use super::key_groups::{KeyGroup, group_keys, key_rates};
use super::rule_text::{compile_share, rounded};

/// How many nodes stand for all nodes that get requests of a key.
const SAMPLED_NODES: u32 = 4;

/// How many leases or flush intervals a sample measures. Few are enough where each has many
/// requests: then a sample measures this many times as many requests as others.
const MAX_INTERVALS: f64 = 100.0;
const MIN_INTERVALS: f64 = 10.0;
const HOT_SAMPLE: f64 = 10.0;

/// The fewest requests to each node that a sample measures.
const MIN_REQUESTS: f64 = 300.0;

/// The most sweeps of a sample in which each request keeps its counter for two intervals.
const MAX_SWEEPS: f64 = 100_000.0;

/// With more requests than this in an interval, some of them are left out of a sample.
const BUSY_REQUESTS: f64 = 5_000.0;

/// A demand of this many times the limit asks as little of the store as any higher demand.
const CLEAR_EXCESS: f64 = 50.0;

/// With fewer requests than this in an interval, no counter is leased, and of the requests within
/// one view each is flushed separately.
const COLD_REQUESTS: f64 = 0.02;

/// What a case asks of its stores, in each mode.
#[derive(Clone, Debug)]
pub struct ScaleEstimate {
    /// The case.
    pub case: ScaleCase,
    /// The estimates, as in [`Mode::ALL`].
    pub modes: [ModeEstimate; 3],
}

/// Estimates beside runs of every node and key.
#[derive(Clone, Debug)]
pub struct ScaleCheck {
    /// How long the runs took, in seconds of virtual time.
    pub seconds: f64,
    /// The estimate and the run of each mode that runs.
    pub pairs: [[ModeEstimate; 2]; 2],
}

/// What one mode asks of its stores. Rates are of all nodes, in units a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModeEstimate {
    /// The mode.
    pub mode: Mode,
    /// Requests.
    pub requests: f64,
    /// Requests admitted.
    pub admitted: f64,
    /// Requests that nodes answered without the store.
    pub local: f64,
    /// Operations of the stores, each on one counter.
    pub calls: StoreCalls<f64>,
    /// Calls for the busiest key, which has one shard to itself at most. Not known of a run.
    pub busiest_key: Option<f64>,
    /// Messages from nodes to stores if each store call were one, but flushes of a sweep shared
    /// theirs.
    pub messages: f64,
    /// Counters that a node decides by itself.
    pub counters_per_node: f64,
    /// Bytes of those counters, and of what finds them.
    pub bytes_per_node: f64,
    /// Whether the node's memory for counters is used up.
    pub is_full: bool,
    /// Shards, if as many calls as possible share a script call.
    pub fewest_shards: f64,
    /// Shards, if no calls share a script call.
    pub most_shards: f64,
    /// Bytes of counters in a shard, with the fewest shards, if all keys are in use at once.
    pub bytes_per_shard: f64,
}

/// Operations of the stores, each on one counter, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCalls<N> {
    /// Requests that the store decided.
    pub direct: N,
    /// Units lent to a node.
    pub grants: N,
    /// Units that a node returned.
    pub returns: N,
    /// Reports of what a node admitted.
    pub flushes: N,
}

/// What one node does for one key, in units a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PairRates {
    pub(super) requests: f64,
    pub(super) admitted: f64,
    pub(super) local: f64,
    pub(super) direct: f64,
    pub(super) grants: f64,
    pub(super) returns: f64,
    pub(super) flushes: f64,
    /// The part of the time for which the node holds the counter.
    pub(super) held: f64,
}

impl ScaleCase {
    /// Estimates all modes.
    ///
    /// # Errors
    /// If the limit does not allow a mode.
    pub fn estimate(&self) -> Result<ScaleEstimate, String> {
        let [exact, leased, write_behind] = Mode::ALL.map(|mode| self.estimate_mode(mode));
        Ok(ScaleEstimate { case: self.clone(), modes: [exact?, leased?, write_behind?] })
    }

    /// Estimates one mode.
    ///
    /// # Errors
    /// If the limit does not allow the mode.
    pub fn estimate_mode(&self, mode: Mode) -> Result<ModeEstimate, String> {
        let spread = f64::from(self.nodes_per_key);
        let groups = group_keys(self.keys, self.exponent, self.rate);
        let (mut total, mut busiest_key) = (PairRates::default(), None);
        let requests = (self.sampled_requests / groups.len() as f64).max(MIN_REQUESTS);
        for (group, seed) in groups.iter().zip(0..) {
            let pair = match mode {
                Mode::Exact => exact::pair_rates(self.limit.policy(), group.rate / spread, spread),
                Mode::Leased | Mode::Async => self.sample_pair(mode, group, requests, seed)?,
            };
            busiest_key.get_or_insert(pair.calls() * spread);
            total.add(&pair, group.keys * spread);
        }
        Ok(ModeEstimate { busiest_key, ..self.complete(mode, total) })
    }

    /// Runs all nodes and keys in virtual time, without the model. For small cases.
    ///
    /// # Errors
    /// If the limit does not allow the mode, or if the mode is exact: that one has a closed form.
    pub fn run_directly(&self, mode: Mode, run_seconds: f64) -> Result<ModeEstimate, String> {
        if mode == Mode::Exact || self.nodes_per_key != self.nodes {
            return Err("only leased and asynchronous rules run, at all nodes".to_owned());
        }
        let rates = key_rates(self.keys, self.exponent, self.rate);
        let plan = FleetPlan {
            nodes: self.nodes,
            node_count: self.nodes,
            exhausted: rates.iter().take_while(|rate| **rate > self.limit.rate()).count(),
            key_rates: &rates,
            rules: &|| compile_share(self, mode, 1.0),
        };
        let mut fleet = Fleet::start(&plan, 1)?;
        fleet.run(nanos(20.0 * self.interval(mode)))?;
        let counts = fleet.run(nanos(run_seconds))?;
        let counters = counts.held as f64 / counts.sweeps.max(1) as f64;
        let mut total = PairRates::from_counts(&counts, counts.requests as f64 / run_seconds);
        total.held = counters;
        Ok(self.complete(mode, total))
    }

    /// Runs all nodes and keys in virtual time, beside the estimates.
    ///
    /// # Errors
    /// As [`run_directly`](Self::run_directly).
    pub fn check(&self, seconds: f64) -> Result<ScaleCheck, String> {
        let pair =
            |mode| Ok::<_, String>([self.estimate_mode(mode)?, self.run_directly(mode, seconds)?]);
        Ok(ScaleCheck { seconds, pairs: [pair(Mode::Leased)?, pair(Mode::Async)?] })
    }

    fn interval(&self, mode: Mode) -> f64 {
        seconds(if mode == Mode::Async { self.flush } else { self.ttl })
    }

    /// What one node does for one key: a few nodes with their share of the limit and of the
    /// requests stand for all. Each of them gets at least as many `requests`.
    fn sample_pair(
        &self,
        mode: Mode,
        key: &KeyGroup,
        requests: f64,
        seed: u64,
    ) -> Result<PairRates, String> {
        let (spread, interval) = (self.nodes_per_key, self.interval(mode));
        let rate = key.rate / f64::from(spread);
        if rate * interval < COLD_REQUESTS {
            return Ok(self.cold_pair(mode, key.rate, rate));
        }
        // Nodes decide what is left out of a sample. It is refused, or else the limit is divided
        // in the same proportion.
        let limit = self.limit.rate() / f64::from(spread);
        let is_excess = rate > CLEAR_EXCESS * limit;
        let enough = if is_excess { CLEAR_EXCESS * limit } else { 0.0 };
        let sampled = rate.min(enough.max(BUSY_REQUESTS / interval));
        let kept = if is_excess { 1.0 } else { sampled / rate };
        let nodes = spread.min(SAMPLED_NODES);
        let part = f64::from(nodes) / f64::from(spread);
        let node_count = u32::try_from(rounded(f64::from(self.nodes) * part)).unwrap_or(u32::MAX);
        let plan = FleetPlan {
            nodes,
            node_count,
            key_rates: &[sampled * f64::from(nodes)],
            exhausted: usize::from(key.rate > self.limit.rate()),
            rules: &|| compile_share(self, mode, part * kept),
        };
        let per_interval = sampled * interval * f64::from(nodes);
        let intervals = (HOT_SAMPLE * requests / per_interval).clamp(MIN_INTERVALS, MAX_INTERVALS);
        let sweeps_per_request = 2e9 * interval / SWEEP_NANOS as f64;
        let requests = requests.min((MAX_SWEEPS / sweeps_per_request).max(MIN_REQUESTS));
        let measured = (intervals * interval).max(requests / sampled);
        let mut fleet = Fleet::start(&plan, seed)?;
        fleet.run(nanos(measured / 5.0))?;
        let counts = fleet.run(nanos(measured))?;
        let pair = PairRates::from_counts(&counts, sampled);
        let sweeps = counts.sweeps * u64::from(nodes);
        Ok(PairRates {
            requests: rate,
            local: pair.local + (rate - sampled),
            admitted: pair.admitted / kept,
            held: counts.held as f64 / sweeps.max(1) as f64,
            ..pair
        })
    }

    /// What one node does for a key that rarely has two requests in an interval.
    fn cold_pair(&self, mode: Mode, key_rate: f64, rate: f64) -> PairRates {
        let admitted = rate * (self.limit.rate() / key_rate).min(1.0);
        let pair = PairRates { requests: rate, admitted, direct: rate, ..PairRates::default() };
        if mode != Mode::Async {
            return pair;
        }
        // A node keeps a view for two intervals, but decides nothing without a part of the limit.
        let viewed = -(-2.0 * rate * self.interval(mode)).exp_m1();
        let has_part = self.limit.policy().limit() >= u64::from(self.nodes);
        let local = if has_part { rate * viewed } else { 0.0 };
        PairRates { local, direct: rate - local, flushes: local, held: viewed, ..pair }
    }

    /// Derives shards and memory.
    fn complete(&self, mode: Mode, total: PairRates) -> ModeEstimate {
        let wanted = total.held / f64::from(self.nodes);
        let (counter_bytes, fixed_bytes) = match mode {
            Mode::Exact => (0, 0),
            Mode::Leased => (LEASED_COUNTER_BYTES, HOT_TABLE_BYTES),
            Mode::Async => (ASYNC_COUNTER_BYTES, 0),
        };
        let budget = counter_budget(DEFAULT_LEASE_BYTES) as f64;
        let most = if counter_bytes == 0 { wanted } else { budget / counter_bytes as f64 };
        // Counters that do not fit into the node's memory are charged at the store.
        let fit = if wanted > most { most / wanted } else { 1.0 };
        let calls = StoreCalls {
            direct: total.direct * fit + total.requests * (1.0 - fit),
            grants: total.grants * fit,
            returns: total.returns * fit,
            flushes: total.flushes * fit,
        };
        let sweeps = 1e9 / SWEEP_NANOS as f64;
        let per_sweep = calls.flushes / f64::from(self.nodes) / sweeps;
        let shared = per_sweep.clamp(1.0, MAX_FLUSH_COUNTERS as f64);
        let fewest_shards = self.store.fewest_shards(calls.sum());
        let counters = wanted.min(most);
        ModeEstimate {
            mode,
            requests: total.requests,
            admitted: total.admitted,
            local: total.local * fit,
            calls,
            busiest_key: None,
            messages: calls.sum() - calls.flushes + calls.flushes / shared,
            counters_per_node: counters,
            bytes_per_node: counters * counter_bytes as f64 + fixed_bytes as f64,
            is_full: fit < 1.0,
            fewest_shards,
            most_shards: self.store.most_shards(calls.sum()),
            bytes_per_shard: self.keys as f64 * self.store.counter_bytes / fewest_shards,
        }
    }
}

impl StoreCalls<f64> {
    /// All calls.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.direct + self.grants + self.returns + self.flushes
    }
}

impl StoreCalls<u64> {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            direct: self.direct - before.direct,
            grants: self.grants - before.grants,
            returns: self.returns - before.returns,
            flushes: self.flushes - before.flushes,
        }
    }
}

impl PairRates {
    /// The counts of a run, for `rate` requests a second.
    fn from_counts(counts: &FleetCounts, rate: f64) -> Self {
        let of = |count: u64| count as f64 / counts.requests.max(1) as f64 * rate;
        let StoreCalls { direct, grants, returns, flushes } = counts.calls;
        Self {
            requests: rate,
            admitted: of(counts.admitted),
            local: of(counts.local),
            direct: of(direct),
            grants: of(grants),
            returns: of(returns),
            flushes: of(flushes),
            held: 0.0,
        }
    }

    fn calls(&self) -> f64 {
        self.direct + self.grants + self.returns + self.flushes
    }

    fn add(&mut self, other: &Self, times: f64) {
        self.requests += other.requests * times;
        self.admitted += other.admitted * times;
        self.local += other.local * times;
        self.direct += other.direct * times;
        self.grants += other.grants * times;
        self.returns += other.returns * times;
        self.flushes += other.flushes * times;
        self.held += other.held * times;
    }
}

fn nanos(seconds: f64) -> u64 {
    rounded(seconds * 1e9)
}
