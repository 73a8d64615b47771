//! The builder of a limiter that shares its counters in Redis.

use std::sync::Arc;
use std::time::Duration;

use tidegate_memory::{FastClock, MemoryStore};
use tidegate_redis::{DEFAULT_DEADLINE, DEFAULT_PREFIX, RedisAddress, RedisOptions, RedisStore};
use tidegate_redis::{RedisTlsConfig, StoreObserver};
use tokio::task::JoinSet;

use crate::error::BuildError;
use crate::limiter::Limiter;
use crate::node;
use crate::rule_source::RuleSource;

/// How long [`RedisLimiterBuilder::connect`] waits for the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Collects the settings of a [`Limiter`] whose counters are in Redis or Valkey, from
/// [`LimiterBuilder::redis`](crate::LimiterBuilder::redis).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
/// use tidegate::{Facts, Limiter};
///
/// let limiter = Limiter::builder()
///     .limit("1000/min by user_id")
///     .redis("redis://127.0.0.1/0")
///     .connect()
///     .await?;
/// assert!(limiter.check(&Facts::from([("user_id", "ada")])).await.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is connected or started"]
pub struct RedisLimiterBuilder {
    rules: RuleSource,
    memory_bytes: u64,
    clock: FastClock,
    url: String,
    tls: RedisTlsConfig,
    prefix: String,
    deadline: Duration,
    observer: StoreObserver,
}

impl RedisLimiterBuilder {
    pub(crate) fn new(rules: RuleSource, memory_bytes: u64, clock: FastClock, url: &str) -> Self {
        Self {
            rules,
            memory_bytes,
            clock,
            url: url.to_owned(),
            tls: RedisTlsConfig::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            deadline: DEFAULT_DEADLINE,
            observer: StoreObserver::new(|_| {}),
        }
    }

    /// Sets the TLS certificates for a `rediss://` URL.
    pub fn tls(mut self, tls: RedisTlsConfig) -> Self {
        self.tls = tls;
        self
    }

    /// Sets the prefix of the keys in Redis; `tg:` by default. Limiters with the same prefix and
    /// rules share their counters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Limits how long a decision waits for Redis; 5 ms by default. After that, each rule's
    /// `on_fail` decides.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Calls `observer` when a server is lost or recovers.
    pub fn observer(mut self, observer: StoreObserver) -> Self {
        self.observer = observer;
        self
    }

    /// Builds the limiter and waits until it is connected. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the rules or the URL cannot be used, or the server does not answer within a second.
    pub async fn connect(self) -> Result<Limiter<RedisStore>, BuildError> {
        let limiter = self.start()?;
        let store = limiter.engine().store();
        if store.wait_ready(CONNECT_TIMEOUT).await {
            return Ok(limiter);
        }
        let reason = store.unavailable_reason();
        Err(BuildError::RedisUnreachable { reason: reason.unwrap_or("no connection yet".into()) })
    }

    /// Like [`connect`](Self::connect), without waiting: until the limiter is connected, each
    /// rule's `on_fail` decides. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the rules or the URL cannot be used.
    pub fn start(self) -> Result<Limiter<RedisStore>, BuildError> {
        let rules = self.rules.compile()?;
        let address = RedisAddress::parse(&self.url).map_err(BuildError::RedisUrl)?;
        let store = RedisStore::start(&RedisOptions {
            tls: self.tls,
            prefix: self.prefix,
            deadline: self.deadline,
            observer: self.observer,
            ..RedisOptions::new(address)
        });
        let local = MemoryStore::with_clock(self.clock, self.memory_bytes);
        let engine = Arc::new(node::shared_limiter(store, local, rules));
        let mut tasks = JoinSet::new();
        node::spawn_tasks(&engine, |_, _| {}, &mut tasks);
        Ok(Limiter::assemble(engine, self.rules, tasks))
    }
}

impl Limiter<RedisStore> {
    /// Reports to Redis what this process admitted while Redis was down, and returns the units that
    /// it leased and did not spend. Call it before the process ends, with a timeout. Without it,
    /// unspent units stay charged until their rule's window has passed.
    pub async fn close(&self) {
        node::leave_fleet(self.engine()).await;
    }
}
