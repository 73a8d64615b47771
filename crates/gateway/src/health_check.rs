//! How servers fare: asked now and then where that is configured, and until they are back once no
//! connection came about.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Request};

use super::request_body::UpstreamRequestBody;
use super::upstream_server::UpstreamServer;

/// How often a server is tried that could not be reached.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

const HEALTH_CHECK_AGENT: HeaderValue = HeaderValue::from_static("tidegate-health-check");

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHealthCheck {
    /// What is asked for; an answer below 400 is well.
    pub path: String,
    /// How often.
    pub interval: Duration,
    /// How long a server may take.
    pub timeout: Duration,
    /// After how many bad answers in a row a server is unwell.
    pub unhealthy_threshold: u32,
    /// After how many good answers in a row it is well again.
    pub healthy_threshold: u32,
}

/// Asks a server for ever.
pub(super) async fn run_health_checks(server: Arc<UpstreamServer>, health: UpstreamHealthCheck) {
    let (mut good, mut bad) = (0, 0);
    loop {
        tokio::time::sleep(health.interval).await;
        let asking = probe(&server, &health.path);
        match tokio::time::timeout(health.timeout, asking).await.unwrap_or(false) {
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

/// Notes that a server could not be reached, and tries until it can. Where servers are asked anyway,
/// that finds out.
pub(super) fn mark_unreachable(server: &Arc<UpstreamServer>, is_watched: bool) {
    if update_health(server, false) && !is_watched {
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

/// Says so once.
fn update_health(server: &UpstreamServer, well: bool) -> bool {
    let news = server.set_healthy(well);
    match (news, well) {
        (true, true) => tracing::info!(server = %server.address, "upstream server healthy again"),
        (true, false) => tracing::warn!(
            server = %server.address,
            "upstream server unhealthy: it gets requests only while no other server is healthy"
        ),
        (false, _) => {}
    }
    news
}

async fn probe(server: &UpstreamServer, path: &str) -> bool {
    let request = Request::get(path)
        .header(HOST, server.host())
        .header(USER_AGENT, HEALTH_CHECK_AGENT)
        .body(UpstreamRequestBody::empty());
    let Ok(request) = request else { return false };
    let answered = server.send(&mut Some(request)).await;
    // Its body is not read, so the connection is closed with it.
    answered.is_ok_and(|answered| answered.response.status().as_u16() < 400)
}
