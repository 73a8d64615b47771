//! The store: sends charges to the servers and returns their readings.

mod multi_slot;

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

use crate::abort_on_drop::AbortOnDrop;
use crate::address::RedisAddress;
use crate::connection::{CallDeadline, RedisRequestError, StoreContext};
use crate::connector::{RedisConnector, RedisTlsConfig, parse_time, server_error_text};
use crate::deny_cache::DenyCache;
use crate::heartbeat::{self, NodeMembership};
use crate::key_name::hash_slot;
use crate::lua_script::{self, LuaScript};
use crate::observer::StoreObserver;
use crate::region_loans::{self, RegionLoan};
use crate::region_marker::{RegionMarker, marker_key, read_command};
use crate::router::Router;
use crate::script_request::{ScriptCharge, ScriptRequest};
use crate::stats::{CallCounters, FailureCause, Stats};

/// Default deadline of a decision.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(5);

/// Timer granularity: tokio's timers tick once a millisecond and may fire this late.
const TIMER_TICK: Duration = Duration::from_millis(1);

/// Default prefix of key names.
pub const DEFAULT_PREFIX: &str = "tg:";

/// The server runs one call while the next is on the wire.
const DEFAULT_MAX_CALLS: usize = 2;

/// Options of a [`RedisStore`].
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The servers.
    pub address: RedisAddress,
    /// TLS certificates.
    pub tls: RedisTlsConfig,
    /// Prefix of key names.
    pub prefix: String,
    /// Deadline of a decision.
    pub deadline: Duration,
    /// Notified when a server is lost or recovers.
    pub observer: StoreObserver,
    /// Whether to cache refusals on this node.
    pub deny_cache: bool,
    /// Whether this node sends heartbeats, so that the other nodes count it.
    pub heartbeat: bool,
    /// The most calls in flight on a connection. Requests that come meanwhile share the next one,
    /// so a distant server needs more of them than a near one.
    pub max_calls: usize,
    /// Test clock that replaces the servers' clock.
    pub test_clock: Option<ManualClock>,
}

impl RedisOptions {
    /// Default options for an address.
    #[must_use]
    pub fn new(address: RedisAddress) -> Self {
        Self {
            address,
            tls: RedisTlsConfig::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            deadline: DEFAULT_DEADLINE,
            observer: StoreObserver::new(|_| {}),
            deny_cache: true,
            heartbeat: true,
            max_calls: DEFAULT_MAX_CALLS,
            test_clock: None,
        }
    }
}

/// Counters in Redis or Valkey.
#[derive(Debug)]
pub struct RedisStore {
    inner: Arc<RedisStoreInner>,
    deny_cache: Option<DenyCache>,
    /// `None` if the other nodes do not count this one.
    heartbeat: Option<AbortOnDrop>,
}

#[derive(Debug)]
struct RedisStoreInner {
    /// Random id of this node among the nodes.
    id: String,
    context: Arc<StoreContext>,
    router: Router,
    membership: NodeMembership,
    /// How far the servers' clock is ahead of ours, in microseconds.
    clock_offset_us: AtomicI64,
    clock: SystemClock,
}

impl RedisStore {
    /// Starts a store that connects in the background. Until it has connected, requests fail. Must
    /// be called inside a tokio runtime.
    #[must_use]
    pub fn start(options: &RedisOptions) -> Self {
        let script = match &options.test_clock {
            Some(_) => LuaScript::with_test_clock(lua_script::DECIDE_SCRIPT),
            None => LuaScript::new(lua_script::DECIDE_SCRIPT),
        };
        let context = Arc::new(StoreContext {
            connector: RedisConnector::new(&options.address, &options.tls),
            script,
            prefix: options.prefix.clone(),
            deadline: CallDeadline::new(options.deadline),
            max_calls: options.max_calls,
            test_clock: options.test_clock.clone(),
            observer: options.observer.clone(),
            counters: CallCounters::default(),
        });
        let inner = Arc::new(RedisStoreInner {
            id: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            router: Router::new(&options.address.topology, Arc::clone(&context)),
            context,
            membership: NodeMembership::default(),
            clock_offset_us: AtomicI64::new(0),
            clock: SystemClock::new(),
        });
        let heartbeat =
            options.heartbeat.then(|| AbortOnDrop::spawn(heartbeat_loop(Arc::clone(&inner))));
        let deny_cache = options.deny_cache.then(DenyCache::new);
        Self { inner, deny_cache, heartbeat }
    }

