//! A deterministic simulation of a fleet: the real limiter on N nodes, core as the store, clocks
//! that drift and step, and a network that delays and cuts. Everything follows from one seed.
//!
//! ```text
//!  streams ─▶ Node (Limiter, leases, local shares) ─▶ SimStore ─▶ network ─▶ StoreServer (core)
//!                 │ reports                                          ▲            │ ledger
//!                 ▼                                                  │            ▼
//!              Checker ◀───────────── true time ───────────────── faults       Checker
//! ```
//!
//! A run moves true time from event to event. At every admitted decision it checks, in true time
//! and exact integers: the rule's bound over every interval (see `bound.rs`), that a live grant
//! pays for each unit spent, that refunds never exceed charges, and that refused requests leave
//! nothing charged. Once faults stop, the fleet must return to full use.
//!
//! [`ObservedLedger`] checks the same bounds for real nodes, from their logs.
//!
//! Room is left for several stores (regions) and for write-behind: both need only more messages.

mod admission_ledger;
mod bound;
mod checker;
mod clock;
mod executor;
mod fault;
mod lease_ledger;
mod node;
mod observed_ledger;
mod random;
mod rule_spec;
mod scenario;
mod sim_store;
mod simulation;
mod store_server;
mod trace;
mod world;

pub use observed_ledger::{LeasedRule, ObservedAdmission, ObservedLedger};
pub use simulation::{RunOptions, RunSummary, run_seed};
pub use tidegate_limiter::SeededBug;
