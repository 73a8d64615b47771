//! The admin API as its callers meet it, in one process: a real SQLite file, counters in memory, and a clock that
//! the test moves.

#![allow(clippy::expect_used, reason = "the helpers of tests are tests")]

mod compare;
mod document;
mod editors;
mod faulty;
mod guard;
mod house;
mod lines;
mod live;
mod log;
mod meddler;
mod overrides;
mod read_only;
mod rules;
mod subjects;
mod top;
mod versions;
mod violations;