    /// Waits until all servers are connected. Returns `false` if that takes longer than `patience`.
    pub async fn wait_ready(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.inner.router.wait_ready()).await.is_ok()
    }

    /// Why requests fail at present, if a server is unavailable.
    #[must_use]
    pub fn unavailable_reason(&self) -> Option<String> {
        self.inner.router.unavailable_reason()
    }

    /// Call statistics and the state of the servers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut servers = self.inner.router.breaker_states();
        servers.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.inner.context.counters.snapshot(servers, self.node_count())
    }

    /// Removes this node from the list of live nodes and stops its heartbeat.
    pub async fn leave(&self) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.abort();
            _ = self.inner.send_heartbeat(false).await;
        }
    }

    /// Changes the deadline of calls that start from now on.
    pub fn set_deadline(&self, deadline: Duration) {
        self.inner.context.deadline.set(deadline);
    }

    /// Writes the marker of this node's region, unless the store has the marker of another region.
    /// Returns the marker that the store has then.
    ///
    /// # Errors
    /// The reason, if the store does not answer.
    pub async fn write_region_marker(&self, marker: &RegionMarker) -> Result<RegionMarker, String> {
        let prefix = &self.inner.context.prefix;
        let reply = self.inner.query(&marker_key(prefix), marker.write_command(prefix)).await?;
        RegionMarker::from_reply(&reply).ok_or_else(|| "unexpected reply".to_owned())
    }

    /// Reads the marker of the store's region; `None` if no node has written one.
    ///
    /// # Errors
    /// The reason, if the store does not answer.
    pub async fn read_region_marker(&self) -> Result<Option<RegionMarker>, String> {
        let prefix = &self.inner.context.prefix;
        let reply = self.inner.query(&marker_key(prefix), read_command(prefix)).await?;
        match reply {
            Value::Array(values) => Ok(values.first().and_then(RegionMarker::from_reply)),
            _ => Err("unexpected reply".to_owned()),
        }
    }

    /// Adds to what the region of this store has lent. Returns the totals of the same loans; loans
    /// of no units only read them.
    ///
    /// # Errors
    /// The reason, if the store does not answer.
    pub async fn add_region_loans(&self, loans: &[RegionLoan]) -> Result<Vec<RegionLoan>, String> {
        let prefix = &self.inner.context.prefix;
        let (key, command) =
            (region_loans::loans_key(prefix), region_loans::add_command(prefix, loans));
        let reply = self.inner.query(&key, command).await?;
        region_loans::totals(loans, &reply).ok_or_else(|| "unexpected reply".to_owned())
    }
}

impl Store for RedisStore {
    async fn apply(
        &self,
        op: Op,
        charges: &[Charge<'_>],
        readings: &mut [Reading],
    ) -> Result<AnsweredBy, StoreError> {
        let asked_at = Instant::now();
        let _forget_guard = match (&self.deny_cache, op) {
            (Some(cache), Op::Charge) if cache.refuses(charges, readings, asked_at) => {
                return Ok(AnsweredBy::DenyCache);
            }
            (Some(cache), Op::Refund { .. } | Op::Reset | Op::Force | Op::Grant(_)) => {
                Some(cache.forget_on_drop(charges))
            }
            _ => None,
        };
        let prefix = &self.inner.context.prefix;
        let items = charges.iter().map(|charge| ScriptCharge::new(prefix, charge));
        let deadline = asked_at + wait_budget(self.inner.context.deadline.get());
        let mut groups: BTreeMap<u16, (Vec<usize>, ScriptRequest)> = BTreeMap::new();
        for (i, charge) in items.enumerate() {
            let slot =
                if self.inner.router.is_cluster() { hash_slot(&charge.location.name) } else { 0 };
            let (positions, request) = groups
                .entry(slot)
                .or_insert_with(|| (Vec::new(), ScriptRequest::new(op, Default::default())));
            positions.push(i);
            request.items.push(charge);
        }
        let multi_slot = groups.len() > 1;
        let answers = if !multi_slot {
            let mut answers = Vec::with_capacity(1);
            for (positions, request) in groups.into_values() {
                let answer = self.inner.router.send_request(&Arc::new(request), deadline).await;
                answers.push((positions, answer));
            }
            answers
        } else {
            // A separate task finishes a half-done charge even if the caller is cancelled.
            let inner = Arc::clone(&self.inner);
            let groups = groups.into_values().collect();
            let done =
                tokio::spawn(async move { inner.send_to_all_slots(op, groups, deadline).await });
            done.await
                .map_err(|error| StoreError::outcome_unknown(error.to_string(), charges.len()))?
        };
        let mut failure_reason: Option<String> = None;
        let (mut answered, mut unknown) = (Vec::new(), Vec::new());
        for (positions, answer) in answers {
            match answer {
                Ok(slot_readings) => {
                    for (&position, reading) in positions.iter().zip(slot_readings) {
                        readings[position] = reading;
                    }
                    answered.extend(positions);
                }
                Err(failure) => {
                    self.inner.context.counters.record_failure(failure.cause());
                    failure_reason = Some(failure.to_string());
                    if failure.may_have_run() {
                        unknown.extend(positions);
                    }
                }
            }
        }
        if let Some(reason) = failure_reason {
            return Err(StoreError { reason, answered, unknown });
        }
        if let (Some(cache), Op::Charge) = (&self.deny_cache, op) {
            if multi_slot && readings.iter().any(|reading| reading.verdict.refuses()) {
                // Another request may have been refused because of a charge that was refunded.
                let charged = charges.iter().zip(&*readings);
                let refunded = charged.filter(|(_, reading)| !reading.verdict.refuses());
                let refunded: Vec<Charge<'_>> = refunded.map(|(charge, _)| *charge).collect();
                drop(cache.forget_on_drop(&refunded));
            }
            cache.remember(charges, readings, asked_at);
        }
        Ok(AnsweredBy::Store)
    }

    /// The servers' clock. If it cannot be read, our clock corrected by the last known offset.
    async fn now(&self) -> Result<Timestamp, StoreError> {
        if let Some(clock) = &self.inner.context.test_clock {
            return Ok(clock.now());
        }
        let read = self.inner.server_time().await;
        Ok(read.unwrap_or_else(|| self.inner.estimated_now()))
    }

    fn node_count(&self) -> u32 {
        self.inner.membership.count()
    }
}

impl RedisStoreInner {
    /// The servers' clock.
    async fn server_time(&self) -> Option<Timestamp> {
        parse_time(&self.query_nodes_server(cmd("TIME")).await?)
    }

