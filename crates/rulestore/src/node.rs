//! Fleet membership: each node regularly reports its active rules version to the repository.
//!
//! Heartbeats carry the sending node's clock, so nodes with very different clocks look silent.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_web::date::format_rfc3339;

use crate::rule_manager::RuleManager;

/// Heartbeat interval while the version does not change.
const HEARTBEAT_INTERVAL: Micros = Micros::from_secs(5);

/// A node without a heartbeat for this long is reported as silent.
const SILENT_AFTER: Micros = Micros::from_secs(15);

/// A node without a heartbeat for this long is removed.
const FORGET_AFTER: Micros = Micros::from_secs(3_600);

/// Timeout for removing this node at shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A node of the fleet, as of its last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// Its name, unique in the fleet.
    pub name: String,
    /// The active rules version.
    pub version: u64,
    /// Time of the heartbeat.
    pub last_seen: Timestamp,
}

impl RuleManager {
    /// This node's current state.
    fn this_node(&self) -> FleetNode {
        let (name, version) = (self.node().to_owned(), self.config().version());
        FleetNode { name, version, last_seen: self.now() }
    }

    /// Sends a heartbeat if the active version changed or the last heartbeat is too old.
    ///
    /// `last` is the previous heartbeat. A failed heartbeat is not logged here; the sync loop
    /// already reports that the database is unreachable. Returns whether a heartbeat was sent.
    pub(crate) async fn send_heartbeat(&self, last: &mut Option<FleetNode>) -> bool {
        let node = self.this_node();
        let is_known = |last: &FleetNode| {
            last.version == node.version
                && node.last_seen.since(last.last_seen) < HEARTBEAT_INTERVAL
        };
        if last.as_ref().is_some_and(is_known) {
            return false;
        }
        let forget = node.last_seen.minus(FORGET_AFTER);
        let sent = self.repository().record_heartbeat(&node, forget).await.is_ok();
        if sent {
            *last = Some(node);
        }
        sent
    }

    /// Removes this node from the fleet.
    pub async fn deregister_node(&self) {
        // If this fails, other nodes soon see this one as silent; shutdown does not wait for it.
        let _ =
            tokio::time::timeout(LEAVE_TIMEOUT, self.repository().remove_node(self.node())).await;
    }

    /// All nodes by name, as JSON: this one with its current state, others as last recorded.
    /// `latest` is the version that all nodes should have.
    pub async fn node_views(&self, latest: Option<u64>) -> Vec<Json> {
        let here = self.this_node();
        let mut nodes = self.repository().nodes().await.unwrap_or_default();
        nodes.retain(|node| node.name != here.name);
        nodes.push(here.clone());
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.iter().map(|node| node.view(&here, latest)).collect()
    }
}

/// The other nodes that were alive at the last update.
#[derive(Debug, Default)]
pub(crate) struct NodeRoster {
    /// Their names; `None` before the first update, which reports no changes.
    names: Option<BTreeSet<String>>,
}

/// A node that joined or left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeChange {
    pub(crate) name: String,
    /// `None` if it joined; otherwise whether it left without deregistering.
    pub(crate) left_silently: Option<bool>,
}

impl NodeRoster {
    /// The changes since the last update, as of `now`. `here` is this node's name.
    pub(crate) fn update(
        &mut self,
        nodes: &[FleetNode],
        here: &str,
        now: Timestamp,
    ) -> Vec<NodeChange> {
        let others = nodes.iter().filter(|node| node.name != here);
        let alive = others.filter(|node| now.since(node.last_seen) <= SILENT_AFTER);
        let alive: BTreeSet<String> = alive.map(|node| node.name.clone()).collect();
        let Some(before) = self.names.replace(alive.clone()) else { return Vec::new() };
        let joined = alive.difference(&before).map(|name| (name, None));
        let left = before.difference(&alive).map(|name| {
            let is_on_record = nodes.iter().any(|node| node.name == *name);
            (name, Some(is_on_record))
        });
        let change =
            |(name, left): (&String, _)| NodeChange { name: name.clone(), left_silently: left };
        joined.chain(left).map(change).collect()
    }
}

impl FleetNode {
    fn view(&self, here: &Self, latest: Option<u64>) -> Json {
        json!({
            "name": self.name,
            "version": self.version,
            "seen": format_rfc3339(self.last_seen.as_micros() / 1_000_000),
            "behind": latest.is_some_and(|latest| self.version < latest),
            "silent": here.last_seen.since(self.last_seen) > SILENT_AFTER,
            "here": self.name == here.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, second: u64) -> FleetNode {
        FleetNode {
            name: name.to_owned(),
            version: 1,
            last_seen: Timestamp::from_micros(second * 1_000_000),
        }
    }

    #[test]
    fn node_changes_are_reported_once() {
        let mut roster = NodeRoster::default();
        let mut look = |nodes: &[(&str, u64)], second: u64| {
            let nodes: Vec<FleetNode> = nodes.iter().map(|(name, at)| node(name, *at)).collect();
            let changes = roster.update(&nodes, "here", node("", second).last_seen);
            changes
                .into_iter()
                .map(|change| (change.name, change.left_silently))
                .collect::<Vec<_>>()
        };
        let expected = |name: &str, left| vec![(name.to_owned(), left)];
        assert_eq!(
            look(&[("here", 100), ("a", 100)], 100),
            [],
            "nodes present at the first update"
        );
        assert_eq!(look(&[("here", 105), ("a", 105), ("b", 104)], 105), expected("b", None));
        assert_eq!(look(&[("here", 110), ("a", 110), ("b", 104)], 110), []);
        assert_eq!(look(&[("here", 121), ("a", 121), ("b", 104)], 121), expected("b", Some(true)));
        assert_eq!(look(&[("here", 126), ("a", 126), ("b", 104)], 126), []);
        assert_eq!(look(&[("here", 130), ("a", 126), ("b", 130)], 130), expected("b", None));
        assert_eq!(look(&[("here", 135), ("b", 135)], 135), expected("a", Some(false)));
    }
}
