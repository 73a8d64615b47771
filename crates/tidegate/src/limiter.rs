//! The limiter that programs use.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::store::complete_now;
use tidegate_core::time::Clock;
use tidegate_limiter::{Decision, Explanation};
use tidegate_memory::{MemoryStore, StoreUsage};
use tidegate_rules::{Facts, RuleSet};

use crate::builder::LimiterBuilder;
use crate::counter_store::CounterStore;
use crate::error::ReloadError;
use crate::lazy_sweep::LazySweep;
use crate::rule_source::{DocumentSource, RuleSource};

/// The limiter behind all clones, without the ownership of its background tasks.
type SharedEngine<S> = Arc<tidegate_limiter::Limiter<S, <S as CounterStore>::Local>>;

/// Decides requests. Clones share the counters and the rules.
///
/// `Limiter` keeps its counters in this process, so it can also decide synchronously
/// ([`check_now`](Self::check_now)). `Limiter<RedisStore>` shares them with other processes.
///
/// ```
/// use tidegate::{Facts, Limiter};
///
/// let limiter = Limiter::builder().limit("1/min by user_id").build()?;
/// let clone = limiter.clone();
/// let facts = Facts::from([("user_id", "ada")]);
/// assert!(limiter.check_now(&facts).is_allowed());
/// assert!(!clone.check_now(&facts).is_allowed());
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Limiter<S: CounterStore = MemoryStore> {
    shared: Arc<SharedState<S>>,
}

/// What all clones share.
#[derive(Debug)]
struct SharedState<S: CounterStore> {
    engine: SharedEngine<S>,
    source: Mutex<RuleSource>,
    sweep: LazySweep,
    /// Stopped when the last clone is dropped.
    _tasks: S::Tasks,
}

impl<S: CounterStore> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Limiter {
    /// Starts to build a limiter.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }
}

impl<S: CounterStore> Limiter<S> {
    pub(crate) fn assemble(
        engine: impl Into<SharedEngine<S>>,
        source: RuleSource,
        tasks: S::Tasks,
    ) -> Self {
        let (source, sweep) = (Mutex::new(source), LazySweep::default());
        let shared = SharedState { engine: engine.into(), source, sweep, _tasks: tasks };
        Self { shared: Arc::new(shared) }
    }

    /// Decides a request and charges one unit on every rule that matches it, or on none if a rule
    /// refuses it.
    ///
    /// It always returns a decision: if the store does not answer, each rule's `on_fail` applies.
    /// A rule with `queue: true` refuses a request that would have to wait, and
    /// [`Decision::retry_after`] is the wait.
    pub async fn check(&self, facts: &Facts<'_>) -> Decision {
        self.check_cost(facts, 1).await
    }

    /// Like [`check`](Self::check), for a request that counts as `cost` requests.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// let bytes = Limiter::builder().limit("1000000/min by ip").build()?;
    /// let facts = Facts::from([("ip", "192.0.2.7")]);
    /// assert_eq!(bytes.check_cost(&facts, 300_000).await.remaining(), Some(700_000));
    /// # Ok(()) }
    /// ```
    pub async fn check_cost(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        let decision = self.shared.engine.decide_no_queue(facts, cost).await;
        self.sweep_after(&decision);
        decision
    }

    /// What [`check`](Self::check) would return. Charges nothing.
    pub async fn peek(&self, facts: &Facts<'_>) -> Decision {
        self.shared.engine.peek_no_queue(facts, None, 1).await
    }

    /// Refunds what a decision charged and has not drained since, and frees its concurrency slots.
    /// Taking the decision by value ensures that this happens once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// // Only failed logins count.
    /// let logins = Limiter::builder().limit("5/min by user_id").build()?;
    /// let facts = Facts::from([("user_id", "ada")]);
    /// let decision = logins.check(&facts).await;
    /// let password_is_right = true;
    /// if password_is_right {
    ///     logins.refund(decision).await;
    /// }
    /// assert_eq!(logins.peek(&facts).await.remaining(), Some(5));
    /// # Ok(()) }
    /// ```
    pub async fn refund(&self, decision: Decision) {
        self.shared.engine.refund_decision(decision).await;
    }

    /// Corrects what a decision charged to the actual cost, once that is known. A shortfall is
    /// charged even if it exceeds the limit, into debt of at most one limit.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// let tokens = Limiter::builder().limit("40000/min by api_key").build()?;
    /// let facts = Facts::from([("api_key", "k-17")]);
    /// let reserved = tokens.check_cost(&facts, 4_000).await;
    /// // The model answers, and reports 1 200 tokens.
    /// tokens.settle(reserved, 1_200).await;
    /// assert_eq!(tokens.peek(&facts).await.remaining(), Some(38_800));
    /// # Ok(()) }
    /// ```
    pub async fn settle(&self, mut decision: Decision, actual_cost: u32) {
        if let Some(charge) = decision.take_charge(|_| true) {
            let actual = u64::from(actual_cost);
            self.shared
                .engine
                .settle_deferred(charge, |rule| Some(rule.cost().base().saturating_mul(actual)))
                .await;
        }
    }

    /// Frees the concurrency slots of a request that has ended. Its other charges stay. Slots that
    /// are never freed end after their rule's `hold` time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// let jobs = Limiter::builder()
    ///     .rules("rules: [{ id: at-once, key_by: global, limit: { concurrent: 1 } }]")
    ///     .build()?;
    /// let facts = Facts::new();
    /// let running = jobs.check(&facts).await;
    /// assert!(!jobs.check(&facts).await.is_allowed());
    /// jobs.release(running).await;
    /// assert!(jobs.check(&facts).await.is_allowed());
    /// # Ok(()) }
    /// ```
    pub async fn release(&self, mut decision: Decision) {
        if let Some(slots) = decision.take_slots() {
            self.shared.engine.release_slots(slots).await;
        }
    }

