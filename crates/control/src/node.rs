//! Who follows the same rules: each node says now and then which version it has in force, where all of them look.
//!
//! When a node was seen is by its own clock, so clocks that are far apart make nodes look silent.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tidegate_core::time::{Micros, Timestamp};
use tidegate_edge::date::rfc3339;

use crate::office::Office;

/// How often a node says it, if nothing changes.
const EVERY: Micros = Micros::from_secs(5);

/// A node that says nothing for so long may be gone.
const SILENT: Micros = Micros::from_secs(15);

/// From then on it is not on record any more.
const FORGOTTEN: Micros = Micros::from_secs(3_600);

/// How long it may take to say that a node is no more.
const FAREWELL: Duration = Duration::from_secs(1);

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is called; no other has this name.
    pub name: String,
    /// The version that it has in force.
    pub version: u64,
    /// When it said so.
    pub seen: Timestamp,
}

impl Office {
    /// This node as it is.
    fn this_node(&self) -> Node {
        let (name, version) = (self.node().to_owned(), self.book().version());
        Node { name, version, seen: self.now() }
    }

    /// Says which version is in force here, when it is another than last time or that was long ago. `last` is what
    /// was said then. Where that cannot be said nobody is told: whoever follows the rules tells that they are gone.
    /// Returns whether it was said.
    pub(crate) async fn check_in(&self, last: &mut Option<Node>) -> bool {
        let node = self.this_node();
        let is_known =
            |last: &Node| last.version == node.version && node.seen.since(last.seen) < EVERY;
        if last.as_ref().is_some_and(is_known) {
            return false;
        }
        let forget = node.seen.minus(FORGOTTEN);
        let is_said = self.repository().check_in(&node, forget).await.is_ok();
        if is_said {
            *last = Some(node);
        }
        is_said
    }

    /// Says that this node is no more.
    pub async fn leave(&self) {
        // Where that cannot be said, it is silent soon; nobody waits for it.
        let _ = tokio::time::timeout(FAREWELL, self.repository().leave(self.node())).await;
    }

    /// All nodes by name, as they are told: this one as it is, others as they were on record. `latest` is the
    /// version that all should have.
    pub(crate) async fn nodes(&self, latest: Option<u64>) -> Vec<Json> {
        let here = self.this_node();
        let mut nodes = self.repository().nodes().await.unwrap_or_default();
        nodes.retain(|node| node.name != here.name);
        nodes.push(here.clone());
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes.iter().map(|node| node.view(&here, latest)).collect()
    }
}

/// The other nodes that were there at the last look.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// Their names; `None` before the first look, which reports no changes.
    names: Option<BTreeSet<String>>,
}

/// A node that joined or left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeChange {
    pub(crate) name: String,
    /// `None` if it joined; else whether it only stopped reporting.
    pub(crate) left: Option<bool>,
}

impl Roster {
    /// What changed since the last look, as of `now`. `here` is the node that looks.
    pub(crate) fn update(&mut self, nodes: &[Node], here: &str, now: Timestamp) -> Vec<NodeChange> {
        let others = nodes.iter().filter(|node| node.name != here);
        let alive = others.filter(|node| now.since(node.seen) <= SILENT);
        let alive: BTreeSet<String> = alive.map(|node| node.name.clone()).collect();
        let Some(before) = self.names.replace(alive.clone()) else { return Vec::new() };
        let joined = alive.difference(&before).map(|name| (name, None));
        let left = before.difference(&alive).map(|name| {
            let is_on_record = nodes.iter().any(|node| node.name == *name);
            (name, Some(is_on_record))
        });
        let change = |(name, left): (&String, _)| NodeChange { name: name.clone(), left };
        joined.chain(left).map(change).collect()
    }
}

impl Node {
    fn view(&self, here: &Self, latest: Option<u64>) -> Json {
        json!({
            "name": self.name,
            "version": self.version,
            "seen": rfc3339(self.seen.as_micros() / 1_000_000),
            "behind": latest.is_some_and(|latest| self.version < latest),
            "silent": here.seen.since(self.seen) > SILENT,
            "here": self.name == here.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, second: u64) -> Node {
        Node { name: name.to_owned(), version: 1, seen: Timestamp::from_micros(second * 1_000_000) }
    }

    #[test]
    fn nodes_that_join_leave_and_fall_silent_are_reported_once() {
        let mut roster = Roster::default();
        let mut look = |nodes: &[(&str, u64)], second: u64| {
            let nodes: Vec<Node> = nodes.iter().map(|(name, at)| node(name, *at)).collect();
            let changes = roster.update(&nodes, "here", node("", second).seen);
            changes.into_iter().map(|change| (change.name, change.left)).collect::<Vec<_>>()
        };
        let told = |name: &str, left| vec![(name.to_owned(), left)];
        assert_eq!(look(&[("here", 100), ("a", 100)], 100), [], "those that are there already");
        assert_eq!(look(&[("here", 105), ("a", 105), ("b", 104)], 105), told("b", None));
        assert_eq!(look(&[("here", 110), ("a", 110), ("b", 104)], 110), []);
        assert_eq!(look(&[("here", 121), ("a", 121), ("b", 104)], 121), told("b", Some(true)));
        assert_eq!(look(&[("here", 126), ("a", 126), ("b", 104)], 126), []);
        assert_eq!(look(&[("here", 130), ("a", 126), ("b", 130)], 130), told("b", None));
        assert_eq!(look(&[("here", 135), ("b", 135)], 135), told("a", Some(false)));
    }
}
