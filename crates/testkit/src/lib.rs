//! Test support for the other crates: an exact oracle of the five algorithms, random histories to
//! run against it, a minimal reference store, and (feature `servers`) real servers with fault
//! injection.
//!
//! Nothing here is part of the program. The oracle shares core's types (`Algorithm`, `Fit`,
//! `Gauge`), but none of its arithmetic.

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
