//! The builder of a limiter.

use std::fmt::Debug;
use std::path::PathBuf;

use tidegate_core::key::Secret;
use tidegate_core::time::Clock;
use tidegate_memory::{DEFAULT_MAX_BYTES, FastClock, MemoryStore};

use crate::error::BuildError;
use crate::keyed_limiter::KeyedLimiter;
use crate::limiter::Limiter;
use crate::rule_source::{DocumentSource, RuleSource};

/// Collects the rules and settings of a [`Limiter`].
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder()
///     .limit("100/min by ip burst 20")
///     .limit("5000/h by user_id")
///     .memory_bytes(16 << 20)
///     .build()?;
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<C = FastClock> {
    rules: RuleSource,
    secret: Option<Secret>,
    memory_bytes: u64,
    clock: C,
}

impl LimiterBuilder {
    pub(crate) fn new() -> Self {
        Self {
            rules: RuleSource::default(),
            secret: None,
            memory_bytes: DEFAULT_MAX_BYTES,
            clock: FastClock::new(),
        }
    }

    /// Shares the counters of several processes in Redis or Valkey. The URL is `redis://HOST`,
    /// `rediss://HOST` (TLS), `unix:///PATH`, `redis+sentinel://H1,H2,H3/MASTER` or
    /// `redis+cluster://H1,H2,H3`.
    #[cfg(feature = "redis")]
    pub fn redis(self, url: &str) -> crate::RedisLimiterBuilder {
        let secret = self.secret.unwrap_or(Secret::UNSET);
        let rules = RuleSource { secret, ..self.rules };
        crate::RedisLimiterBuilder::new(rules, self.memory_bytes, self.clock, url)
    }
}

impl<C: Clock + Debug + 'static> LimiterBuilder<C> {
    /// Adds the rules of a document in YAML or JSON. A later call replaces it.
    ///
    /// ```
    /// use tidegate::{Facts, Limiter};
    ///
    /// let limiter = Limiter::builder()
    ///     .rules(
    ///         "
    ///         rules:
    ///           - { id: free, match: { tier: free }, key_by: user_id, limit: 1/min }
    ///           - { id: paid, match: { tier: paid }, key_by: user_id, limit: 100/min burst 20 }
    ///         ",
    ///     )
    ///     .build()?;
    /// let paid = Facts::from([("tier", "paid"), ("user_id", "ada")]);
    /// assert_eq!(limiter.check_now(&paid).limit(), Some(20));
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn rules(mut self, document: impl Into<String>) -> Self {
        self.rules.document = Some(DocumentSource::Text(document.into()));
        self
    }

    /// Adds the rules of a file. Paths in the document are relative to its folder.
    /// [`Limiter::reload_file`] reads it again.
    pub fn rules_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.rules.document = Some(DocumentSource::File(path.into()));
        self
    }

    /// Adds a limit in one line: `N/WINDOW [by KEY] [burst B] [using ALGORITHM]`, by `ip` unless
    /// it names another key. Each limit is a rule of its own, and a request must fit all of them.
    pub fn limit(mut self, limit: impl Into<String>) -> Self {
        self.rules.limits.push(limit.into());
        self
    }

    /// Declares facts that the program supplies besides the usual ones (`ip`, `method`, `path`,
    /// `host`, `user_id`, `api_key`, `tier`). A rule on an undeclared fact is an error, because a
    /// misspelt name would limit nothing.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// assert!(Limiter::builder().limit("10/s by tenant").build().is_err());
    /// assert!(Limiter::builder().limit("10/s by tenant").facts(["tenant"]).build().is_ok());
    /// ```
    pub fn facts<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.rules.declared.facts.extend(names.into_iter().map(Into::into));
        self
    }

    /// Limits the memory of the counters; 256 MiB by default. When it is used up, new keys share
    /// counters, and existing counters are kept.
    pub const fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Sets the secret that hashes keys. Limiters that share counters need the same one. Without
    /// it, counters in this process have a random secret, and counters in Redis a public constant.
    pub fn key_secret(mut self, secret: &[u8]) -> Self {
        self.secret = Some(Secret::from_bytes(secret));
        self
    }

    /// Replaces the clock, for tests.
    ///
    /// ```
    /// use tidegate::{Facts, Limiter, ManualClock, Micros, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000));
    /// let limiter = Limiter::builder().limit("1/min by ip").clock(clock.clone()).build()?;
    /// let facts = Facts::from([("ip", "192.0.2.7")]);
    /// assert!(limiter.check_now(&facts).is_allowed());
    /// assert!(!limiter.check_now(&facts).is_allowed());
    /// clock.advance(Micros::from_secs(60));
    /// assert!(limiter.check_now(&facts).is_allowed());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn clock<D: Clock + Debug + 'static>(self, clock: D) -> LimiterBuilder<D> {
        let Self { rules, secret, memory_bytes, .. } = self;
        LimiterBuilder { rules, secret, memory_bytes, clock }
    }

    /// Builds a limiter that keeps its counters in this process.
    ///
    /// # Errors
    /// If the rules cannot be used.
    pub fn build(self) -> Result<Limiter<MemoryStore<C>>, BuildError> {
        // The keys stay in this process, where a random secret allows a faster hash.
        let secret = self.secret.unwrap_or_else(Secret::random);
        let source = RuleSource { secret, ..self.rules };
        let store = MemoryStore::with_clock(self.clock, self.memory_bytes);
        let engine = tidegate_limiter::Limiter::new(store, source.compile()?);
        Ok(Limiter::assemble(engine, source, ()))
    }

    /// Builds the fastest limiter for a single [`limit`](Self::limit) by a single key, for instance
    /// `5/min` or `5/min by api_key`. The program passes the value of the key.
    ///
    /// ```
    /// use tidegate::Limiter;
    ///
    /// let limiter = Limiter::builder().limit("5/min").memory_bytes(16 << 20).build_keyed()?;
    /// assert!(limiter.check_now("192.0.2.7").is_allowed());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If the limit cannot be used, or there are other rules.
    pub fn build_keyed(self) -> Result<KeyedLimiter<C>, BuildError> {
        if self.rules.document.is_some() {
            return Err(BuildError::NotOneKey);
        }
        let secret = self.secret.unwrap_or_else(Secret::random);
        let source = RuleSource { secret, ..self.rules };
        let store = MemoryStore::with_clock(self.clock, self.memory_bytes);
        KeyedLimiter::with_rules(&source.compile()?, secret, store)
    }
}
