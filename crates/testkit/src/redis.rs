//! Real Redis servers for tests: standalone, with TLS, with a fake clock, in a cluster, under
//! sentinels.
//!
//! Each server has its own loopback ports and temporary folder, stores nothing on disk, and is
//! killed when its value is dropped. No test uses a server that already runs on the machine.
//!
//! The program is `redis-server`. The environment variable `TIDEGATE_REDIS_SERVER` selects another
//! one for all tests (`TIDEGATE_REDIS_SERVER=valkey-server`).

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
