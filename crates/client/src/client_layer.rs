//! The layer and its settings.

use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::request::Parts;
use tower_layer::Layer;

use crate::body_clone::{CloneBodies, CloneBodiesWith, NoBodyClones};
use crate::client_service::ClientService;
use crate::client_state::ClientState;
use crate::client_stats::ClientStats;
use crate::host_budget::SharedQuotaSettings;
use crate::retry::RetryPolicy;
use crate::shared_quota::SharedQuota;

const DEFAULT_CEILING: Duration = Duration::from_secs(20);
/// A year. Sums of longer times could overflow.
const MAX_SPAN: Duration = Duration::from_secs(365 * 86_400);

const DEFAULT_MAX_WAITING: usize = 1_000;
const DEFAULT_MAX_KEYS: usize = 1_000;

/// The key of requests without a host.
const UNKNOWN_HOST: &str = "(unknown)";

type KeyFunction = Arc<dyn Fn(&Parts) -> String + Send + Sync>;
type CostFunction = Arc<dyn Fn(&Parts) -> u32 + Send + Sync>;

/// Wraps a client in a [`ClientService`], which paces and retries calls.
///
/// Clones, and all services of a layer, share their budgets and [`stats`](Self::stats). Set the
/// layer up before it wraps a client: each setter starts with empty budgets.
///
/// ```
/// use std::time::Duration;
/// use tidegate_client::{ClientLayer, RetryPolicy};
///
/// let layer = ClientLayer::new()
///     .ceiling(Duration::from_secs(5))
///     .max_waiting(100)
///     // Calls to one host with different tokens have different quotas.
///     .key_by(|request| {
///         let token = request.headers.get("authorization");
///         format!("{:?} {token:?}", request.uri.host())
///     })
///     .retry(RetryPolicy::default().max_retries(2))
///     .clone_bodies();
/// assert_eq!(layer.stats().sent, 0);
/// ```
#[derive(Clone)]
pub struct ClientLayer<C = NoBodyClones> {
    settings: Arc<ClientSettings>,
    state: Arc<ClientState>,
    cloner: C,
}

#[derive(Clone)]
pub(crate) struct ClientSettings {
    pub(crate) ceiling: Duration,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) max_waiting: usize,
    pub(crate) max_keys: usize,
    pub(crate) retry: RetryPolicy,
    pub(crate) key_function: KeyFunction,
    pub(crate) cost_function: CostFunction,
    pub(crate) quota: Option<SharedQuotaSettings>,
    pub(crate) seed: Option<u64>,
}

impl ClientLayer {
    /// A layer with one budget for each host. It retries no call until it can
    /// [clone bodies](Self::clone_bodies).
    #[must_use]
    pub fn new() -> Self {
        let settings = ClientSettings {
            ceiling: DEFAULT_CEILING,
            max_wait: None,
            max_waiting: DEFAULT_MAX_WAITING,
            max_keys: DEFAULT_MAX_KEYS,
            retry: RetryPolicy::default(),
            key_function: Arc::new(host_of_request),
            cost_function: Arc::new(|_| 1),
            quota: None,
            seed: None,
        };
        let state = Arc::new(ClientState::new(&settings));
        Self { settings: Arc::new(settings), state, cloner: NoBodyClones }
    }
}

impl Default for ClientLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> ClientLayer<C> {
    /// The longest wait that a server can impose: 20 s by default. After that the layer tries
    /// again, whatever the server said. A refused call whose `Retry-After` is longer is not
    /// retried.
    #[must_use]
    pub fn ceiling(self, ceiling: Duration) -> Self {
        self.update(|settings| settings.ceiling = ceiling.min(MAX_SPAN))
    }

    /// The longest time that a call waits for its turn, if its [deadline](crate::CallDeadline) is
    /// not earlier. By default the ceiling.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.update(|settings| settings.max_wait = Some(max_wait.min(MAX_SPAN)))
    }

    /// How many calls with the same key may wait: 1 000 by default. More fail with
    /// [`QueueFull`](crate::ClientError::QueueFull).
    #[must_use]
    pub fn max_waiting(self, count: usize) -> Self {
        self.update(|settings| settings.max_waiting = count)
    }

    /// How many keys are remembered: 1 000 by default. Then the key that was unused for the longest
    /// time is forgotten.
    #[must_use]
    pub fn max_keys(self, count: usize) -> Self {
        self.update(|settings| settings.max_keys = count)
    }

    /// Which calls share a budget: those with the same text. By default the URI's host and port,
    /// or the `Host` header.
    #[must_use]
    pub fn key_by(self, key: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.update(|settings| settings.key_function = Arc::new(key))
    }

    /// How many units of the quota a call costs: 1 by default.
    #[must_use]
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.update(|settings| settings.cost_function = Arc::new(cost))
    }

    /// Which calls are retried.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.update(|settings| settings.retry = policy)
    }

    /// Takes every call from a quota that is shared with other processes. Calls are sent if it
    /// cannot be checked, because the server's own limit still paces them.
    #[must_use]
    pub fn shared_quota(self, quota: Arc<dyn SharedQuota>) -> Self {
        let fails_open = true;
        self.update(|settings| settings.quota = Some(SharedQuotaSettings { quota, fails_open }))
    }

    /// Like [`shared_quota`](Self::shared_quota), but calls fail with
    /// [`ClientError::Quota`](crate::ClientError::Quota) if the quota cannot be checked.
    #[must_use]
    pub fn strict_shared_quota(self, quota: Arc<dyn SharedQuota>) -> Self {
        let fails_open = false;
        self.update(|settings| settings.quota = Some(SharedQuotaSettings { quota, fails_open }))
    }

    /// Makes the jitter of retries repeatable, for tests.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.update(|settings| settings.seed = Some(seed))
    }

    /// Retries calls whose body implements [`Clone`].
    #[must_use]
    pub fn clone_bodies(self) -> ClientLayer<CloneBodies> {
        self.with_cloner(CloneBodies)
    }

    /// Retries calls whose body `clone` can clone.
    #[must_use]
    pub fn clone_bodies_with<F>(self, clone: F) -> ClientLayer<CloneBodiesWith<F>> {
        self.with_cloner(CloneBodiesWith(clone))
    }

    /// What the layer did so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.state.stats()
    }

    fn with_cloner<D>(self, cloner: D) -> ClientLayer<D> {
        ClientLayer { settings: self.settings, state: self.state, cloner }
    }

    fn update(self, change: impl FnOnce(&mut ClientSettings)) -> Self {
        let mut settings = Arc::unwrap_or_clone(self.settings);
        change(&mut settings);
        let state = Arc::new(ClientState::new(&settings));
        Self { settings: Arc::new(settings), state, cloner: self.cloner }
    }
}

impl<S, C: Clone> Layer<S> for ClientLayer<C> {
    type Service = ClientService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        let (settings, state) = (Arc::clone(&self.settings), Arc::clone(&self.state));
        ClientService::new(inner, settings, state, self.cloner.clone())
    }
}

impl<C> std::fmt::Debug for ClientLayer<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientLayer")
            .field("ceiling", &self.settings.ceiling)
            .field("retry", &self.settings.retry)
            .finish_non_exhaustive()
    }
}

fn host_of_request(request: &Parts) -> String {
    let authority = request.uri.authority().map(http::uri::Authority::as_str);
    let host = || request.headers.get(HOST).and_then(|host| host.to_str().ok());
    authority.or_else(host).unwrap_or(UNKNOWN_HOST).to_ascii_lowercase()
}
