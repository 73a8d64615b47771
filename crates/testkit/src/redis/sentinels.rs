//! A primary with two replicas, monitored by three sentinels that fail over when it dies.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::io;

use super::client::RedisReply;
use super::server::{RedisServer, RedisServerBuilder};
use crate::process::eventually;

const NAME: &str = "tidegate";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// Sentinel periods in milliseconds, shorter than the defaults. With this `tilt-trigger`, a pause
/// of the machine does not put the sentinels into TILT mode for half a minute.
const SENTINEL_PERIODS: [&str; 10] = [
    "info-period",
    "500",
    "ask-period",
    "200",
    "publish-period",
    "200",
    "ping-period",
    "200",
    "tilt-trigger",
    "20000",
];

/// A primary, two replicas, three sentinels.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl SentinelGroup {
    /// Starts all servers and waits until each sentinel knows all others.
    ///
    /// # Panics
    /// If that does not happen.
    #[must_use]
    pub fn start() -> Self {
        let primary = RedisServer::start();
        let port = primary.port().to_string();
        let follow = |_| {
            RedisServerBuilder::plain().with_arguments(&["--replicaof", "127.0.0.1", &port]).start()
        };
        let replicas: Vec<RedisServer> = (0..REPLICAS).map(follow).collect();
        let mut servers = vec![primary];
        servers.extend(replicas.into_iter().map(RedisServer::wait_ready));
        // A sentinel queries the primary's replicas when it starts, and then only rarely.
        eventually("both replicas are in sync", || {
            let info = servers[0].command(&["INFO", "replication"]).text();
            info.matches("state=online").count() == REPLICAS
        });
        let watch = |_| RedisServerBuilder::sentinel(&settings(servers[0].port())).start();
        let sentinels: Vec<RedisServer> = (0..SENTINELS).map(watch).collect();
        let sentinels: Vec<RedisServer> =
            sentinels.into_iter().map(RedisServer::wait_ready).collect();
        for sentinel in &sentinels {
            let words =
                ["SENTINEL", "DEBUG"].into_iter().chain(SENTINEL_PERIODS).collect::<Vec<_>>();
            sentinel.expect_ok(&words);
        }
        eventually("the sentinels know each other and the replicas", || {
            sentinels.iter().all(knows_all_peers)
        });
        Self { servers, sentinels }
    }

    /// The name of the primary in the sentinels' configuration.
    #[must_use]
    pub const fn master_name(&self) -> &'static str {
        NAME
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// URLs of the sentinels, for the configuration of clients.
    #[must_use]
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The monitored servers, including dead ones; the first is the initial primary.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The primary, according to the first sentinel that responds.
    ///
    /// # Panics
    /// If no sentinel responds.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        let mut ports = self.sentinels.iter().filter_map(|sentinel| primary_port(sentinel).ok());
        let port = ports.next().expect("a sentinel that responds");
        self.servers.iter().find(|server| server.port() == port).expect("a server of ours")
    }

    /// Kills the primary and returns it. The sentinels notice this later: see
    /// [`SentinelGroup::await_failover`].
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.process().kill();
        primary
    }

    /// Waits until all live sentinels agree on a primary other than `old` and that server reports
    /// the primary role. Returns it.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn await_failover(&self, old: &RedisServer) -> &RedisServer {
        eventually("the sentinels agree on a new primary", || {
            let mut ports =
                self.sentinels.iter().filter_map(|sentinel| primary_port(sentinel).ok());
            let Some(port) = ports.next() else { return false };
            port != old.port() && ports.all(|other| other == port) && is_primary(self.primary())
        });
        self.primary()
    }
}

fn settings(port: u16) -> String {
    format!(
        "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
         sentinel down-after-milliseconds {NAME} 800\n\
         sentinel failover-timeout {NAME} 2000\n\
         sentinel parallel-syncs {NAME} {REPLICAS}\n"
    )
}

/// The port of the primary, according to a sentinel.
fn primary_port(sentinel: &RedisServer) -> io::Result<u16> {
    let reply = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
    let port = reply.items()[1].integer();
    u16::try_from(port).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// `SENTINEL MASTER` returns names and values alternately.
fn knows_all_peers(sentinel: &RedisServer) -> bool {
    let reply = sentinel.command(&["SENTINEL", "MASTER", NAME]);
    let words: Vec<String> = reply.items().iter().map(RedisReply::text).collect();
    let value = |name: &str| {
        let mut pairs = words.chunks_exact(2);
        pairs.find(|pair| pair[0] == name).and_then(|pair| pair[1].parse::<usize>().ok())
    };
    value("num-slaves") == Some(REPLICAS) && value("num-other-sentinels") == Some(SENTINELS - 1)
}

fn is_primary(server: &RedisServer) -> bool {
    let role = server.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.items()[0].text() == "master")
}
