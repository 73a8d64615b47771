//! Real Redis servers for tests: alone, with TLS, with a clock that jumps, in a cluster, under
//! sentinels.
//!
//! Each has loopback ports and a temporary folder of its own, keeps nothing on disk, and is gone with
//! the value that stands for it. Nothing here uses a server that already runs on the machine.
//!
//! The program is `redis-server`; the environment variable `TIDEGATE_REDIS_SERVER` names another
//! for all tests (`TIDEGATE_REDIS_SERVER=valkey-server`).

mod client;
mod cluster;
mod fake_clock;
mod sentinels;
mod server;
mod tls;

pub use self::client::{RedisClient, RedisReply};
pub use self::cluster::{RedisCluster, slot_of};
pub use self::sentinels::SentinelGroup;
pub use self::server::RedisServer;
pub use self::tls::ClientCertificatePolicy;
pub use crate::certificates::TestCertificates;