    /// Charges a cost that was not checked before, into debt of at most one limit if necessary.
    pub async fn force(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        self.shared.engine.force(facts, None, cost).await
    }

    /// Deletes the counters, warnings and bans of the client that these facts describe.
    pub async fn reset(&self, facts: &Facts<'_>) -> Decision {
        self.shared.engine.reset(facts, None).await
    }

    /// Explains which rules match a request, which counters they use, and which rule decides.
    /// Charges nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidegate::BuildError> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// let limiter = Limiter::builder().limit("5/min by ip").build()?;
    /// let explanation = limiter.explain(&Facts::from([("ip", "192.0.2.7")])).await;
    /// assert_eq!(explanation.rules.len(), 1);
    /// println!("{}", explanation.why);
    /// # Ok(()) }
    /// ```
    pub async fn explain(&self, facts: &Facts<'_>) -> Explanation {
        self.shared.engine.explain(facts, 1).await
    }

    /// Replaces the rules document. Limits from [`LimiterBuilder::limit`] stay. A rule that keeps
    /// its id, algorithm and window keeps its counters. If the document is invalid, the rules stay
    /// as they are.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate::{Facts, Limiter};
    ///
    /// let rules = "rules: [{ id: a, key_by: ip, limit: 5/min using fixed_window }]";
    /// let limiter = Limiter::builder().rules(rules).build()?;
    /// let facts = Facts::from([("ip", "192.0.2.7")]);
    /// limiter.check(&facts).await;
    /// limiter.reload(rules.replace("5/min", "9/min")).await?;
    /// assert_eq!(limiter.peek(&facts).await.remaining(), Some(8));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the rules cannot be used, or the store did not answer.
    pub async fn reload(&self, document: impl Into<String>) -> Result<(), ReloadError> {
        let document = DocumentSource::Text(document.into());
        self.replace_rules(|source| source.document = Some(document)).await
    }

    /// Like [`reload`](Self::reload), for a document in a file.
    ///
    /// # Errors
    /// If the rules cannot be used, or the store did not answer.
    pub async fn reload_file(&self, path: impl Into<PathBuf>) -> Result<(), ReloadError> {
        let document = DocumentSource::File(path.into());
        self.replace_rules(|source| source.document = Some(document)).await
    }

    /// Replaces the limits from [`LimiterBuilder::limit`]. A rules document stays.
    ///
    /// # Errors
    /// If the rules cannot be used, or the store did not answer.
    pub async fn reload_limits<L: Into<String>>(
        &self,
        limits: impl IntoIterator<Item = L>,
    ) -> Result<(), ReloadError> {
        let limits = limits.into_iter().map(Into::into).collect();
        self.replace_rules(|source| source.limits = limits).await
    }

    /// The active rules.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        self.shared.engine.rules()
    }

    /// The limiter of the crate `tidegate-limiter` behind all clones, for adapters such as
    /// `tidegate-tower`. It makes decisions under a given rule set, and reports them to observers.
    #[must_use]
    pub fn engine(&self) -> &Arc<tidegate_limiter::Limiter<S, S::Local>> {
        &self.shared.engine
    }

    /// Removes some expired counters if it is time. Adapters that use the
    /// [`engine`](Self::engine) call this after each decision.
    #[inline]
    pub fn sweep_after(&self, decision: &Decision) {
        if let Some(now) = decision.now() {
            self.shared.sweep.run_if_due(now, || self.shared.engine.store().sweep_step());
        }
    }

    async fn replace_rules(&self, change: impl FnOnce(&mut RuleSource)) -> Result<(), ReloadError> {
        let mut source = self.shared.source.lock().unwrap_or_else(PoisonError::into_inner).clone();
        change(&mut source);
        self.shared.engine.install(source.compile()?).await?;
        *self.shared.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
        Ok(())
    }
}

/// What counters in this process allow: decisions without `await`.
impl<C: Clock + Debug + 'static> Limiter<MemoryStore<C>> {
    /// Like [`check`](Self::check), without a runtime.
    #[inline]
    #[must_use]
    pub fn check_now(&self, facts: &Facts<'_>) -> Decision {
        self.check_cost_now(facts, 1)
    }

    /// Like [`check_cost`](Self::check_cost), without a runtime.
    #[inline]
    #[must_use]
    pub fn check_cost_now(&self, facts: &Facts<'_>, cost: u32) -> Decision {
        let decision = complete_now(self.shared.engine.decide_no_queue(facts, cost));
        self.sweep_after(&decision);
        decision
    }

    /// Like [`peek`](Self::peek), without a runtime.
    #[must_use]
    pub fn peek_now(&self, facts: &Facts<'_>) -> Decision {
        complete_now(self.peek(facts))
    }

    /// Like [`refund`](Self::refund), without a runtime.
    pub fn refund_now(&self, decision: Decision) {
        complete_now(self.refund(decision));
    }

    /// Like [`reload`](Self::reload), without a runtime.
    ///
    /// # Errors
    /// If the rules cannot be used.
    pub fn reload_now(&self, document: impl Into<String>) -> Result<(), ReloadError> {
        complete_now(self.reload(document))
    }

    /// The memory that the counters use, and how many there are.
    #[must_use]
    pub fn memory_usage(&self) -> StoreUsage {
        self.shared.engine.store().usage()
    }
}
