//! What every repository promises, on real SQLite files and a real PostgreSQL.

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
