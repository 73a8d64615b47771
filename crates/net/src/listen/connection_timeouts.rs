//! Detects idle and stalled connections, so that they can be closed.

use std::time::Duration;

use super::Settings;
use super::connection_activity::{ConnectionActivity, ConnectionPhase};
use super::stalled_streams::{StallSnapshot, StreamTracker};

/// Returns when a connection has been in the same phase for too long. It samples the phase
/// periodically, which is cheaper than a timer per request.
pub(super) async fn wait_for_timeout(
    activity: &ConnectionActivity,
    streams: Option<&StreamTracker>,
    settings: &Settings,
) {
    let Settings { header_timeout, idle_timeout, send_timeout, .. } = *settings;
    let shortest = header_timeout.min(idle_timeout).min(send_timeout);
    let step = (shortest / 2).max(Duration::from_millis(10));
    let (mut phase, mut elapsed) = (activity.phase(), Duration::ZERO);
    let mut stalls = StallSnapshot::default();
    loop {
        tokio::time::sleep(step).await;
        if streams.is_some_and(|streams| streams.longest_stall(&mut stalls, step) >= send_timeout) {
            return;
        }
        let now = activity.phase();
        elapsed = if now == phase { elapsed + step } else { Duration::ZERO };
        phase = now;
        let limit = match phase {
            ConnectionPhase::ReadingHead { .. } => header_timeout,
            ConnectionPhase::Idle { .. } => idle_timeout,
            ConnectionPhase::Blocked { .. } => send_timeout,
            // The handler has its own deadlines, also for a request body that never arrives.
            ConnectionPhase::Responding => continue,
        };
        if elapsed >= limit {
            return;
        }
    }
}
