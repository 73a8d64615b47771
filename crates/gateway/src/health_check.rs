//! Health of upstream servers: active checks if configured, and reconnect attempts after a failed
//! connection.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request};

use super::request_body::UpstreamRequestBody;
use super::upstream_server::UpstreamServer;

/// The interval between reconnect attempts to an unreachable server.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

const HEALTH_CHECK_AGENT: HeaderValue = HeaderValue::from_static("tidegate-health-check");

/// Active health checks of the servers of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHealthCheck {
    /// The path of the probe; a status below 400 is healthy.
    pub path: String,
    /// The interval between probes.
    pub interval: Duration,
    /// The timeout of a probe.
    pub timeout: Duration,
    /// The number of consecutive failed probes after which a server is unhealthy.
    pub unhealthy_threshold: u32,
    /// The number of consecutive successful probes after which it is healthy again.
    pub healthy_threshold: u32,
}

/// Probes a server until the task is dropped.
pub(super) async fn run_health_checks(server: Arc<UpstreamServer>, health: UpstreamHealthCheck) {
    let (mut good, mut bad) = (0, 0);
    loop {
        tokio::time::sleep(health.interval).await;
        let probing = probe(&server, &health.path);
        match tokio::time::timeout(health.timeout, probing).await.unwrap_or(false) {
            true => (good, bad) = (good + 1, 0),
            false => (good, bad) = (0, bad + 1),
        }
        if bad >= health.unhealthy_threshold {
            update_health(&server, false);
        } else if good >= health.healthy_threshold {
            update_health(&server, true);
        }
    }
}

/// Marks a server unhealthy after a failed connection, and reconnects until it succeeds. With
/// active checks no reconnect is needed: the checks detect the recovery.
pub(super) fn mark_unreachable(server: &Arc<UpstreamServer>, has_health_check: bool) {
    if update_health(server, false) && !has_health_check {
        let server = Arc::clone(server);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RECONNECT_INTERVAL).await;
                if server.dial().await.is_ok() {
                    update_health(&server, true);
                    return;
                }
            }
        });
    }
}

/// Sets the health and logs a change. Returns whether it changed.
fn update_health(server: &UpstreamServer, healthy: bool) -> bool {
    let changed = server.set_healthy(healthy);
    match (changed, healthy) {
        (true, true) => tracing::info!(server = %server.address, "upstream server healthy again"),
        (true, false) => tracing::warn!(
            server = %server.address,
            "upstream server unhealthy: it gets requests only while no other server is healthy"
        ),
        (false, _) => {}
    }
    changed
}

async fn probe(server: &UpstreamServer, path: &str) -> bool {
    let request = Request::get(path)
        .header(HOST, server.host())
        .header(USER_AGENT, HEALTH_CHECK_AGENT)
        .body(UpstreamRequestBody::empty());
    let Ok(request) = request else { return false };
    let sent = server.send(&mut Some(request), false).await;
    // The body is not read, so dropping the response closes the connection.
    sent.is_ok_and(|sent| sent.response.status().as_u16() < 400)
}
