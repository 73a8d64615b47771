//! Faults of real servers under load. Every request is answered, each rule follows its `on_fail`,
//! nothing is counted twice, and the node recovers soon after the server.

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
