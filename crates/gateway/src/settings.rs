//! How the gateway behaves.

use std::time::Duration;

use super::access_log::AccessLog;
use super::forward::HostHeader;
use super::header_policy::PassthroughHeader;
use super::health_check::UpstreamHealthCheck;
use super::route::UpstreamRoute;
use super::upstream::Balance;
use super::upstream_server::UpstreamTimeouts;
use tidegate_net::connect::{OutboundAddress, OutboundTls};
use tidegate_response::HeaderSettings;
use tidegate_telemetry::trace::Tracer;

/// How the gateway behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How rate-limit headers are written.
    pub headers: HeaderSettings,
    /// The longest body of a request.
    pub max_body_bytes: u64,
    /// Headers that clients may send although the gateway would drop them.
    pub passthrough_headers: Vec<PassthroughHeader>,
    /// Whether a charge is given back when no server of an upstream could be reached. An upstream
    /// that is too busy to accept connections then has no limiter in front of it.
    pub refund_unreachable: bool,
    /// How long a client may take for the next piece of a body.
    pub body_timeout: Duration,
    /// The most requests that wait their turn at once.
    pub max_waiting: usize,
    /// How long requests have to finish after the stop.
    pub drain_timeout: Duration,
    /// How many threads connections stay on ([`WorkerPool`](tidegate_net::listen::WorkerPool)); one where they are
    /// moved between threads.
    pub threads: usize,
    /// Receives what became of each request.
    pub access_log: Option<AccessLog>,
    /// Reports what becomes of requests as traces.
    pub tracer: Option<Tracer>,
    /// Where requests go.
    pub routes: Vec<UpstreamRoute>,
    /// What the routes lead to.
    pub upstreams: Vec<UpstreamSettings>,
}

/// Servers that answer the same requests.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Where they are, and how much each takes compared with the others.
    pub servers: Vec<(OutboundAddress, u32)>,
    /// Which of them gets the next request.
    pub balance: Balance,
    /// How long each may take.
    pub timeouts: UpstreamTimeouts,
    /// Whose certificates are believed.
    pub tls: OutboundTls,
    /// What `RequestHost` says to them.
    pub host: HostHeader,
    /// How they are asked whether they are well, if they are.
    pub health: Option<UpstreamHealthCheck>,
}
