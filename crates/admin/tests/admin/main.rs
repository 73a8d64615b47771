//! Tests of the admin API in one process, with a SQLite file, counters in memory and a manual
//! clock.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod compare;
mod concurrent_edits;
mod conflicting_repository;
mod document;
mod faulty_repository;
mod fixture;
mod guard;
mod log_lines;
mod overrides;
mod read_only;
mod rules;
mod sse_feed;
mod subjects;
mod top_keys;
mod versions;
mod violation_log;
mod violations;
