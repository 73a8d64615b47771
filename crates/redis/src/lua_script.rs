//! The Lua scripts, embedded as constant text.

use redis::Script;

/// Decides a batch of requests.
pub(crate) const DECIDE_SCRIPT: &str = include_str!("lua/decide.lua");

/// Records this node's heartbeat and counts the live nodes.
pub(crate) const NODES_SCRIPT: &str = include_str!("lua/nodes.lua");

/// Writes the marker of a region.
pub(crate) const REGION_MARKER_SCRIPT: &str = include_str!("lua/region_marker.lua");

/// Adds to what a region has lent.
pub(crate) const REGION_LOANS_SCRIPT: &str = include_str!("lua/region_loans.lua");

/// Prelude for tests. It replaces the server's clock by the time in the last argument, and lets
/// keys outlive the test; other tests check expiry on the real clock. The script's own text is
/// unchanged.
const TEST_CLOCK_PRELUDE: &str = include_str!("lua/rehearsal.lua");

/// A script and its SHA-1 hash for EVALSHA.
#[derive(Debug)]
pub(crate) struct LuaScript {
    pub(crate) text: String,
    pub(crate) sha: String,
}

impl LuaScript {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), sha: Script::new(text).get_hash().to_owned() }
    }

    /// The script with a test-controlled clock.
    pub(crate) fn with_test_clock(text: &str) -> Self {
        Self::new(&format!("{TEST_CLOCK_PRELUDE}{text}"))
    }
}
