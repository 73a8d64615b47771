//! Natural batching: requests that arrive while calls are in flight wait and share the next call.
//! If no call is in flight, a request is sent at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::connection::{RedisRequestError, SupervisedConnection};
use crate::replay::RequestReadings;
use crate::script_call::{ScriptCall, send_calls};
use crate::script_request::ScriptRequest;
use crate::stats::FailureCause;

/// Maximum number of requests in a call.
const MAX_BATCH: usize = 128;

/// Maximum number of keys in a call: a script has a stack of 8000.
const MAX_KEYS: usize = 6_000;

/// Maximum number of queued requests; further requests fail.
const MAX_QUEUED: usize = 10_000;

/// Batches the requests to one server.
#[derive(Debug)]
pub(crate) struct RequestBatcher {
    connection: Arc<SupervisedConnection>,
    queue: Mutex<BatcherQueue>,
}

#[derive(Debug, Default)]
struct BatcherQueue {
    pending: VecDeque<QueuedRequest>,
    active_calls: usize,
}

/// A request and the channel for its answer.
#[derive(Debug)]
struct QueuedRequest {
    request: Arc<ScriptRequest>,
    route: RequestRoute,
    answer: oneshot::Sender<Result<RequestReadings, RedisRequestError>>,
}

/// Determines which requests may share a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestRoute {
    /// The cluster slot; `None` without a cluster.
    pub(crate) slot: Option<u16>,
    /// Whether to send ASKING first, after an ASK redirect.
    pub(crate) asking: bool,
    /// Whether to send it alone: the keys of a migrating slot may be on two servers.
    pub(crate) alone: bool,
}

impl RequestBatcher {
    pub(crate) fn new(connection: Arc<SupervisedConnection>) -> Self {
        Self { connection, queue: Mutex::default() }
    }

    pub(crate) fn connection(&self) -> &Arc<SupervisedConnection> {
        &self.connection
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If the circuit breaker is open or the queue is full.
    pub(crate) fn submit(
        self: &Arc<Self>,
        request: Arc<ScriptRequest>,
        route: RequestRoute,
    ) -> Result<oneshot::Receiver<Result<RequestReadings, RedisRequestError>>, RedisRequestError>
    {
        self.connection.check_breaker()?;
        if 3 * request.items.len() > MAX_KEYS {
            return Err(RedisRequestError::NotExecuted(
                FailureCause::Overloaded,
                "the request matches too many rules for one script call".to_owned(),
            ));
        }
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.pending.len() >= MAX_QUEUED {
            return Err(RedisRequestError::NotExecuted(
                FailureCause::Overloaded,
                format!("the request queue is full ({MAX_QUEUED} waiting)"),
            ));
        }
        request.mark_queued();
        queue.pending.push_back(QueuedRequest { request, route, answer });
        if queue.active_calls < self.connection.context().max_calls {
            queue.active_calls += 1;
            tokio::spawn(Arc::clone(self).run_calls());
        }
        Ok(answered)
    }

    /// Makes calls until the queue is empty. Runs as a separate task because callers may be
    /// cancelled.
    async fn run_calls(self: Arc<Self>) {
        loop {
            let batch: Vec<QueuedRequest> = {
                let mut queue = self.queue.lock();
                let count = next_batch_len(&queue.pending);
                if count == 0 {
                    queue.active_calls -= 1;
                    return;
                }
                // Requests of cancelled callers are not sent.
                let is_wanted = |queued: &QueuedRequest| {
                    !queued.answer.is_closed() && queued.request.mark_taken()
                };
                queue.pending.drain(..count).filter(is_wanted).collect()
            };
            if !batch.is_empty() {
                self.connection.context().counters.record_batch_size(batch.len());
                self.execute_batch(batch).await;
            }
        }
    }

    async fn execute_batch(&self, mut batch: Vec<QueuedRequest>) {
        let mut groups: SmallVec<[Vec<QueuedRequest>; 1]> = SmallVec::new();
        if batch.iter().all(|queued| queued.route == batch[0].route && !queued.route.alone) {
            groups.push(batch);
        } else {
            batch
                .sort_by_key(|queued| (queued.route.slot, queued.route.asking, queued.route.alone));
            for queued in batch {
                match groups.last_mut() {
                    Some(group) if group[0].route == queued.route && !queued.route.alone => {
                        group.push(queued);
                    }
                    _ => groups.push(vec![queued]),
                }
            }
        }
        // The requests are shared so that the calls can borrow from them.
        let requests: Vec<Vec<Arc<ScriptRequest>>> = groups
            .iter()
            .map(|group| group.iter().map(|queued| Arc::clone(&queued.request)).collect())
            .collect();
        let asking = groups.iter().map(|group| group[0].route.asking);
        let calls: Vec<ScriptCall<'_>> = requests
            .iter()
            .zip(asking)
            .map(|(requests, asking)| ScriptCall::new(requests, asking))
            .collect();
        let results = send_calls(&self.connection, &calls).await;
        for (group, results) in groups.into_iter().zip(results) {
            for (queued, result) in group.into_iter().zip(results) {
                // The receiver may have been dropped.
                _ = queued.answer.send(result);
            }
        }
    }
}

/// How many of the queued requests go into the next call.
fn next_batch_len(waiting: &VecDeque<QueuedRequest>) -> usize {
    let mut keys = 0;
    let few = waiting.iter().take(MAX_BATCH).take_while(|queued| {
        keys += 3 * queued.request.items.len();
        keys <= MAX_KEYS
    });
    // A request that exceeds the limit on keys by itself is sent alone.
    few.count().max(1).min(waiting.len())
}
