//! Estimates what a fleet asks of its stores: calls, shards and memory, for each consistency mode.
//!
//! ```text
//!  keys, exponent ─▶ groups of keys with about the same rate
//!                       │ for each group: rate of one key at one node
//!                       ▼
//!                    exact: closed form      leased, async: the real limiter on a few nodes in
//!                       │                    virtual time, core as the store (see `fleet.rs`)
//!                       └────────┬───────────┘
//!                                ▼
//!                    × keys × nodes, summed ─▶ calls, shards, memory ─▶ table
//! ```
//!
//! The leased and asynchronous modes have no formula of their own here: a change of the limiter
//! changes the estimate. `docs/scale.md` describes the method and what it leaves out.

mod case;
mod estimate;
mod exact;
mod fleet;
mod key_groups;
mod options;
mod rule_text;
mod store_cost;
mod table;

pub use case::{LimitQuota, Mode, ScaleCase};
pub use estimate::{ModeEstimate, ScaleCheck, ScaleEstimate, StoreCalls};
pub use options::{SCALE_USAGE, ScaleRequest, parse_options};
pub use store_cost::StoreCost;
