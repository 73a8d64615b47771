//! Store for Redis or Valkey: a fleet shares its counters, with the same decisions as the embedded
//! store.
//!
//! One constant script decides all rules of a request at once, on the server's clock, in one round
//! trip. Waiting requests share a call. A call has a deadline and a single attempt. Each server has
//! a circuit breaker. When no server answers, the caller applies the rule's `on_fail`.

mod abort_on_drop;
mod address;
mod batch;
mod batcher;
mod breaker;
mod cluster;
mod connection;
mod connector;
mod deny_cache;
mod diagnose;
mod heartbeat;
mod key_name;
mod lua_script;
mod observer;
mod probe;
mod region_loans;
mod region_marker;
mod replay;
mod router;
mod script_call;
mod script_request;
mod stats;
mod store;

pub use address::{RedisAddress, RedisAddressError, RedisHost, RedisTopology};
pub use connector::RedisTlsConfig;
pub use diagnose::{
    FindingSeverity, LatencySummary, REQUIRED_ACL, RedisServerReport, StoreDiagnosis, StoreFinding,
    diagnose,
};
pub use observer::{StoreEvent, StoreObserver};
pub use region_loans::RegionLoan;
pub use region_marker::RegionMarker;
pub use stats::{BreakerState, FailureCause, RedisHistogram, Stats};
pub use store::{DEFAULT_DEADLINE, DEFAULT_PREFIX, RedisOptions, RedisStore};
