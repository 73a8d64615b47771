//! What the benchmark of the doors is made of: limiters that are asked in three protocols, what is the most
//! that anything answers in them here, and load on all of it.

pub mod call;
pub mod contender;
pub mod goals;
pub mod h2load;
pub mod redis_benchmark;
pub mod setup;

use crate::gateway::Latencies;

/// Connections that ask at once.
pub const CONNECTIONS: usize = 50;

/// How long a turn lasts.
pub const SECONDS: u64 = 1;

/// Keys that are asked about, where a program can draw one for each request.
pub const KEYS: usize = 100_000;

/// So much that nobody is refused: a bucket of a million, filled every minute.
pub const QUOTA: &str = "1000000";

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `THROTTLE`, one command at a time.
    Resp,
    /// `THROTTLE`, sixteen at a time.
    Pipeline,
    /// JSON over HTTP/1.1.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

impl Door {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Resp, Self::Pipeline, Self::Http, Self::Grpc];

    /// As the table calls it.
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

/// What one turn of one contender at one door gave.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Answers a second.
    pub per_second: f64,
    /// Processor time of the contender, an answer.
    pub cpu_us: f64,
    /// How long they took.
    pub latencies: Latencies,
}
