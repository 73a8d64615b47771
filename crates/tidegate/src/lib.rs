//! An exact rate limiter inside a program.
//!
//! ```
//! use tidegate::{Facts, Limiter};
//!
//! let limiter = Limiter::builder().limit("2/min by ip").build()?;
//! let facts = Facts::from([("ip", "192.0.2.7")]);
//!
//! assert!(limiter.check_now(&facts).is_allowed());
//! assert!(limiter.check_now(&facts).is_allowed());
//! let refused = limiter.check_now(&facts);
//! assert!(!refused.is_allowed());
//! println!("retry after {:?}", refused.retry_after());
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! A **limiter** decides requests. A request is described by **facts**: names and values such as
//! `ip`, `user_id` or `path`. **Rules** say which requests count together, and how many may pass.
//! They come from a limit in one line, or from a rules document, the same one that the Tidegate
//! server reads. A request that matches several rules is charged on all of them, or on none.
//!
//! - Clones of a limiter share its counters: give one to each task or thread.
//! - Counters are kept in this process. Memory has a [budget](LimiterBuilder::memory_bytes), and no
//!   cleanup task is needed: decisions remove expired counters as they run.
//! - With the feature `redis`, [`LimiterBuilder::redis`] shares the counters of several processes.
//! - [`KeyedLimiter`] is the fastest form, for one limit by one key.
//! - [`Limiter::reload`] replaces the rules while requests are decided, and keeps the counters.
//!
//! A web service does not call the limiter itself: see `tidegate-tower`.

mod builder;
mod counter_store;
mod error;
mod keyed_limiter;
mod lazy_sweep;
mod limiter;
#[cfg(feature = "redis")]
pub mod node;
#[cfg(feature = "redis")]
mod redis_builder;
mod rule_source;

pub use builder::LimiterBuilder;
pub use counter_store::CounterStore;
pub use error::{BuildError, ReloadError, RulesError};
pub use keyed_limiter::KeyedLimiter;
pub use limiter::Limiter;
#[cfg(feature = "redis")]
pub use redis_builder::RedisLimiterBuilder;

pub use tidegate_core::decision::{Reading, Retry, Verdict};
pub use tidegate_core::time::{Clock, ManualClock, Micros, Timestamp};
pub use tidegate_limiter::{Decision, Explanation, RuleReading};
pub use tidegate_memory::{FastClock, MemoryStore, StoreUsage};
#[cfg(feature = "redis")]
pub use tidegate_redis::{RedisStore, RedisTlsConfig, StoreEvent, StoreObserver};
pub use tidegate_rules::diagnostic::DocumentError;
pub use tidegate_rules::{Facts, Rule, RuleSet};
