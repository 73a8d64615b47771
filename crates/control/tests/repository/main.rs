//! What every repository promises, on real SQLite files and a real PostgreSQL.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod books;
mod common;
mod direct_edits;
mod faults;
mod hostile;
mod nodes;
mod race;
mod schema;
mod stirred;
mod tls;
mod violations;
