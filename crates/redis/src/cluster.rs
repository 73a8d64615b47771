//! A cluster: which of its servers has which slot, learned from the servers and kept up to date.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use parking_lot::Mutex;
use redis::{Value, cmd};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address::Host;
use crate::connect::{Connector, Place, ask};
use crate::keeper::Keeper;
use crate::lane::Lane;
use crate::link::{Common, Link};
use crate::name::SLOTS;
use crate::observer::Event;

/// How often the slots are asked for when all is well, and when a server is lost.
const CALM: Duration = Duration::from_secs(10);
const TROUBLED: Duration = Duration::from_millis(250);

/// How long they are not asked for again, however many are sent elsewhere: those are on their way.
const HASTE: Duration = Duration::from_millis(20);

/// The servers of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    common: Arc<Common>,
    seeds: Vec<Host>,
    map: Mutex<Map>,
    stale: Notify,
    learned: Notify,
}

#[derive(Debug)]
struct Map {
    servers: HashMap<Host, Server>,
    slots: Vec<Option<Arc<Lane>>>,
    why_unknown: String,
}

#[derive(Debug)]
struct Server {
    lane: Arc<Lane>,
    _keeper: Keeper,
}

impl Cluster {
    pub(crate) fn new(seeds: Vec<Host>, common: Arc<Common>) -> Self {
        let map = Map {
            servers: HashMap::new(),
            slots: vec![None; usize::from(SLOTS)],
            why_unknown: "the cluster was not reached yet".to_owned(),
        };
        Self { common, seeds, map: Mutex::new(map), stale: Notify::new(), learned: Notify::new() }
    }

    /// Who has a slot.
    ///
    /// # Errors
    /// Why that is not known.
    pub(crate) fn lane(&self, slot: u16) -> Result<Arc<Lane>, String> {
        let map = self.map.lock();
        let lane = map.slots.get(usize::from(slot)).cloned().flatten();
        lane.ok_or_else(|| map.why_unknown.clone())
    }

    /// A server that another one sent us to.
    pub(crate) fn server(&self, host: &Host) -> Arc<Lane> {
        self.map.lock().server(host, &self.common)
    }

    /// A slot is said to have moved.
    pub(crate) fn moved(&self, slot: u16, host: &Host) -> Arc<Lane> {
        let mut map = self.map.lock();
        let lane = map.server(host, &self.common);
        map.slots[usize::from(slot)] = Some(Arc::clone(&lane));
        self.stale.notify_one();
        lane
    }

    /// Why some servers are not asked, if any.
    pub(crate) fn lost(&self) -> Option<String> {
        let map = self.map.lock();
        if map.slots.iter().any(Option::is_none) {
            return Some(map.why_unknown.clone());
        }
        map.servers.values().find_map(|server| server.lane.link().lost())
    }

    /// Waits until all servers are known and asked.
    pub(crate) async fn ready(&self) {
        loop {
            let learned = self.learned.notified();
            let lanes = self.lanes();
            let all_ready = join_all(lanes.iter().map(|lane| lane.link().ready()));
            tokio::select! {
                // One that is waited for may have been let go.
                () = learned => {}
                _ = all_ready, if !lanes.is_empty() => return,
            }
        }
    }

