//! The store: charges in, readings out, decided by the servers.

mod across;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use tidegate_core::decision::{AnsweredBy, Reading};
use tidegate_core::store::{Charge, Op, Store, StoreError};
use tidegate_core::time::{Clock as _, ManualClock, SystemClock, Timestamp};
use tokio::time::Instant;

use crate::address::Address;
use crate::ask::{Ask, Item};
use crate::connect::{Connector, Tls, instant};
use crate::deny_cache::DenyCache;
use crate::keeper::Keeper;
use crate::link::{Common, Failure};
use crate::name::slot;
use crate::nodes::{self, Members};
use crate::observer::Observer;
use crate::router::Router;
use crate::script::{self, Text};
use crate::stats::{Cause, Counters, Stats};

/// How long a decision may take unless it is said otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(5);

/// How late a timer may be that nothing is wrong with: tokio's tick once a millisecond.
const TICK: Duration = Duration::from_millis(1);

/// What names of keys begin with unless it is said otherwise.
pub const DEFAULT_PREFIX: &str = "tg:";

/// Where and how to count.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub address: Address,
    /// Certificates.
    pub tls: Tls,
    /// What names of keys begin with.
    pub prefix: String,
    /// How long a decision may take.
    pub deadline: Duration,
    /// Who hears what becomes of the servers.
    pub observer: Observer,
    /// Whether refusals are remembered.
    pub deny_cache: bool,
    /// The clock of a test, instead of the servers'.
    pub rehearsal: Option<ManualClock>,
}

impl Options {
    /// The usual, at an address.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Self {
            address,
            tls: Tls::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            deadline: DEFAULT_DEADLINE,
            observer: Observer::new(|_| {}),
            deny_cache: true,
            rehearsal: None,
        }
    }
}

/// Counters in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    deny_cache: Option<DenyCache>,
    heart: Keeper,
}

#[derive(Debug)]
struct Shared {
    /// Who we are among the nodes: drawn at random.
    id: String,
    common: Arc<Common>,
    router: Router,
    members: Members,
    /// By how much the servers' clock is ahead of ours, in microseconds.
    ahead: AtomicI64,
    clock: SystemClock,
}

impl RedisStore {
    /// A store that connects in the background; until it has, requests are not answered by it.
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(options: &Options) -> Self {
        let script = match &options.rehearsal {
            Some(_) => Text::rehearsed(script::DECIDE),
            None => Text::new(script::DECIDE),
        };
        let common = Arc::new(Common {
            connector: Connector::new(&options.address, &options.tls),
            script,
            prefix: options.prefix.clone(),
            deadline: options.deadline,
            rehearsal: options.rehearsal.clone(),
            observer: options.observer.clone(),
            counters: Counters::default(),
        });
        let shared = Arc::new(Shared {
            id: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            router: Router::new(&options.address.topology, Arc::clone(&common)),
            common,
            members: Members::default(),
            ahead: AtomicI64::new(0),
            clock: SystemClock::new(),
        });
        let heart = Keeper::spawn(beat(Arc::clone(&shared)));
        let deny_cache = options.deny_cache.then(DenyCache::new);
        Self { shared, deny_cache, heart }
    }

    /// Waits until the servers are reached, or for as long as there is patience.
    pub async fn ready(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.shared.router.ready()).await.is_ok()
    }

    /// Why requests are not answered by some server, if one is lost.
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.shared.router.lost()
    }

    /// What was counted of calls, and how the servers are.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut servers = self.shared.router.breakers();
        servers.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.shared.common.counters.told(servers, self.nodes())
    }

    /// Says to the other nodes that this one is gone, and nothing more after that.
    pub async fn leave(&self) {
        self.heart.stop();
        _ = self.shared.beat_once(false).await;
    }
}

