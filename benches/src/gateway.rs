//! Building blocks of the gateway benchmark: the programs under test, load generators, and
//! measurement of CPU time.

pub mod contender;
pub mod cpu;
pub mod goals;
pub mod http;
pub mod paced;
pub mod setup;
pub mod wrk;

/// Result of one turn of one contender.
#[derive(Clone, Copy, Debug)]
pub struct GatewayTurn {
    /// Requests per second: measured under full load, given at a fixed rate.
    pub per_second: f64,
    /// CPU time of the contender per request, in microseconds.
    pub cpu_us: f64,
    /// Response times.
    pub latencies: Latencies,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}
