//! The layer: the limiter and how requests and responses are treated.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use http::{Extensions, request, response};
use tidegate::{CounterStore, Facts, Limiter, MemoryStore, Rule};
use tidegate_identity::extractor_cache::ExtractorCache;
use tidegate_response::{DelayQueue, HeaderSettings};
use tower_layer::Layer;

use crate::error::LayerError;
use crate::peer_address::PeerAddress;
use crate::service::RateLimit;

/// The most requests that wait in rules with `queue: true` at a time, by default.
const MAX_WAITING: usize = 10_000;

type PeerSource = dyn Fn(&Extensions) -> Option<PeerAddress> + Send + Sync;
type FactSource = dyn for<'r> Fn(&'r request::Parts, &mut Facts<'r>) + Send + Sync;
type RefundCondition = dyn Fn(&Rule, &response::Parts) -> bool + Send + Sync;

/// Limits the requests of a service.
///
/// The rules of the limiter say what a request is limited by, and their `identity` section says
/// where the facts are in a request. Put the layer around a whole service, and let the rules
/// distinguish routes, methods and tiers:
///
/// ```
/// use axum::{Router, routing::get};
/// use tidegate::Limiter;
/// use tidegate_tower::RateLimitLayer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .rules(
///         r#"
///         identity:
///           ip: { trusted_proxies: [10.0.0.0/8] }
///           api_key: { header: x-api-key }
///         rules:
///           - { id: reads, match: { method: GET }, key_by: api_key, limit: 100/s }
///           - { id: search, match: { path: /search }, key_by: api_key, limit: 5/s }
///           - { id: by-address, key_by: ip, limit: 1000/min }
///         "#,
///     )
///     .build()?;
/// let app: Router = Router::new()
///     .route("/search", get(|| async { "found" }))
///     .layer(RateLimitLayer::new(limiter)?);
/// # Ok(()) }
/// ```
///
/// All services from one layer, all their clones, and all layers of clones of one limiter share the
/// counters.
pub struct RateLimitLayer<S: CounterStore = MemoryStore> {
    state: Arc<LayerState<S>>,
}

/// What all services of a layer share.
pub(crate) struct LayerState<S: CounterStore> {
    pub(crate) limiter: Limiter<S>,
    pub(crate) extractors: Arc<ExtractorCache>,
    pub(crate) delay_queue: Arc<DelayQueue>,
    /// Whether the log says that requests have no peer address.
    pub(crate) reported_missing_peer: Arc<AtomicBool>,
    /// The serial of the rules whose facts were checked last.
    pub(crate) checked_rules: Arc<AtomicU64>,
    pub(crate) headers: HeaderSettings,
    pub(crate) peer_source: Option<Arc<PeerSource>>,
    pub(crate) fact_source: Option<Arc<FactSource>>,
    pub(crate) refund_conditions: Vec<Arc<RefundCondition>>,
}

impl<S: CounterStore> RateLimitLayer<S> {
    /// A layer that enforces the rules of `limiter`.
    ///
    /// # Errors
    /// If a rule uses a fact that no request has, or the `identity` section cannot be used. The
    /// error says which line to add.
    pub fn new(limiter: Limiter<S>) -> Result<Self, LayerError> {
        let rules = limiter.rules();
        LayerError::check_facts(&rules)?;
        // This process has no drain that could end the wait of queued requests.
        let delay_queue = DelayQueue::new(MAX_WAITING, Arc::default(), Duration::ZERO);
        let state = LayerState {
            extractors: Arc::new(ExtractorCache::with_rules(&rules)?),
            limiter,
            delay_queue: Arc::new(delay_queue),
            reported_missing_peer: Arc::default(),
            checked_rules: Arc::new(AtomicU64::new(rules.serial())),
            headers: HeaderSettings::default(),
            peer_source: None,
            fact_source: None,
            refund_conditions: Vec::new(),
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Sets which headers are written, and how.
    #[must_use]
    pub fn headers(mut self, headers: HeaderSettings) -> Self {
        self.state_mut().headers = headers;
        self
    }

    /// Reads the peer's address from another extension than those that [`PeerAddress`] names.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate_tower::RateLimitLayer;
    /// # #[derive(Clone)] struct MyConnection { address: std::net::SocketAddr }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().limit("5/min by ip").build()?;
    /// let layer = RateLimitLayer::new(limiter)?
    ///     .peer_from(|extensions| Some(extensions.get::<MyConnection>()?.address.into()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn peer_from(
        mut self,
        source: impl Fn(&Extensions) -> Option<PeerAddress> + Send + Sync + 'static,
    ) -> Self {
        self.state_mut().peer_source = Some(Arc::new(source));
        self
    }

    /// Adds facts that the service knows about a request, such as the tenant that an outer layer
    /// has authenticated. [`Facts::set`] replaces a fact from the `identity` section.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate_tower::RateLimitLayer;
    /// # #[derive(Clone)] struct Account { tier: String }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .rules("{ facts: [tier], rules: [{ match: { tier: free }, key_by: ip, limit: 5/s }] }")
    ///     .build()?;
    /// let layer = RateLimitLayer::new(limiter)?.with_facts(|request, facts| {
    ///     if let Some(account) = request.extensions.get::<Account>() {
    ///         facts.set("tier", account.tier.as_str());
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_facts(
        mut self,
        source: impl for<'r> Fn(&'r request::Parts, &mut Facts<'r>) + Send + Sync + 'static,
    ) -> Self {
        self.state_mut().fact_source = Some(Arc::new(source));
        self
    }

    /// Refunds the charge of a rule if `condition` holds for the response.
    ///
    /// The charge is made before the request is handled, so any number of concurrent requests stays
    /// within the limit. If the client disconnects before there is a response, the charge stays.
    #[must_use]
    pub fn refund_if(
        mut self,
        condition: impl Fn(&Rule, &response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.state_mut().refund_conditions.push(Arc::new(condition));
        self
    }

    /// Keeps the charge of a rule only if `condition` holds for the response: the opposite of
    /// [`refund_if`](Self::refund_if).
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tidegate::Limiter;
    /// # use tidegate_tower::RateLimitLayer;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Only failed logins count.
    /// let limiter = Limiter::builder().limit("5/min by ip").build()?;
    /// let layer = RateLimitLayer::new(limiter)?
    ///     .charge_if(|_rule, response| response.status == StatusCode::UNAUTHORIZED);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn charge_if(
        self,
        condition: impl Fn(&Rule, &response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.refund_if(move |rule, response| !condition(rule, response))
    }

    fn state_mut(&mut self) -> &mut LayerState<S> {
        Arc::make_mut(&mut self.state)
    }
}

impl<S: CounterStore, I> Layer<I> for RateLimitLayer<S> {
    type Service = RateLimit<I, S>;

    fn layer(&self, inner: I) -> Self::Service {
        RateLimit { inner, state: Arc::clone(&self.state) }
    }
}

impl<S: CounterStore> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<S: CounterStore> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.state.limiter)
            .finish_non_exhaustive()
    }
}

impl<S: CounterStore> Clone for LayerState<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            extractors: Arc::clone(&self.extractors),
            delay_queue: Arc::clone(&self.delay_queue),
            reported_missing_peer: Arc::clone(&self.reported_missing_peer),
            checked_rules: Arc::clone(&self.checked_rules),
            headers: self.headers,
            peer_source: self.peer_source.clone(),
            fact_source: self.fact_source.clone(),
            refund_conditions: self.refund_conditions.clone(),
        }
    }
}
