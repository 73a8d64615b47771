//! A Redis Cluster of three primaries with one replica each. Tests can move its slots and kill its
//! primaries.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use super::client::RedisReply;
use super::server::{RedisServer, RedisServerBuilder};
use crate::port::ReservedPort;
use crate::process::eventually;

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;
const SLOTS: usize = 16_384;

/// The timeouts are long enough for a busy machine and short enough for a test.
const SETTINGS: [&str; 10] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1500",
    // A replica may always be elected, and stays with its primary.
    "--cluster-replica-validity-factor",
    "0",
    "--cluster-allow-replica-migration",
    "no",
    "--cluster-announce-ip",
    "127.0.0.1",
];

/// Three primaries and three replicas.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// Ports of the cluster bus.
    buses: Vec<ReservedPort>,
}

impl RedisCluster {
    /// Starts a cluster and waits until it is healthy.
    ///
    /// # Panics
    /// If it does not become healthy.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a cluster with additional settings, such as `&["--cluster-require-full-coverage",
    /// "no"]`.
    ///
    /// # Panics
    /// If it does not become healthy.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        let buses: Vec<ReservedPort> = (0..NODES).map(|_| ReservedPort::reserve()).collect();
        let start = |bus: &ReservedPort| {
            let plan =
                RedisServerBuilder::plain().with_arguments(&SETTINGS).with_arguments(settings);
            plan.with_arguments(&["--cluster-port", &bus.number().to_string()]).start()
        };
        // Start all before waiting for any.
        let nodes: Vec<RedisServer> = buses.iter().map(start).collect();
        let nodes = nodes.into_iter().map(RedisServer::wait_ready).collect();
        let cluster = Self { nodes, buses };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (number, node) in self.nodes.iter().enumerate() {
            // Otherwise all nodes start with the same epoch and must first resolve the conflict.
            node.expect_ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (number, node) in primaries.iter().enumerate() {
            let first = number * SLOTS / PRIMARIES;
            let last = (number + 1) * SLOTS / PRIMARIES - 1;
            node.expect_ok(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (node, bus) in self.nodes.iter().zip(&self.buses).skip(1) {
            let (port, bus) = (node.port().to_string(), bus.number().to_string());
            self.nodes[0].expect_ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        eventually("all nodes have met", || {
            self.nodes.iter().all(|node| known_nodes(node).len() == NODES)
        });
        for (replica, primary) in replicas.iter().zip(primaries) {
            replica.expect_ok(&["CLUSTER", "REPLICATE", &node_id(primary)]);
        }
        eventually("every node reports a healthy cluster", || self.is_healthy());
        eventually("every node knows the replicas", || {
            let replicas =
                |node| known_nodes(node).iter().filter(|known| known.primary.is_some()).count();
            self.nodes.iter().all(|node| replicas(node) == PRIMARIES)
        });
        eventually("every replica is in sync", || replicas.iter().all(is_in_sync));
    }

    /// All nodes, including dead ones: first the initial primaries, then their replicas in the same
    /// order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// URLs of all nodes, for the configuration of clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Whether every live node reports `cluster_state:ok`.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let state = |node: &RedisServer| node.command(&["CLUSTER", "INFO"]).field("cluster_state");
        self.live_nodes().all(|node| state(node).as_deref() == Some("ok"))
    }

    /// The owner of a slot, according to a live node.
    ///
    /// # Panics
    /// If the slot has no owner.
    #[must_use]
    pub fn primary_of(&self, slot: u16) -> &RedisServer {
        let witness = self.live_nodes().next().expect("a live node");
        self.node_by_port(slot_owner(witness, slot).expect("a slot with an owner"))
    }

    /// The replica of a primary, according to a live node.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn replica_of(&self, primary: &RedisServer) -> &RedisServer {
        let witness = self.live_nodes().next().expect("a live node");
        let known = known_nodes(witness);
        let primary = known.iter().find(|node| node.port == primary.port()).expect("a known node");
        let mut replicas = known.iter().filter(|node| node.primary.as_ref() == Some(&primary.id));
        self.node_by_port(replicas.next().expect("a primary with a replica").port)
    }

    /// Moves a slot with all its keys, and waits until every live node knows.
    ///
    /// # Panics
    /// If a step fails.
    pub fn move_slot(&self, slot: u16, to: &RedisServer) {
        self.begin_move(slot, to);
        self.finish_move(slot, to);
    }

    /// Begins the move of a slot. From then on its owner replies `ASK` for keys that it does not
    /// have, and `TRYAGAIN` for several keys of which it has only some.
    ///
    /// # Panics
    /// If a step fails.
    pub fn begin_move(&self, slot: u16, to: &RedisServer) {
        let from = self.primary_of(slot);
        let slot = slot.to_string();
        to.expect_ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &node_id(from)]);
        from.expect_ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &node_id(to)]);
    }

    /// Moves one key of a slot whose move has begun.
    ///
    /// # Panics
    /// If the server rejects it or the key does not exist.
    pub fn move_key(&self, key: impl AsRef<[u8]>, to: &RedisServer) {
        let key = key.as_ref();
        migrate_key(self.primary_of(slot_of(key)), key, to);
    }

    /// Moves the remaining keys, transfers the slot, and waits until every live node knows.
    ///
    /// # Panics
    /// If a step fails.
    pub fn finish_move(&self, slot: u16, to: &RedisServer) {
        let from = self.primary_of(slot);
        let (number, owner_id) = (slot.to_string(), node_id(to));
        // New keys may be created while others are moved.
        while let [key, ..] = from.command(&["CLUSTER", "GETKEYSINSLOT", &number, "1"]).items() {
            let RedisReply::Bulk(key) = key else { panic!("expected a key, got {key:?}") };
            migrate_key(from, key, to);
        }
        // Notify the new owner first. If the old owner were notified first and then failed, the
        // slot would have no owner.
        for node in [to, from] {
            node.expect_ok(&["CLUSTER", "SETSLOT", &number, "NODE", &owner_id]);
        }
        eventually("every node knows the slot's new owner", || {
            self.live_nodes().all(|node| slot_owner(node, slot) == Some(to.port()))
        });
    }

    /// Kills a primary and waits until every live node sees its replica as the primary and the
    /// cluster is healthy. Returns the new primary; restart the old one with
    /// [`RedisServer::restart`].
    ///
    /// # Panics
    /// If the failover does not complete.
    pub fn fail_over(&self, primary: &RedisServer) -> &RedisServer {
        let successor = self.replica_of(primary);
        primary.process().kill();
        let leads = |node: &RedisServer| {
            known_nodes(node)
                .iter()
                .any(|known| known.port == successor.port() && known.primary.is_none())
        };
        eventually("the replica takes over", || self.live_nodes().all(leads) && self.is_healthy());
        successor
    }

    /// Waits until a restarted node is a replica in sync, and every live node knows.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn await_replica(&self, node: &RedisServer) {
        let follows = |witness: &RedisServer| {
            let known = known_nodes(witness);
            known.iter().any(|known| known.port == node.port() && known.primary.is_some())
        };
        eventually("the node is a replica in sync", || {
            is_in_sync(node) && self.live_nodes().all(follows)
        });
    }

    fn live_nodes(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.process().is_running())
    }

    fn node_by_port(&self, port: u16) -> &RedisServer {
        self.nodes.iter().find(|node| node.port() == port).expect("a node of this cluster")
    }
}

