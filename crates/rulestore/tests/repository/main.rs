//! Tests of the repository's guarantees, on SQLite files and a PostgreSQL server.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod change_notifications;
mod common;
mod concurrent_writers;
mod direct_edits;
mod faults;
mod hostile_input;
mod nodes;
mod schema;
mod tls;
mod versions;
mod violations;