    /// The requests of every server.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.map.lock().servers.values().map(|server| Arc::clone(&server.lane)).collect()
    }

    /// Keeps the slots up to date for as long as the cluster is used.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut unreached = None;
        loop {
            match self.learn().await {
                Ok(()) => {
                    self.learned.notify_waiters();
                    if let Some(server) = unreached.take() {
                        self.common.observer.hear(&Event::Back { server });
                    }
                }
                Err(why) => {
                    // Later on, each server that is lost is told of by itself.
                    if unreached.is_none() && self.lanes().is_empty() {
                        let server = "the cluster".to_owned();
                        unreached = Some(server.clone());
                        self.common.observer.hear(&Event::Lost { server, why: why.clone() });
                    }
                    self.map.lock().why_unknown = why;
                }
            }
            self.rest().await;
        }
    }

    /// Waits until the slots should be asked for again.
    async fn rest(&self) {
        tokio::time::sleep(HASTE).await;
        let calm = Instant::now() + CALM;
        while Instant::now() < calm {
            let stale = tokio::time::timeout(TROUBLED, self.stale.notified()).await;
            if stale.is_ok() || self.lost().is_some() {
                return;
            }
        }
    }

    /// Asks those servers in turn that are well, then all others at once, until one tells all slots.
    async fn learn(&self) -> Result<(), String> {
        let (lost, well): (Vec<Host>, Vec<Host>) = {
            let map = self.map.lock();
            let is_lost = |(_, server): &(&Host, &Server)| server.lane.link().lost().is_some();
            let (lost, well): (Vec<_>, Vec<_>) = map.servers.iter().partition(is_lost);
            let hosts =
                |of: Vec<(&Host, _)>| of.into_iter().map(|(host, _)| host.clone()).collect();
            (hosts(lost), hosts(well))
        };
        for host in &well {
            if let Ok(ranges) = slots(&self.common.connector, host).await {
                self.map.lock().put(&ranges, &self.common);
                return Ok(());
            }
        }
        let others = lost
            .iter()
            .chain(&self.seeds)
            .map(|host| Box::pin(slots(&self.common.connector, host)));
        let (ranges, _) = select_ok(others).await?;
        self.map.lock().put(&ranges, &self.common);
        Ok(())
    }
}

/// Who has which slots, as one server tells.
///
/// # Errors
/// Why it does not, with its name.
pub(crate) async fn slots(connector: &Connector, host: &Host) -> Result<Vec<Range>, String> {
    let failed = |error| format!("{host}: {error}");
    let mut connection = connector.open(&Place::Server(host.clone())).await.map_err(failed)?;
    match ask(&mut connection, cmd("CLUSTER").arg("SLOTS")).await.map_err(failed)? {
        Value::Array(ranges) if !ranges.is_empty() => {
            let ranges = ranges.iter().map(|range| Range::of(range, host));
            ranges.collect::<Option<_>>().ok_or_else(|| format!("{host} tells strange slots"))
        }
        _ => Err(format!("{host} knows no slots")),
    }
}

impl Map {
    fn server(&mut self, host: &Host, common: &Arc<Common>) -> Arc<Lane> {
        let server = self.servers.entry(host.clone()).or_insert_with(|| {
            let link = Arc::new(Link::in_cluster(host, Arc::clone(common)));
            let keeper = Keeper::spawn(Arc::clone(&link).keep());
            Server { lane: Arc::new(Lane::new(link)), _keeper: keeper }
        });
        Arc::clone(&server.lane)
    }

    fn put(&mut self, ranges: &[Range], common: &Arc<Common>) {
        // One without slots that is well may be about to get some.
        let listed = |host: &Host| ranges.iter().any(|range| range.primary == *host);
        self.servers.retain(|host, server| {
            let link = server.lane.link();
            let stays = listed(host) || link.lost().is_none();
            if !stays {
                link.let_go();
            }
            stays
        });
        let mut slots = vec![None; usize::from(SLOTS)];
        for range in ranges {
            let lane = self.server(&range.primary, common);
            lane.link().has_slot(range.first);
            for slot in &mut slots[usize::from(range.first)..=usize::from(range.last)] {
                *slot = Some(Arc::clone(&lane));
            }
        }
        self.slots = slots;
        "no server has this slot".clone_into(&mut self.why_unknown);
    }
}

/// Some slots, and who has them.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: Host,
}

impl Range {
    /// A range as `CLUSTER SLOTS` tells it.
    fn of(told: &Value, asked: &Host) -> Option<Self> {
        let Value::Array(parts) = told else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = parts.as_slice()
        else {
            return None;
        };
        let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
        let name = match primary.first()? {
            Value::BulkString(name) if !name.is_empty() => String::from_utf8(name.clone()).ok()?,
            // A server that does not know its own name means the one that was asked.
            _ => asked.name.clone(),
        };
        let Value::Int(port) = primary.get(1)? else { return None };
        let primary = Host { name, port: u16::try_from(*port).ok()? };
        let (first, last) = (slot(first)?, slot(last)?);
        (first <= last).then_some(Self { first, last, primary })
    }
}
