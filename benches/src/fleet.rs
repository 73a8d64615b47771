//! Building blocks of the fleet benchmark: nodes that share one Redis server, with exact, leased
//! and asynchronous rules.

pub mod http_cost;
pub mod node;
pub mod skewed_demand;
pub mod throughput;

use std::time::Duration;

/// How a rule's nodes agree on its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetMode {
    /// Name in the tables.
    pub name: &'static str,
    /// The mode in a rules document.
    pub setting: &'static str,
    /// Length of a lease, or time between two flushes.
    pub interval: Duration,
}

impl FleetMode {
    /// The store decides every request.
    pub const EXACT: Self =
        Self { name: "exact", setting: "consistency: exact", interval: Duration::ZERO };

    /// With the default terms.
    pub const LEASED: Self = Self {
        name: "leased",
        setting: "consistency: leased",
        interval: Duration::from_millis(100),
    };

    /// With leases twenty times as long as by default.
    pub const LEASED_LONG: Self = Self {
        name: "leased, `ttl: 2s`",
        setting: "consistency: leased, lease: { ttl: 2s }",
        interval: Duration::from_secs(2),
    };

    /// With the default interval.
    pub const ASYNC: Self =
        Self { name: "async", setting: "consistency: async", interval: Duration::from_millis(100) };

    /// With an interval twenty times as long as by default.
    pub const ASYNC_LONG: Self = Self {
        name: "async, `flush: 2s`",
        setting: "consistency: async, flush: 2s",
        interval: Duration::from_secs(2),
    };
}

/// How a table says whether a goal was met.
#[must_use]
pub const fn verdict(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}
