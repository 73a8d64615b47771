//! Who follows the same rules: each node says now and then which version it has in force, where all of them look.
//!
//! When a node was seen is by its own clock, so clocks that are far apart make nodes look silent.

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
    pub(crate) async fn check_in(&self, last: &mut Option<Node>) {
        let node = self.this_node();
        let is_known =
            |last: &Node| last.version == node.version && node.seen.since(last.seen) < EVERY;
        if last.as_ref().is_some_and(is_known) {
            return;
        }
        let forget = node.seen.minus(FORGOTTEN);
        if self.repository().check_in(&node, forget).await.is_ok() {
            *last = Some(node);
        }
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
