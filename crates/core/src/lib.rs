//! The rate-limiting model of Tidegate: time, quotas, algorithms, keys and decisions.
//!
//! Everything here is a pure, total function that depends only on `std`. Only [`time`] reads a
//! clock. Nothing in this crate does I/O, blocks or keeps counters: stores hold the
//! [`State`](algorithm::State)s and call [`batch::apply`] on them.
//!
//! ```
//! use tidegate_core::algorithm::Fit;
//! use tidegate_core::policy::{Algorithm, Policy};
//! use tidegate_core::quota::Quota;
//! use tidegate_core::time::{Micros, Timestamp};
//!
//! let quota = Quota::new(10, Micros::from_secs(1)).with_burst(2);
//! let policy = Policy::new(Algorithm::TokenBucket, quota)?;
//! let (mut state, now) = (None, Timestamp::from_micros(1_700_000_000_000_000));
//! policy.charge(&mut state, 2, now);
//! assert_eq!(policy.fit(state.as_ref(), 1, now), Fit::After(Micros::from_millis(100)));
//! # Ok::<(), tidegate_core::policy::PolicyError>(())
//! ```

pub mod algorithm;
pub mod batch;
pub mod decision;
pub mod hex;
pub mod key;
pub mod lending;
pub mod penalty;
pub mod policy;
pub mod quota;
pub mod scale;
pub mod store;
pub mod time;
