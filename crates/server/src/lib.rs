//! The daemon as a library: configuration, stores, listeners, reload, handover and signals.
//!
//! Apart from `cli`, this is the only crate that names a concrete store, reads clocks, or uses
//! files, signals and the environment. Rate-limit decisions are made in other crates.

pub mod args;
pub mod clock;
pub mod config;
mod decision_log;
pub mod error;
mod file_watcher;
mod live_status;
pub mod missing_facts;
mod node;
mod outcome;
pub mod output;
mod process_metrics;
pub mod regions;
mod reload;
mod rule_changes;
pub mod rule_manager;
pub mod rule_source;
pub mod serve;
mod snapshot;
pub mod store;
mod store_calls;
mod telemetry;

pub use outcome::CommandOutcome;
