//! The scripts, as constant text.

use redis::Script;

/// Decides a batch of requests.
pub(crate) const DECIDE: &str = include_str!("lua/decide.lua");

/// Tells that this node is alive, and how many are.
pub(crate) const NODES: &str = include_str!("lua/nodes.lua");

/// Put before a script, it hands it the instant of the last argument for the server's clock, and lets
/// keys outlive the test: how they expire is proved on the real clock. The script's own text stays.
const REHEARSAL: &str = include_str!("lua/rehearsal.lua");

/// A script with the name that EVALSHA calls it by.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) sha: String,
}

impl Text {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), sha: Script::new(text).get_hash().to_owned() }
    }

    /// The script on a clock that the test holds.
    pub(crate) fn rehearsed(text: &str) -> Self {
        Self::new(&format!("{REHEARSAL}{text}"))
    }
}
