//! Routes requests to one server, or to the servers of a cluster.

use std::sync::Arc;

use tokio::time::Instant;

use crate::abort_on_drop::AbortOnDrop;
use crate::address::RedisTopology;
use crate::batcher::{RequestBatcher, RequestRoute};
use crate::cluster::ClusterConnections;
use crate::connection::{RedisRequestError, StoreContext, SupervisedConnection};
use crate::connector::ConnectionTarget;
use crate::key_name::hash_slot;
use crate::replay::RequestReadings;
use crate::script_request::ScriptRequest;
use crate::stats::{BreakerState, FailureCause};

/// Maximum number of redirects that a request follows.
const MAX_REDIRECTS: usize = 5;

/// Delay before a retry while a slot is being migrated.
const TRY_AGAIN_DELAY: std::time::Duration = std::time::Duration::from_millis(1);

/// Routes requests to servers.
#[derive(Debug)]
pub(crate) struct Router {
    servers: RoutedServers,
    _task: AbortOnDrop,
}

#[derive(Debug)]
enum RoutedServers {
    Single(Arc<RequestBatcher>),
    Cluster(Arc<ClusterConnections>),
}

impl Router {
    pub(crate) fn new(topology: &RedisTopology, context: Arc<StoreContext>) -> Self {
        let (servers, task) = match ConnectionTarget::from_topology(topology) {
            Ok(target) => {
                let connection = Arc::new(SupervisedConnection::new(target, context));
                let task = AbortOnDrop::spawn(Arc::clone(&connection).supervise());
                (RoutedServers::Single(Arc::new(RequestBatcher::new(connection))), task)
            }
            Err(seeds) => {
                let cluster = Arc::new(ClusterConnections::new(seeds.to_vec(), context));
                let task = AbortOnDrop::spawn(Arc::clone(&cluster).run_refresh_loop());
                (RoutedServers::Cluster(cluster), task)
            }
        };
        Self { servers, _task: task }
    }

    /// Whether keys are spread over cluster slots.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, RoutedServers::Cluster(_))
    }

    /// Waits until all servers are available.
    pub(crate) async fn wait_ready(&self) {
        match &self.servers {
            RoutedServers::Single(batcher) => batcher.connection().wait_ready().await,
            RoutedServers::Cluster(cluster) => cluster.wait_ready().await,
        }
    }

    /// Why some server is unavailable, if any.
    pub(crate) fn unavailable_reason(&self) -> Option<String> {
        match &self.servers {
            RoutedServers::Single(batcher) => batcher.connection().unavailable_reason(),
            RoutedServers::Cluster(cluster) => cluster.unavailable_reason(),
        }
    }

    /// Every server and the state of its circuit breaker.
    pub(crate) fn breaker_states(&self) -> Vec<(String, BreakerState)> {
        let batchers = match &self.servers {
            RoutedServers::Single(batcher) => vec![Arc::clone(batcher)],
            RoutedServers::Cluster(cluster) => cluster.batchers(),
        };
        batchers.iter().map(|batcher| batcher.connection().breaker_state()).collect()
    }

    /// The connection to the server that owns a key.
    ///
    /// # Errors
    /// The reason why no owner is known.
    pub(crate) fn connection_for(&self, name: &[u8]) -> Result<Arc<SupervisedConnection>, String> {
        match &self.servers {
            RoutedServers::Single(batcher) => Ok(Arc::clone(batcher.connection())),
            RoutedServers::Cluster(cluster) => cluster
                .batcher_for_slot(hash_slot(name))
                .map(|batcher| Arc::clone(batcher.connection())),
        }
    }

    /// Sends a request, whose keys share a slot, to the slot's owner, and waits at most until
    /// `deadline`. It is sent again only after a server rejected it without running it.
    pub(crate) async fn send_request(
        &self,
        request: &Arc<ScriptRequest>,
        deadline: Instant,
    ) -> Result<RequestReadings, RedisRequestError> {
        let answer = self.send_with_redirects(request, deadline);
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = "no answer within the deadline".to_owned();
                match request.cancel() {
                    true => Err(RedisRequestError::NotExecuted(FailureCause::Timeout, why)),
                    false => Err(RedisRequestError::OutcomeUnknown(FailureCause::Timeout, why)),
                }
            }
        }
    }

    async fn send_with_redirects(
        &self,
        request: &Arc<ScriptRequest>,
        deadline: Instant,
    ) -> Result<RequestReadings, RedisRequestError> {
        let cluster = match &self.servers {
            RoutedServers::Single(batcher) => {
                return submit_and_wait(batcher, request, RequestRoute::default()).await;
            }
            RoutedServers::Cluster(cluster) => cluster,
        };
        let slot = request.items.first().map_or(0, |item| hash_slot(&item.location.name));
        let unknown = |why| RedisRequestError::NotExecuted(FailureCause::Disconnected, why);
        let mut batcher = cluster.batcher_for_slot(slot).map_err(unknown)?;
        let mut route = RequestRoute { slot: Some(slot), ..RequestRoute::default() };
        let mut redirects = 0..MAX_REDIRECTS;
        loop {
            let answer = submit_and_wait(&batcher, request, route).await;
            match &answer {
                Err(RedisRequestError::Moved(host)) if redirects.next().is_some() => {
                    (batcher, route.asking) = (cluster.move_slot(slot, host), false);
                    batcher.connection().wait_ready().await;
                }
                Err(RedisRequestError::Ask(host)) if redirects.next().is_some() => {
                    (batcher, route.asking) = (cluster.batcher_for_host(host), true);
                    batcher.connection().wait_ready().await;
                }
                // Perhaps only the other requests of the batch have keys elsewhere, so retry alone.
                Err(RedisRequestError::TryAgain) if Instant::now() + TRY_AGAIN_DELAY < deadline => {
                    route.alone = true;
                    tokio::time::sleep(TRY_AGAIN_DELAY).await;
                }
                _ => return answer,
            }
        }
    }
}

async fn submit_and_wait(
    batcher: &Arc<RequestBatcher>,
    request: &Arc<ScriptRequest>,
    route: RequestRoute,
) -> Result<RequestReadings, RedisRequestError> {
    let answered = batcher.submit(Arc::clone(request), route)?.await;
    let given_up = || {
        RedisRequestError::OutcomeUnknown(
            FailureCause::Disconnected,
            "the call was aborted".to_owned(),
        )
    };
    answered.unwrap_or_else(|_| Err(given_up()))
}
