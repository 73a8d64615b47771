//! Code shared by the benchmarks: contenders, load generators, measurements and tables.

pub mod apis;
pub mod contender;
pub mod demand;
pub mod fleet;
pub mod gateway;
pub mod load;
pub mod middleware;
pub mod paced;
pub mod regions;
pub mod report;
pub mod rounds;
pub mod rules;
