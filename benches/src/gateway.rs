//! What the gateway's benchmark is made of: programs that answer requests, load on them, and what it
//! cost them.

pub mod contender;
pub mod cpu;
pub mod goals;
pub mod http;
pub mod paced;
pub mod setup;
pub mod wrk;

/// What one turn of one contender gave.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Requests a second, as many as it takes or as many as it was asked.
    pub per_second: f64,
    /// Processor time of the contender, a request.
    pub cpu_us: f64,
    /// Latencies meanwhile.
    pub latencies: Latencies,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// The median.
    pub p50: f64,
    /// What one in a hundred exceeds.
    pub p99: f64,
}
