//! A Redis Cluster: three primaries with a replica each, whose slots a test moves and whose
//! primaries it kills.

#![expect(clippy::expect_used, reason = "a test whose cluster does not obey cannot go on")]

use super::client::RedisReply;
use super::server::{RedisServer, RedisServerBuilder};
use crate::port::ReservedPort;
use crate::process::eventually;

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;
const SLOTS: usize = 16_384;

/// Long enough for a busy machine, short enough for a test.
const SETTINGS: [&str; 10] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1500",
    // A replica may always stand for election, and stays with its primary.
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
    /// Ports of the nodes' talk among themselves.
    buses: Vec<ReservedPort>,
}

impl RedisCluster {
    /// Starts one and waits until all of it is well.
    ///
    /// # Panics
    /// When that does not come about.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one whose nodes have more settings, such as `&["--cluster-require-full-coverage", "no"]`.
    ///
    /// # Panics
    /// When it does not come about.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        let buses: Vec<ReservedPort> = (0..NODES).map(|_| ReservedPort::reserve()).collect();
        let start = |bus: &ReservedPort| {
            let plan =
                RedisServerBuilder::plain().with_arguments(&SETTINGS).with_arguments(settings);
            plan.with_arguments(&["--cluster-port", &bus.number().to_string()]).start()
        };
        // All are started before one is waited for.
        let nodes: Vec<RedisServer> = buses.iter().map(start).collect();
        let nodes = nodes.into_iter().map(RedisServer::wait_ready).collect();
        let cluster = Self { nodes, buses };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (number, node) in self.nodes.iter().enumerate() {
            // Else all begin with the same epoch and have to settle it among themselves.
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
        eventually("every node calls the cluster well", || self.is_healthy());
        eventually("every node knows who replicates", || {
            let replicas =
                |node| known_nodes(node).iter().filter(|known| known.primary.is_some()).count();
            self.nodes.iter().all(|node| replicas(node) == PRIMARIES)
        });
        eventually("every replica has its copy", || replicas.iter().all(is_in_sync));
    }

    /// All nodes, dead ones too: first those that began as primaries, then their replicas in the
    /// same order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Addresses of all nodes, as clients are configured with.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Whether every living node says `cluster_state:ok`.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let state = |node: &RedisServer| node.command(&["CLUSTER", "INFO"]).field("cluster_state");
        self.live_nodes().all(|node| state(node).as_deref() == Some("ok"))
    }

    /// Who has a slot, as a living node sees it.
    ///
    /// # Panics
    /// When nobody has.
    #[must_use]
    pub fn primary_of(&self, slot: u16) -> &RedisServer {
        let witness = self.live_nodes().next().expect("a living node");
        self.node_by_port(slot_owner(witness, slot).expect("a slot that somebody has"))
    }

    /// The replica of a primary, as a living node sees it.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn replica_of(&self, primary: &RedisServer) -> &RedisServer {
        let witness = self.live_nodes().next().expect("a living node");
        let known = known_nodes(witness);
        let primary = known.iter().find(|node| node.port == primary.port()).expect("a known node");
        let mut replicas = known.iter().filter(|node| node.primary.as_ref() == Some(&primary.id));
        self.node_by_port(replicas.next().expect("a primary with a replica").port)
    }

    /// Moves a slot with all its keys, and waits until every living node knows.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn move_slot(&self, slot: u16, to: &RedisServer) {
        self.begin_move(slot, to);
        self.finish_move(slot, to);
    }

    /// Opens the move of a slot. From here on its owner answers `ASK` for keys that it does not
    /// have, and `TRYAGAIN` for several of which it has some.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn begin_move(&self, slot: u16, to: &RedisServer) {
        let from = self.primary_of(slot);
        let slot = slot.to_string();
        to.expect_ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &node_id(from)]);
        from.expect_ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &node_id(to)]);
    }

    /// Moves one key of a slot whose move is open.
    ///
    /// # Panics
    /// When it is refused or there is no such key.
    pub fn move_key(&self, key: impl AsRef<[u8]>, to: &RedisServer) {
        let key = key.as_ref();
        migrate_key(self.primary_of(slot_of(key)), key, to);
    }

    /// Moves what is left of the keys, gives the slot away, and waits until every living node knows.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn finish_move(&self, slot: u16, to: &RedisServer) {
        let from = self.primary_of(slot);
        let (number, owner_id) = (slot.to_string(), node_id(to));
        // Keys may still come in while others leave.
        while let [key, ..] = from.command(&["CLUSTER", "GETKEYSINSLOT", &number, "1"]).items() {
            let RedisReply::Bulk(key) = key else { panic!("a key was expected, not {key:?}") };
            migrate_key(from, key, to);
        }
        // The new owner first: were the old one told first and then lost, nobody would have it.
        for node in [to, from] {
            node.expect_ok(&["CLUSTER", "SETSLOT", &number, "NODE", &owner_id]);
        }
        eventually("every node knows the slot's new owner", || {
            self.live_nodes().all(|node| slot_owner(node, slot) == Some(to.port()))
        });
    }

    /// Kills a primary and waits until its replica has taken over in every living node's eyes and
    /// the cluster is well. Returns the new primary; the old one comes back by [`RedisServer::restart`].
    ///
    /// # Panics
    /// When that does not come about.
    pub fn fail_over(&self, primary: &RedisServer) -> &RedisServer {
        let heir = self.replica_of(primary);
        primary.process().kill();
        let leads = |node: &RedisServer| {
            known_nodes(node)
                .iter()
                .any(|known| known.port == heir.port() && known.primary.is_none())
        };
        eventually("the replica takes over", || self.live_nodes().all(leads) && self.is_healthy());
        heir
    }

    /// Waits until a node that was restarted is a replica with its copy, and every living node knows.
    ///
    /// # Panics
    /// When that does not come about.
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

/// The slot of a key: CRC16 (XMODEM) of it, or of what stands in its first braces, modulo 16384.
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

/// A node as another one describes it.
struct KnownNode {
    id: String,
    port: u16,
    /// The id of the one it replicates, if it does.
    primary: Option<String>,
}

/// Whom a node has met. Lines are `id ip:port@bus flags primary …`.
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

/// The port of a slot's owner in a node's eyes. `CLUSTER SLOTS` answers `first, last, [ip, port, …], …`.
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
