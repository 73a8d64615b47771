//! Building blocks of the decision API benchmark.
//!
//! The benchmark compares rate limiters over three protocols (RESP, HTTP and gRPC). For each
//! protocol, a server without a limiter shows the ceiling of the machine.

pub mod contender;
pub mod goals;
pub mod grpc_call;
pub mod h2load;
pub mod redis_benchmark;
pub mod setup;

use crate::gateway::Latencies;

/// Number of concurrent connections.
pub const CONNECTIONS: usize = 50;

/// Length of one turn, in seconds.
pub const SECONDS: u64 = 1;

/// Number of distinct keys, for load generators that can draw a key per request.
pub const KEYS: usize = 100_000;

/// Bucket size and requests per minute: high enough that no request is refused.
pub const QUOTA: &str = "1000000";

/// A decision API, and how the load generator uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchApi {
    /// RESP `THROTTLE`, one command at a time.
    Resp,
    /// RESP `THROTTLE`, pipelined sixteen commands deep.
    Pipeline,
    /// JSON over HTTP/1.1.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl BenchApi {
    /// All APIs, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Resp, Self::Pipeline, Self::Http, Self::Grpc];

    /// Name in the results table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resp => "RESP, -P 1",
            Self::Pipeline => "RESP, -P 16",
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
        }
    }
}

/// Result of one turn of one contender at one API.
#[derive(Clone, Copy, Debug)]
pub struct ApiTurn {
    /// Responses per second.
    pub per_second: f64,
    /// CPU time of the contender per response, in microseconds.
    pub cpu_us: f64,
    /// Response times.
    pub latencies: Latencies,
}
