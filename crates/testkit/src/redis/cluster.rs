//! A Redis Cluster: three primaries with a replica each, whose slots a test moves and whose
//! primaries it kills.

#![expect(clippy::expect_used, reason = "a test whose cluster does not obey cannot go on")]

use super::client::Reply;
use super::server::{Plan, Server};
use crate::port::Port;
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
pub struct Cluster {
    nodes: Vec<Server>,
    /// Ports of the nodes' talk among themselves.
    buses: Vec<Port>,
}

impl Cluster {
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
        let buses: Vec<Port> = (0..NODES).map(|_| Port::take()).collect();
        let start = |bus: &Port| {
            let plan = Plan::plain().with(&SETTINGS).with(settings);
            plan.with(&["--cluster-port", &bus.number().to_string()]).start()
        };
        // All are started before one is waited for.
        let nodes: Vec<Server> = buses.iter().map(start).collect();
        let nodes = nodes.into_iter().map(Server::ready).collect();
        let cluster = Self { nodes, buses };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (number, node) in self.nodes.iter().enumerate() {
            // Else all begin with the same epoch and have to settle it among themselves.
            node.order(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (number, node) in primaries.iter().enumerate() {
            let first = number * SLOTS / PRIMARIES;
            let last = (number + 1) * SLOTS / PRIMARIES - 1;
            node.order(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (node, bus) in self.nodes.iter().zip(&self.buses).skip(1) {
            let (port, bus) = (node.port().to_string(), bus.number().to_string());
            self.nodes[0].order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        eventually("all nodes have met", || {
            self.nodes.iter().all(|node| knows(node).len() == NODES)
        });
        for (replica, primary) in replicas.iter().zip(primaries) {
            replica.order(&["CLUSTER", "REPLICATE", &id(primary)]);
        }
        eventually("every node calls the cluster well", || self.is_well());
        eventually("every node knows who replicates", || {
            let replicas =
                |node| knows(node).iter().filter(|known| known.primary.is_some()).count();
            self.nodes.iter().all(|node| replicas(node) == PRIMARIES)
        });
        eventually("every replica has its copy", || replicas.iter().all(is_in_sync));
    }

    /// All nodes, dead ones too: first those that began as primaries, then their replicas in the
    /// same order.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Addresses of all nodes, as clients are configured with.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Whether every living node says `cluster_state:ok`.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let state = |node: &Server| node.command(&["CLUSTER", "INFO"]).field("cluster_state");
        self.living().all(|node| state(node).as_deref() == Some("ok"))
    }

    /// Who has a slot, as a living node sees it.
    ///
    /// # Panics
    /// When nobody has.
    #[must_use]
    pub fn primary_of(&self, slot: u16) -> &Server {
        let witness = self.living().next().expect("a living node");
        self.node(owner(witness, slot).expect("a slot that somebody has"))
    }

    /// The replica of a primary, as a living node sees it.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn replica_of(&self, primary: &Server) -> &Server {
        let witness = self.living().next().expect("a living node");
        let known = knows(witness);
        let primary = known.iter().find(|node| node.port == primary.port()).expect("a known node");
        let mut replicas = known.iter().filter(|node| node.primary.as_ref() == Some(&primary.id));
        self.node(replicas.next().expect("a primary with a replica").port)
    }

    /// Moves a slot with all its keys, and waits until every living node knows.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn move_slot(&self, slot: u16, to: &Server) {
        self.begin_move(slot, to);
        self.finish_move(slot, to);
    }

    /// Opens the move of a slot. From here on its owner answers `ASK` for keys that it does not
    /// have, and `TRYAGAIN` for several of which it has some.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn begin_move(&self, slot: u16, to: &Server) {
        let from = self.primary_of(slot);
        let slot = slot.to_string();
        to.order(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.order(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves one key of a slot whose move is open.
    ///
    /// # Panics
    /// When it is refused or there is no such key.
    pub fn move_key(&self, key: impl AsRef<[u8]>, to: &Server) {
        let key = key.as_ref();
        migrate(self.primary_of(slot_of(key)), key, to);
    }

    /// Moves what is left of the keys, gives the slot away, and waits until every living node knows.
    ///
    /// # Panics
    /// When a step is refused.
    pub fn finish_move(&self, slot: u16, to: &Server) {
        let from = self.primary_of(slot);
        let (number, owner_id) = (slot.to_string(), id(to));
        // Keys may still come in while others leave.
        while let [key, ..] = from.command(&["CLUSTER", "GETKEYSINSLOT", &number, "1"]).items() {
            let Reply::Bulk(key) = key else { panic!("a key was expected, not {key:?}") };
            migrate(from, key, to);
        }
        // The new owner first: were the old one told first and then lost, nobody would have it.
        for node in [to, from] {
            node.order(&["CLUSTER", "SETSLOT", &number, "NODE", &owner_id]);
        }
        eventually("every node knows the slot's new owner", || {
            self.living().all(|node| owner(node, slot) == Some(to.port()))
        });
    }

    /// Kills a primary and waits until its replica has taken over in every living node's eyes and
    /// the cluster is well. Returns the new primary; the old one comes back by [`Server::restart`].
    ///
    /// # Panics
    /// When that does not come about.
    pub fn fail_over(&self, primary: &Server) -> &Server {
        let heir = self.replica_of(primary);
        primary.process().kill();
        let leads = |node: &Server| {
            knows(node).iter().any(|known| known.port == heir.port() && known.primary.is_none())
        };
        eventually("the replica takes over", || self.living().all(leads) && self.is_well());
        heir
    }

    /// Waits until a node that was restarted is a replica with its copy, and every living node knows.
    ///
    /// # Panics
    /// When that does not come about.
    pub fn await_replica(&self, node: &Server) {
        let follows = |witness: &Server| {
            let known = knows(witness);
            known.iter().any(|known| known.port == node.port() && known.primary.is_some())
        };
        eventually("the node is a replica in sync", || {
            is_in_sync(node) && self.living().all(follows)
        });
    }

    fn living(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.process().is_running())
    }

    fn node(&self, port: u16) -> &Server {
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
struct Known {
    id: String,
    port: u16,
    /// The id of the one it replicates, if it does.
    primary: Option<String>,
}

/// Whom a node has met. Lines are `id ip:port@bus flags primary …`.
fn knows(node: &Server) -> Vec<Known> {
    let text = node.command(&["CLUSTER", "NODES"]).text();
    let known = text.lines().filter(|line| !line.contains("handshake")).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let port = words[1].rsplit_once(':').and_then(|(_, ports)| ports.split('@').next());
        let primary = (words[3] != "-").then(|| words[3].to_owned());
        Known { id: words[0].into(), port: port.expect("a port").parse().expect("a port"), primary }
    });
    known.collect()
}

/// The port of a slot's owner in a node's eyes. `CLUSTER SLOTS` answers `first, last, [ip, port, …], …`.
fn owner(node: &Server, slot: u16) -> Option<u16> {
    let slots = node.command(&["CLUSTER", "SLOTS"]);
    let mut ranges = slots.items().iter().map(Reply::items);
    let range = ranges
        .find(|range| (range[0].integer()..=range[1].integer()).contains(&i64::from(slot)))?;
    u16::try_from(range[2].items()[1].integer()).ok()
}

fn id(node: &Server) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

fn is_in_sync(replica: &Server) -> bool {
    let info = replica.command(&["INFO", "replication"]);
    info.field("master_link_status").as_deref() == Some("up")
}

fn migrate(from: &Server, key: &[u8], to: &Server) {
    let port = to.port().to_string();
    let words: [&[u8]; 8] =
        [b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"5000", b"KEYS", key];
    from.order(&words);
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    /// From the cluster specification, and from a server's `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}bar"), 12_182);
        assert_ne!(slot_of("{}foo"), 12_182);
    }
}
