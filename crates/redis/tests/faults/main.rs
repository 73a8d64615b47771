//! Faults of real servers under load: everybody is answered, each rule's `on_fail` is kept to, nothing
//! is counted twice, and all is well again soon after.

#![expect(clippy::expect_used, reason = "a test that cannot go on ends")]

mod clock;
mod cluster;
mod error_replies;
mod heartbeat;
mod load;
mod network;
mod node;
mod overload;
mod sentinel;
mod server;
mod startup;
