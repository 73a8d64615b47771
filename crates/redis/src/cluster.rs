//! Cluster topology: learns from the servers which one owns which slot, and keeps that up to date.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use parking_lot::Mutex;
use redis::{Value, cmd};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::abort_on_drop::AbortOnDrop;
use crate::address::RedisHost;
use crate::batcher::RequestBatcher;
use crate::connection::{StoreContext, SupervisedConnection};
use crate::connector::{ConnectionTarget, RedisConnector, send_command};
use crate::key_name::SLOTS;
use crate::observer::StoreEvent;

/// How often to refresh the slot map while all servers are available.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// How often to check whether the map is stale or a server is unavailable.
const DEGRADED_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum pause between refreshes, however many redirects arrive.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(20);

/// The servers of a cluster and their slots.
#[derive(Debug)]
pub(crate) struct ClusterConnections {
    context: Arc<StoreContext>,
    seeds: Vec<RedisHost>,
    map: Mutex<SlotMap>,
    stale: Notify,
    refreshed: Notify,
}

#[derive(Debug)]
struct SlotMap {
    servers: HashMap<RedisHost, ClusterServer>,
    slots: Vec<Option<Arc<RequestBatcher>>>,
    unknown_reason: String,
}

#[derive(Debug)]
struct ClusterServer {
    batcher: Arc<RequestBatcher>,
    _supervisor: AbortOnDrop,
}

impl ClusterConnections {
    pub(crate) fn new(seeds: Vec<RedisHost>, context: Arc<StoreContext>) -> Self {
        let map = SlotMap {
            servers: HashMap::new(),
            slots: vec![None; usize::from(SLOTS)],
            unknown_reason: "not yet connected to the cluster".to_owned(),
        };
        Self {
            context,
            seeds,
            map: Mutex::new(map),
            stale: Notify::new(),
            refreshed: Notify::new(),
        }
    }

    /// The batcher of the server that owns a slot.
    ///
    /// # Errors
    /// The reason why no owner is known.
    pub(crate) fn batcher_for_slot(&self, slot: u16) -> Result<Arc<RequestBatcher>, String> {
        let map = self.map.lock();
        let batcher = map.slots.get(usize::from(slot)).cloned().flatten();
        batcher.ok_or_else(|| map.unknown_reason.clone())
    }

    /// The batcher of a server named in an ASK redirect.
    pub(crate) fn batcher_for_host(&self, host: &RedisHost) -> Arc<RequestBatcher> {
        self.map.lock().batcher_for_host(host, &self.context)
    }

    /// Records a MOVED redirect and returns the batcher of the new owner.
    pub(crate) fn move_slot(&self, slot: u16, host: &RedisHost) -> Arc<RequestBatcher> {
        let mut map = self.map.lock();
        let batcher = map.batcher_for_host(host, &self.context);
        map.slots[usize::from(slot)] = Some(Arc::clone(&batcher));
        self.stale.notify_one();
        batcher
    }

    /// Why some slots are unavailable, if any.
    pub(crate) fn unavailable_reason(&self) -> Option<String> {
        let map = self.map.lock();
        if map.slots.iter().any(Option::is_none) {
            return Some(map.unknown_reason.clone());
        }
        map.servers.values().find_map(|server| server.batcher.connection().unavailable_reason())
    }

    /// Waits until all servers are known and connected.
    pub(crate) async fn wait_ready(&self) {
        loop {
            let refreshed = self.refreshed.notified();
            let batchers = self.batchers();
            let all_ready =
                join_all(batchers.iter().map(|batcher| batcher.connection().wait_ready()));
            tokio::select! {
                // The refresh may have removed a server that this waits for.
                () = refreshed => {}
                _ = all_ready, if !batchers.is_empty() => return,
            }
        }
    }

    /// The batchers of all servers.
    pub(crate) fn batchers(&self) -> Vec<Arc<RequestBatcher>> {
        self.map.lock().servers.values().map(|server| Arc::clone(&server.batcher)).collect()
    }

    /// Keeps the slot map up to date until the task is aborted.
    pub(crate) async fn run_refresh_loop(self: Arc<Self>) {
        let mut unreached = None;
        loop {
            match self.refresh_slots().await {
                Ok(()) => {
                    self.refreshed.notify_waiters();
                    if let Some(server) = unreached.take() {
                        self.context.observer.notify(&StoreEvent::Recovered { server });
                    }
                }
                Err(why) => {
                    // Once servers are known, each one reports its own loss.
                    if unreached.is_none() && self.batchers().is_empty() {
                        let server = "the cluster".to_owned();
                        unreached = Some(server.clone());
                        self.context
                            .observer
                            .notify(&StoreEvent::Lost { server, why: why.clone() });
                    }
                    self.map.lock().unknown_reason = why;
                }
            }
            self.wait_until_stale().await;
        }
    }