/// The slot of a key: CRC16 (XMODEM) of the key, or of the text in its first braces, modulo 16384.
#[must_use]
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let hashed = hash_tag(key).unwrap_or(key);
    let crc = hashed.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16_384
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let length = rest.iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &rest[..length])
}

/// A node as another node describes it.
struct KnownNode {
    id: String,
    port: u16,
    /// The ID of its primary, if it is a replica.
    primary: Option<String>,
}

/// The nodes known to a node. Lines are `id ip:port@bus flags primary …`.
fn known_nodes(node: &RedisServer) -> Vec<KnownNode> {
    let text = node.command(&["CLUSTER", "NODES"]).text();
    let known = text.lines().filter(|line| !line.contains("handshake")).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let port = words[1].rsplit_once(':').and_then(|(_, ports)| ports.split('@').next());
        let primary = (words[3] != "-").then(|| words[3].to_owned());
        KnownNode {
            id: words[0].into(),
            port: port.expect("a port").parse().expect("a port"),
            primary,
        }
    });
    known.collect()
}

/// The port of a slot's owner, according to a node. `CLUSTER SLOTS` replies `first, last, [ip,
/// port, …], …`.
fn slot_owner(node: &RedisServer, slot: u16) -> Option<u16> {
    let slots = node.command(&["CLUSTER", "SLOTS"]);
    let mut ranges = slots.items().iter().map(RedisReply::items);
    let range = ranges
        .find(|range| (range[0].integer()..=range[1].integer()).contains(&i64::from(slot)))?;
    u16::try_from(range[2].items()[1].integer()).ok()
}

fn node_id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

fn is_in_sync(replica: &RedisServer) -> bool {
    let info = replica.command(&["INFO", "replication"]);
    info.field("master_link_status").as_deref() == Some("up")
}

fn migrate_key(from: &RedisServer, key: &[u8], to: &RedisServer) {
    let port = to.port().to_string();
    let words: [&[u8]; 8] =
        [b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS", key];
    from.expect_ok(&words);
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    /// From the cluster specification, and from a server's `CLUSTER KEYSLOT`.
    #[test]
    fn hash_slots_match_cluster_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}bar"), 12_182);
        assert_ne!(slot_of("{}foo"), 12_182);
    }
}
