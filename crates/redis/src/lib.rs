//! Counters there: a fleet's counters in Redis or Valkey, decided exactly as embedded memory decides.
//!
//! One constant script decides all rules of a request at once, on the server's clock, in one round
//! trip; requests that wait travel together. A call has a deadline and one attempt; a breaker for each
//! server says when to stop asking. What happens then is the caller's business (`on_fail`).

mod address;
mod ask;
mod batch;
mod breaker;
mod canary;
mod check;
mod cluster;
mod connect;
mod deny_cache;
mod keeper;
mod lane;
mod link;
mod name;
mod nodes;
mod observer;
mod replay;
mod router;
mod script;
mod stats;
mod store;

pub use address::{Address, AddressError, Host, Topology};
pub use check::{Examination, Finding, RIGHTS, Server, Timing, Weight, examine};
pub use connect::Tls;
pub use observer::{Event, Observer};
pub use stats::{BreakerState, Cause, Histogram, Stats};
pub use store::{DEFAULT_DEADLINE, DEFAULT_PREFIX, Options, RedisStore};
