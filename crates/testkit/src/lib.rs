//! What the other crates are proved with: an exact oracle of the five algorithms, histories to run
//! through both, the simplest table of states there is, and (feature `servers`) real servers with
//! the faults that befall them.
//!
//! Nothing here is part of the program. The oracle shares core's vocabulary (`Algorithm`, `Fit`,
//! `Gauge`) and none of its arithmetic.

pub mod admission_bound;
pub mod ban_oracle;
pub mod byte_mutation;
#[cfg(feature = "servers")]
pub mod certificates;
pub mod conformance;
#[cfg(feature = "servers")]
pub mod envoy;
pub mod history;
#[cfg(feature = "servers")]
pub mod nginx;
pub mod oracle;
#[cfg(feature = "servers")]
pub mod port;
#[cfg(feature = "servers")]
pub mod postgres;
#[cfg(feature = "servers")]
pub mod process;
pub mod property;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod python;
pub mod quotas;
#[cfg(feature = "servers")]
pub mod redis;
pub mod state_table;
#[cfg(feature = "servers")]
pub mod tmux;
