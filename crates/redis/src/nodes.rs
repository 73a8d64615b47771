//! How nodes know of each other: each keeps a heartbeat in the store.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, cmd};
use tokio::time::Instant;

use crate::script::NODES;

/// How often a node says that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long a silent one counts; whoever asks must say the same, or forgets those who live.
const LIFETIME: Duration = Duration::from_secs(5);

/// The key that nodes are kept under.
pub(crate) fn key(prefix: &str) -> String {
    format!("{prefix}nodes")
}

/// Says that a node stays or leaves, and asks how many there are.
pub(crate) fn command(prefix: &str, id: &str, stays: bool) -> Cmd {
    let lifetime = u64::try_from(LIFETIME.as_micros()).unwrap_or(u64::MAX);
    let mut command = cmd("EVAL");
    command.arg(NODES).arg(1).arg(key(prefix)).arg(id).arg(lifetime).arg(u8::from(stays));
    command
}

/// The number of live nodes, as the heartbeats say.
///
/// A store that was gone has forgotten nodes that live: their heartbeats did not reach it, or it
/// lost its data. Until all of them had the time for another one, a smaller number is not believed.
#[derive(Debug)]
pub(crate) struct Members {
    count: AtomicU32,
    beats: Mutex<Beats>,
}

#[derive(Debug, Default)]
struct Beats {
    /// When a heartbeat was last answered.
    last: Option<Instant>,
    /// Until when a smaller number is not believed.
    doubted_until: Option<Instant>,
}

impl Default for Members {
    fn default() -> Self {
        Self { count: AtomicU32::new(1), beats: Mutex::default() }
    }
}

impl Members {
    /// How many there are, this node included.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// This node has left this number of others.
    pub(crate) fn left(&self, nodes: u32) {
        self.count.store(nodes.max(1), Ordering::Relaxed);
    }

    /// A heartbeat was answered with a number of nodes. `added` says that the store did not know of
    /// this node.
    pub(crate) fn counted(&self, nodes: u32, added: bool, now: Instant) {
        let mut beats = self.beats.lock();
        let missed = |last: Instant| now - last > 2 * HEARTBEAT;
        if beats.last.is_some_and(|last| added || missed(last)) {
            beats.doubted_until = Some(now + LIFETIME);
        }
        beats.last = Some(now);
        let doubted = beats.doubted_until.is_some_and(|until| now < until);
        let least = if doubted { self.count() } else { 1 };
        self.count.store(nodes.max(least), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that has just learned that there are three.
    fn three(now: Instant) -> Members {
        let members = Members::default();
        assert_eq!(members.count(), 1, "itself");
        members.counted(3, true, now);
        assert_eq!(members.count(), 3);
        members
    }

    #[tokio::test]
    async fn the_number_follows_the_store_up_and_down_while_heartbeats_are_answered() {
        let start = Instant::now();
        let members = three(start);
        for (beat, nodes) in [(1, 4), (2, 2), (3, 3)] {
            members.counted(nodes, false, start + HEARTBEAT * beat);
            assert_eq!(members.count(), nodes);
        }
    }

    #[tokio::test]
    async fn a_store_that_lost_its_data_or_was_gone_is_believed_when_all_nodes_had_time() {
        let start = Instant::now();
        let lost_data = (start + HEARTBEAT, true);
        let was_gone = (start + 3 * HEARTBEAT, false);
        for (back, added) in [lost_data, was_gone] {
            let members = three(start);
            members.counted(1, added, back);
            assert_eq!(members.count(), 3, "the others had no time for a heartbeat yet");
            let mut now = back;
            while now + HEARTBEAT < back + LIFETIME {
                now += HEARTBEAT;
                members.counted(2, false, now);
                assert_eq!(members.count(), 3);
            }
            members.counted(4, false, now);
            assert_eq!(members.count(), 4, "a larger number is believed at once");
            members.counted(2, false, back + LIFETIME);
            assert_eq!(members.count(), 2);
        }
    }
}