    /// Waits until the slot map should be refreshed.
    async fn wait_until_stale(&self) {
        tokio::time::sleep(MIN_REFRESH_INTERVAL).await;
        let refresh_at = Instant::now() + REFRESH_INTERVAL;
        while Instant::now() < refresh_at {
            let stale = tokio::time::timeout(DEGRADED_POLL_INTERVAL, self.stale.notified()).await;
            if stale.is_ok() || self.unavailable_reason().is_some() {
                return;
            }
        }
    }

    /// Queries available servers one by one, then all others in parallel, until one returns the
    /// slots.
    async fn refresh_slots(&self) -> Result<(), String> {
        let (lost, available): (Vec<RedisHost>, Vec<RedisHost>) = {
            let map = self.map.lock();
            let is_lost = |(_, server): &(&RedisHost, &ClusterServer)| {
                server.batcher.connection().unavailable_reason().is_some()
            };
            let (lost, available): (Vec<_>, Vec<_>) = map.servers.iter().partition(is_lost);
            let hosts =
                |of: Vec<(&RedisHost, _)>| of.into_iter().map(|(host, _)| host.clone()).collect();
            (hosts(lost), hosts(available))
        };
        for host in &available {
            if let Ok(ranges) = fetch_slots(&self.context.connector, host).await {
                self.map.lock().install_ranges(&ranges, &self.context);
                return Ok(());
            }
        }
        let others = lost
            .iter()
            .chain(&self.seeds)
            .map(|host| Box::pin(fetch_slots(&self.context.connector, host)));
        let (ranges, _) = select_ok(others).await?;
        self.map.lock().install_ranges(&ranges, &self.context);
        Ok(())
    }
}

/// Reads the slot map from one server.
///
/// # Errors
/// The reason, with the server's name.
pub(crate) async fn fetch_slots(
    connector: &RedisConnector,
    host: &RedisHost,
) -> Result<Vec<SlotRange>, String> {
    let failed = |error| format!("{host}: {error}");
    let mut connection =
        connector.open(&ConnectionTarget::Server(host.clone())).await.map_err(failed)?;
    match send_command(&mut connection, cmd("CLUSTER").arg("SLOTS")).await.map_err(failed)? {
        Value::Array(ranges) if !ranges.is_empty() => {
            let ranges = ranges.iter().map(|range| SlotRange::parse(range, host));
            ranges
                .collect::<Option<_>>()
                .ok_or_else(|| format!("{host}: unexpected reply to CLUSTER SLOTS"))
        }
        _ => Err(format!("{host}: CLUSTER SLOTS lists no slots")),
    }
}

impl SlotMap {
    fn batcher_for_host(
        &mut self,
        host: &RedisHost,
        context: &Arc<StoreContext>,
    ) -> Arc<RequestBatcher> {
        let server = self.servers.entry(host.clone()).or_insert_with(|| {
            let connection =
                Arc::new(SupervisedConnection::for_cluster_node(host, Arc::clone(context)));
            let supervisor = AbortOnDrop::spawn(Arc::clone(&connection).supervise());
            ClusterServer {
                batcher: Arc::new(RequestBatcher::new(connection)),
                _supervisor: supervisor,
            }
        });
        Arc::clone(&server.batcher)
    }

    fn install_ranges(&mut self, ranges: &[SlotRange], context: &Arc<StoreContext>) {
        // Keep an available server without slots: it may be about to receive some.
        let listed = |host: &RedisHost| ranges.iter().any(|range| range.primary == *host);
        self.servers.retain(|host, server| {
            let connection = server.batcher.connection();
            let stays = listed(host) || connection.unavailable_reason().is_none();
            if !stays {
                connection.retire();
            }
            stays
        });
        let mut slots = vec![None; usize::from(SLOTS)];
        for range in ranges {
            let batcher = self.batcher_for_host(&range.primary, context);
            batcher.connection().set_probe_slot(range.first);
            for slot in &mut slots[usize::from(range.first)..=usize::from(range.last)] {
                *slot = Some(Arc::clone(&batcher));
            }
        }
        self.slots = slots;
        "no server of the cluster owns this slot".clone_into(&mut self.unknown_reason);
    }
}

/// A range of slots and their owner.
#[derive(Debug)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: RedisHost,
}

impl SlotRange {
    /// Parses a range from a `CLUSTER SLOTS` reply.
    fn parse(reply: &Value, queried: &RedisHost) -> Option<Self> {
        let Value::Array(parts) = reply else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
        else {
            return None;
        };
        let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
        let name = match primary.first()? {
            Value::BulkString(name) if !name.is_empty() => String::from_utf8(name.clone()).ok()?,
            // A server that does not know its own name means the host that was queried.
            _ => queried.name.clone(),
        };
        let Value::Int(port) = primary.get(1)? else { return None };
        let primary = RedisHost { name, port: u16::try_from(*port).ok()? };
        let (first, last) = (slot(first)?, slot(last)?);
        (first <= last).then_some(Self { first, last, primary })
    }
}