impl Store for RedisStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let asked = Instant::now();
        let _forgetting = match (&self.deny_cache, op) {
            (Some(cache), Op::Charge) if cache.refuses(charges, readings, asked) => {
                return Ok(AnsweredBy::DenyCache);
            }
            (Some(cache), Op::Refund { .. } | Op::Reset | Op::Force) => {
                Some(cache.forgetting(charges))
            }
            _ => None,
        };
        let prefix = &self.shared.common.prefix;
        let items = charges.iter().map(|charge| Item::new(prefix, charge));
        let deadline = asked + patience(self.shared.common.deadline);
        let mut groups: BTreeMap<u16, (Vec<usize>, Ask)> = BTreeMap::new();
        for (i, item) in items.enumerate() {
            let slot = if self.shared.router.is_cluster() { slot(&item.home.name) } else { 0 };
            let (places, ask) = groups
                .entry(slot)
                .or_insert_with(|| (Vec::new(), Ask::new(op, Default::default())));
            places.push(i);
            ask.items.push(item);
        }
        let several = groups.len() > 1;
        let answers = if !several {
            let mut answers = Vec::with_capacity(1);
            for (places, ask) in groups.into_values() {
                let answer = self.shared.router.ask(&Arc::new(ask), deadline).await;
                answers.push((places, answer));
            }
            answers
        } else {
            // A task of its own: what is half done is finished, whoever goes away meanwhile.
            let shared = Arc::clone(&self.shared);
            let groups = groups.into_values().collect();
            let done = tokio::spawn(async move { shared.ask_all(op, groups, deadline).await });
            done.await.map_err(|error| StoreError::unknown(error.to_string(), charges.len()))?
        };
        let mut lost: Option<String> = None;
        let (mut answered, mut unknown) = (Vec::new(), Vec::new());
        for (places, answer) in answers {
            match answer {
                Ok(told) => {
                    for (&place, told) in places.iter().zip(told) {
                        readings[place] = told;
                    }
                    answered.extend(places);
                }
                Err(failure) => {
                    self.shared.common.counters.failed(failure.cause());
                    lost = Some(failure.to_string());
                    if failure.may_have_run() {
                        unknown.extend(places);
                    }
                }
            }
        }
        if let Some(reason) = lost {
            return Err(StoreError { reason, answered, unknown });
        }
        if let (Some(cache), Op::Charge) = (&self.deny_cache, op) {
            if several && readings.iter().any(|reading| reading.verdict.refuses()) {
                // Whoever saw a charge that was given back may have been refused for it.
                let told = charges.iter().zip(&*readings);
                let back = told.filter(|(_, reading)| !reading.verdict.refuses());
                let back: Vec<Charge<'_>> = back.map(|(charge, _)| *charge).collect();
                drop(cache.forgetting(&back));
            }
            cache.remember(charges, readings, asked);
        }
        Ok(AnsweredBy::Store)
    }

    /// The servers' clock; where it cannot be read, ours with the last known difference.
    async fn now(&self) -> Result<Timestamp, StoreError> {
        if let Some(clock) = &self.shared.common.rehearsal {
            return Ok(clock.now());
        }
        let read = self.shared.time().await;
        Ok(read.unwrap_or_else(|| self.shared.reckoned()))
    }

    fn nodes(&self) -> u32 {
        self.shared.members.count()
    }
}

impl Shared {
    /// The servers' clock.
    async fn time(&self) -> Option<Timestamp> {
        instant(&self.ask_about_nodes(cmd("TIME")).await?)
    }

    /// Puts a question to the server that has the nodes.
    async fn ask_about_nodes(&self, question: Cmd) -> Option<Value> {
        let link = self.router.link(nodes::key(&self.common.prefix).as_bytes()).ok()?;
        link.admits().ok()?;
        let mut commands = Pipeline::new();
        commands.add_command(question);
        link.exchange(&commands).await.ok()?.pop()
    }

    /// Our clock, set by what was last heard of theirs.
    fn reckoned(&self) -> Timestamp {
        let ours = self.clock.now().as_micros();
        Timestamp::from_micros(ours.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// Says that this node is alive, or that it leaves, and learns how many are.
    async fn beat_once(&self, stays: bool) -> Option<()> {
        let command = nodes::command(&self.common.prefix, &self.id, stays);
        let Value::Array(answer) = self.ask_about_nodes(command).await? else { return None };
        let [Value::Int(now), Value::Int(nodes), Value::Int(added)] = answer.as_slice() else {
            return None;
        };
        let nodes = u32::try_from(*nodes).ok()?;
        match stays {
            true => self.members.counted(nodes, *added > 0, Instant::now()),
            false => self.members.left(nodes),
        }
        let ours = i64::try_from(self.clock.now().as_micros()).ok()?;
        self.ahead.store(now.saturating_sub(ours), Ordering::Relaxed);
        Some(())
    }
}

/// Says again and again that this node is alive.
async fn beat(shared: Arc<Shared>) {
    if shared.common.rehearsal.is_some() {
        return;
    }
    // Also where a part of the servers is never reached.
    _ = tokio::time::timeout(nodes::HEARTBEAT, shared.router.ready()).await;
    loop {
        _ = shared.beat_once(true).await;
        tokio::time::sleep(nodes::HEARTBEAT).await;
    }
}

/// How long a request waits for its answer: to the last tick of the timers before the deadline, by
/// which `on_fail` is promised to have answered.
fn patience(deadline: Duration) -> Duration {
    deadline - TICK.min(deadline / 4)
}

impl Failure {
    /// The same failure, with the server that it is about.
    pub(crate) fn at(self, server: &impl std::fmt::Display) -> Self {
        match self {
            Self::Lost(cause, why) => Self::Lost(cause, format!("{server}: {why}")),
            Self::NotSent(cause, why) => Self::NotSent(cause, format!("{server}: {why}")),
            moving => moving,
        }
    }

    const fn may_have_run(&self) -> bool {
        matches!(self, Self::Lost(..))
    }

    const fn cause(&self) -> Cause {
        match self {
            Self::Lost(cause, _) | Self::NotSent(cause, _) => *cause,
            Self::Moved(_) | Self::Ask(_) | Self::TryAgain => Cause::Moving,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(_, why) | Self::NotSent(_, why) => f.write_str(why),
            Self::Moved(host) | Self::Ask(host) => {
                write!(f, "the slot keeps moving, last to {host}")
            }
            Self::TryAgain => f.write_str("the slot is being moved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_a_tick_before_the_deadline_and_short_ones_keep_most_of_it() {
        for (deadline, patience_us) in [(5_000, 4_000), (4_000, 3_000), (2_000, 1_500), (40, 30)] {
            let patience = patience(Duration::from_micros(deadline));
            assert_eq!(patience, Duration::from_micros(patience_us), "{deadline} µs");
        }
    }
}
