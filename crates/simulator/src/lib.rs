//! A deterministic simulation of a fleet: the real limiter on N nodes, core as one or more stores,
//! clocks that drift and step, and a network that delays, loses, reorders and repeats messages.
//! Everything follows from one seed. One seed in four has several regions.
//!
//! ```text
//!  streams ─▶ Node (Limiter, leases, flushes, local shares) ─▶ SimStore ─▶ network ─▶ StoreServer
//!                 │ reports                                          ▲            │ ledger
//!                 ▼                                                  │            ▼
//!              Checker ◀───────────── true time ───────────────── faults       Checker
//! ```
//!
//! A run moves true time from event to event. At every admitted decision it checks, in true time
//! and exact integers: the rule's bound over every interval (see `bound.rs`), that a live grant
//! pays for each unit spent, that no flush is sent twice, that refunds never exceed charges, and
//! that refused requests leave nothing charged. Once faults stop, the fleet must return to full
//! use.
//!
//! [`ObservedLedger`] checks the same bounds for real nodes, from their logs. Without faults,
//! [`scale`] estimates what a fleet asks of its stores.
//!
//! Without regions, several stores share the counters like the servers of a cluster. With regions,
//! each has a store for its share of each limit, and its nodes borrow from the other stores. Each
//! store is checked against its share, and all of them against the sum (`regions/sum_bound.rs`).

mod admission_ledger;
mod bound;
mod checker;
mod clock;
mod executor;
mod fault;
mod lease_ledger;
mod link;
mod node;
mod observed_ledger;
mod random;
mod regions;
mod rule_spec;
pub mod scale;
mod scenario;
mod sim_store;
mod simulation;
mod store_server;
mod trace;
mod world;

pub use observed_ledger::{LeasedRule, ObservedAdmission, ObservedLedger};
pub use regions::RegionDemand;
pub use simulation::{
    FleetUse, RegionsUse, RunOptions, RunSummary, run_moving_regions, run_seed, run_skewed_fleet,
};
pub use tidegate_limiter::SeededBug;
