//! Settings of the gateway.

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

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How rate-limit headers are written.
    pub headers: HeaderSettings,
    /// The maximum size of a request body.
    pub max_body_bytes: u64,
    /// Headers that untrusted clients may send although the gateway drops them by default.
    pub passthrough_headers: Vec<PassthroughHeader>,
    /// Whether a charge is refunded when no server of the upstream can be reached. An upstream that
    /// is too busy to accept connections is then not protected by its limits.
    pub refund_unreachable: bool,
    /// The maximum time between two pieces of a request body.
    pub body_timeout: Duration,
    /// The maximum number of requests in delay queues.
    pub max_waiting: usize,
    /// How long requests may take to finish after the stop.
    pub drain_timeout: Duration,
    /// The number of worker threads that connections are pinned to
    /// ([`WorkerPool`](tidegate_net::listen::WorkerPool)); 1 if they move between threads.
    pub threads: usize,
    /// Receives a record of each request.
    pub access_log: Option<AccessLog>,
    /// Exports traces of requests.
    pub tracer: Option<Tracer>,
    /// The routes to the upstreams.
    pub routes: Vec<UpstreamRoute>,
    /// The upstreams that the routes refer to by index.
    pub upstreams: Vec<UpstreamSettings>,
}

/// A group of servers that serve the same requests.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// The address and the weight of each server.
    pub servers: Vec<(OutboundAddress, u32)>,
    /// The load-balancing policy.
    pub balance: Balance,
    /// The timeouts of each server.
    pub timeouts: UpstreamTimeouts,
    /// The certificate authorities that are trusted.
    pub tls: OutboundTls,
    /// The `Host` header that the servers receive.
    pub host: HostHeader,
    /// The active health checks, if configured.
    pub health: Option<UpstreamHealthCheck>,
}
