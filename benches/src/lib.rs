//! What the benchmarks share: key streams, rounds that interleave, memory readings, tables.

pub mod contender;
pub mod doors;
pub mod gateway;
pub mod load;
pub mod paced;
pub mod report;
pub mod rules;