    /// Sends a command to the server that holds the list of nodes.
    async fn query_nodes_server(&self, command: Cmd) -> Option<Value> {
        self.query(&heartbeat::nodes_key(&self.context.prefix), command).await.ok()
    }

    /// Sends one command to the server that has the key.
    async fn query(&self, key: &str, command: Cmd) -> Result<Value, String> {
        let connection = self.router.connection_for(key.as_bytes())?;
        connection.check_breaker().map_err(|error| error.to_string())?;
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let replies = connection.exchange(&commands).await.map_err(|error| error.to_string())?;
        match replies.into_iter().next() {
            Some(Value::ServerError(error)) => Err(server_error_text(&error)),
            Some(reply) => Ok(reply),
            None => Err("the server sent no reply".to_owned()),
        }
    }

    /// Our clock, corrected by the last known offset.
    fn estimated_now(&self) -> Timestamp {
        let ours = self.clock.now().as_micros();
        Timestamp::from_micros(
            ours.saturating_add_signed(self.clock_offset_us.load(Ordering::Relaxed)),
        )
    }

    /// Sends a heartbeat, or leaves the list of nodes, and reads how many nodes are alive.
    async fn send_heartbeat(&self, stays: bool) -> Option<()> {
        let command = heartbeat::heartbeat_command(&self.context.prefix, &self.id, stays);
        let Value::Array(answer) = self.query_nodes_server(command).await? else { return None };
        let [Value::Int(now), Value::Int(nodes), Value::Int(added)] = answer.as_slice() else {
            return None;
        };
        let nodes = u32::try_from(*nodes).ok()?;
        match stays {
            true => self.membership.record_heartbeat(nodes, *added > 0, Instant::now()),
            false => self.membership.record_leave(nodes),
        }
        let ours = i64::try_from(self.clock.now().as_micros()).ok()?;
        self.clock_offset_us.store(now.saturating_sub(ours), Ordering::Relaxed);
        Some(())
    }
}

/// Sends heartbeats until the store is dropped.
async fn heartbeat_loop(inner: Arc<RedisStoreInner>) {
    if inner.context.test_clock.is_some() {
        return;
    }
    // Starts after one interval even if some servers cannot be reached.
    _ = tokio::time::timeout(heartbeat::HEARTBEAT_INTERVAL, inner.router.wait_ready()).await;
    loop {
        _ = inner.send_heartbeat(true).await;
        tokio::time::sleep(heartbeat::HEARTBEAT_INTERVAL).await;
    }
}

/// How long a request waits for its answer. It ends one timer tick before the deadline, so that
/// `on_fail` can still answer in time.
fn wait_budget(deadline: Duration) -> Duration {
    deadline - TIMER_TICK.min(deadline / 4)
}

impl RedisRequestError {
    /// Adds the server's name to the message.
    pub(crate) fn with_server(self, server: &impl std::fmt::Display) -> Self {
        match self {
            Self::OutcomeUnknown(cause, why) => {
                Self::OutcomeUnknown(cause, format!("{server}: {why}"))
            }
            Self::NotExecuted(cause, why) => Self::NotExecuted(cause, format!("{server}: {why}")),
            moving => moving,
        }
    }

    const fn may_have_run(&self) -> bool {
        matches!(self, Self::OutcomeUnknown(..))
    }

    const fn cause(&self) -> FailureCause {
        match self {
            Self::OutcomeUnknown(cause, _) | Self::NotExecuted(cause, _) => *cause,
            Self::Moved(_) | Self::Ask(_) | Self::TryAgain => FailureCause::SlotMoving,
        }
    }
}

impl std::fmt::Display for RedisRequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutcomeUnknown(_, why) | Self::NotExecuted(_, why) => f.write_str(why),
            Self::Moved(host) | Self::Ask(host) => {
                write!(f, "the slot was redirected too often, last to {host}")
            }
            Self::TryAgain => f.write_str("the slot is being migrated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_budget_ends_one_tick_before_deadline() {
        for (deadline, patience_us) in [(5_000, 4_000), (4_000, 3_000), (2_000, 1_500), (40, 30)] {
            let patience = wait_budget(Duration::from_micros(deadline));
            assert_eq!(patience, Duration::from_micros(patience_us), "{deadline} µs");
        }
    }
}
