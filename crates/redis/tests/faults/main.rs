//! Faults of real servers under load: everybody is answered, each rule's `on_fail` is kept to, nothing
//! is counted twice, and all is well again soon after.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

mod clock;
mod cluster;
mod line;
mod load;
mod node;
mod nodes;
mod refusal;
mod sentinel;
mod server;
mod start;
mod storm;
