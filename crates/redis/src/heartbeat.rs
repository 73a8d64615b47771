//! Node membership: each node keeps a heartbeat in the store.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, cmd};
use tokio::time::Instant;

use crate::lua_script::NODES_SCRIPT;

/// Interval between heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a silent node counts as alive. All nodes must use the same value, or they remove live
/// nodes.
const NODE_LIFETIME: Duration = Duration::from_secs(5);

/// The key of the sorted set of nodes.
pub(crate) fn nodes_key(prefix: &str) -> String {
    format!("{prefix}nodes")
}

/// The command that records a heartbeat or removes a node, and returns the number of live nodes.
pub(crate) fn heartbeat_command(prefix: &str, id: &str, stays: bool) -> Cmd {
    let lifetime = u64::try_from(NODE_LIFETIME.as_micros()).unwrap_or(u64::MAX);
    let mut command = cmd("EVAL");
    command
        .arg(NODES_SCRIPT)
        .arg(1)
        .arg(nodes_key(prefix))
        .arg(id)
        .arg(lifetime)
        .arg(u8::from(stays));
    command
}

/// The number of live nodes, according to their heartbeats.
///
/// After an outage the store has lost track of live nodes: their heartbeats did not reach it, or it
/// lost its data. A lower count is ignored until all of them had time to send a heartbeat.
#[derive(Debug)]
pub(crate) struct NodeMembership {
    count: AtomicU32,
    heartbeats: Mutex<HeartbeatState>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    /// When a heartbeat was last answered.
    last_answered: Option<Instant>,
    /// Until when a lower count is ignored.
    hold_count_until: Option<Instant>,
}

impl Default for NodeMembership {
    fn default() -> Self {
        Self { count: AtomicU32::new(1), heartbeats: Mutex::default() }
    }
}

impl NodeMembership {
    /// The number of live nodes, including this one.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Records that this node has left, and how many nodes remain.
    pub(crate) fn record_leave(&self, nodes: u32) {
        self.count.store(nodes.max(1), Ordering::Relaxed);
    }

    /// Records an answered heartbeat and the number of nodes. `added` means that the store did not
    /// know this node.
    pub(crate) fn record_heartbeat(&self, nodes: u32, added: bool, now: Instant) {
        let mut heartbeats = self.heartbeats.lock();
        let missed = |last: Instant| now - last > 2 * HEARTBEAT_INTERVAL;
        if heartbeats.last_answered.is_some_and(|last| added || missed(last)) {
            heartbeats.hold_count_until = Some(now + NODE_LIFETIME);
        }
        heartbeats.last_answered = Some(now);
        let holding = heartbeats.hold_count_until.is_some_and(|until| now < until);
        let least = if holding { self.count() } else { 1 };
        self.count.store(nodes.max(least), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that has just learned that there are three nodes.
    fn membership_of_three(now: Instant) -> NodeMembership {
        let members = NodeMembership::default();
        assert_eq!(members.count(), 1, "only itself");
        members.record_heartbeat(3, true, now);
        assert_eq!(members.count(), 3);
        members
    }

    #[tokio::test]
    async fn node_count_follows_answered_heartbeats() {
        let start = Instant::now();
        let members = membership_of_three(start);
        for (beat, nodes) in [(1, 4), (2, 2), (3, 3)] {
            members.record_heartbeat(nodes, false, start + HEARTBEAT_INTERVAL * beat);
            assert_eq!(members.count(), nodes);
        }
    }

    #[tokio::test]
    async fn node_count_drop_is_delayed_after_outage() {
        let start = Instant::now();
        let lost_data = (start + HEARTBEAT_INTERVAL, true);
        let was_down = (start + 3 * HEARTBEAT_INTERVAL, false);
        for (back, added) in [lost_data, was_down] {
            let members = membership_of_three(start);
            members.record_heartbeat(1, added, back);
            assert_eq!(members.count(), 3, "the other nodes had no time for a heartbeat yet");
            let mut now = back;
            while now + HEARTBEAT_INTERVAL < back + NODE_LIFETIME {
                now += HEARTBEAT_INTERVAL;
                members.record_heartbeat(2, false, now);
                assert_eq!(members.count(), 3);
            }
            members.record_heartbeat(4, false, now);
            assert_eq!(members.count(), 4, "a higher count takes effect at once");
            members.record_heartbeat(2, false, back + NODE_LIFETIME);
            assert_eq!(members.count(), 2);
        }
    }
}
