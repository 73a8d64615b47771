//! Natural batching: requests that arrive while calls are in flight wait and share the next call.
//! If no call is in flight, a request is sent at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::{Pipeline, Value, cmd};
use smallvec::SmallVec;
use tidegate_core::time::{Clock as _, ManualClock};
use tokio::sync::oneshot;

use crate::address::RedisHost;
use crate::batch::ScriptBatch;
use crate::connection::{RedisRequestError, SupervisedConnection};
use crate::connector::server_error_text;
use crate::replay::{Replay, RequestReadings};
use crate::script_request::ScriptRequest;
use crate::stats::FailureCause;

/// Maximum number of calls in flight: the server runs one while the next is on the wire.
const MAX_CALLS: usize = 2;

/// Maximum number of requests in a call.
const MAX_BATCH: usize = 128;

/// Maximum number of keys in a call: a script has a stack of 8000.
const MAX_KEYS: usize = 6_000;

/// Maximum number of queued requests; further requests fail.
const MAX_QUEUED: usize = 10_000;

/// Error codes of a script that was rejected as a whole, or at its first write: nothing was
/// changed.
const NOT_EXECUTED_CODES: [&str; 10] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
];

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
        if queue.active_calls < MAX_CALLS {
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
        let context = self.connection.context();
        let now = context.test_clock.as_ref().map(ManualClock::now);
        // The requests are shared so that the calls can borrow from them.
        let requests: Vec<Vec<Arc<ScriptRequest>>> = groups
            .iter()
            .map(|group| group.iter().map(|queued| Arc::clone(&queued.request)).collect())
            .collect();
        let calls: Vec<ScriptCall<'_>> =
            requests.iter().map(|requests| ScriptCall::new(requests)).collect();
        let commands = |with_text: bool, which: &[usize]| {
            let mut commands = Pipeline::with_capacity(which.len());
            for &which in which {
                if groups[which][0].route.asking {
                    commands.add_command(cmd("ASKING"));
                }
                commands.add_command(calls[which].batch.command(&context.script, with_text, now));
            }
            commands
        };
        let all: Vec<usize> = (0..groups.len()).collect();
        let mut answers = self.exchange(&commands(false, &all), &groups, &all).await;
        let missing: Vec<usize> =
            all.into_iter().filter(|&i| is_script_missing(&answers[i])).collect();
        if !missing.is_empty() {
            // NOSCRIPT: nothing ran, so send the same call again with the script's text.
            let again = self.exchange(&commands(true, &missing), &groups, &missing).await;
            for (i, answer) in missing.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
        let mut results = Vec::with_capacity(calls.len());
        for (call, answer) in calls.into_iter().zip(answers) {
            results.push(self.decode_answer(&call, answer));
        }
        for (group, results) in groups.into_iter().zip(results) {
            for (queued, result) in group.into_iter().zip(results) {
                // The receiver may have been dropped.
                _ = queued.answer.send(result);
            }
        }
    }

    /// Returns the replies to the calls of some groups, without the replies to ASKING.
    async fn exchange(
        &self,
        commands: &Pipeline,
        groups: &[Vec<QueuedRequest>],
        which: &[usize],
    ) -> Vec<Result<Value, RedisRequestError>> {
        match self.connection.exchange(commands).await {
            Err(failure) => which.iter().map(|_| Err(failure.clone())).collect(),
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let mut answer = |which: &usize| {
                    if groups[*which][0].route.asking {
                        answers.next();
                    }
                    answers.next().ok_or_else(|| {
                        RedisRequestError::OutcomeUnknown(
                            FailureCause::ServerError,
                            "the server sent too few replies".to_owned(),
                        )
                    })
                };
                which.iter().map(&mut answer).collect()
            }
        }
    }

    /// Decodes the reply to a call into the result of each of its requests.
    fn decode_answer(
        &self,
        call: &ScriptCall<'_>,
        answer: Result<Value, RedisRequestError>,
    ) -> Vec<Result<RequestReadings, RedisRequestError>> {
        let failure = match answer {
            Err(failure) => failure,
            Ok(Value::ServerError(error)) => self.classify_error(&error),
            Ok(answer) => {
                if let Some(readings) = call.replay(answer) {
                    self.connection.record_success();
                    return readings.into_iter().map(Ok).collect();
                }
                // Another program wrote to these keys, or the script has a bug.
                let why = "the script's reply contradicts the local replay; \
                           another program may have written to its keys";
                self.connection.record_failure(why);
                RedisRequestError::OutcomeUnknown(FailureCause::ServerError, why.to_owned())
            }
        };
        call.requests.iter().map(|_| Err(failure.clone())).collect()
    }

    /// Classifies a server error for the callers.
    fn classify_error(&self, error: &redis::ServerError) -> RedisRequestError {
        let redirected = || {
            let (_, to) = error.details()?.split_once(' ')?;
            let (name, port) = to.rsplit_once(':')?;
            Some(RedisHost { name: name.to_owned(), port: port.parse().ok()? })
        };
        match (error.code(), redirected()) {
            ("MOVED", Some(host)) => return RedisRequestError::Moved(host),
            ("ASK", Some(host)) => return RedisRequestError::Ask(host),
            ("TRYAGAIN", _) => return RedisRequestError::TryAgain,
            // The server is no longer the primary; reconnecting finds the new one.
            ("READONLY", _) => self.connection.disconnect(&server_error_text(error)),
            _ => self.connection.record_failure(&server_error_text(error)),
        }
        match NOT_EXECUTED_CODES.contains(&error.code()) {
            true => {
                RedisRequestError::NotExecuted(FailureCause::ServerError, server_error_text(error))
            }
            false => RedisRequestError::OutcomeUnknown(
                FailureCause::ServerError,
                server_error_text(error),
            ),
        }
    }
}

/// The requests of one call.
struct ScriptCall<'a> {
    requests: &'a [Arc<ScriptRequest>],
    batch: ScriptBatch<'a>,
}

impl<'a> ScriptCall<'a> {
    fn new(requests: &'a [Arc<ScriptRequest>]) -> Self {
        Self { requests, batch: ScriptBatch::new(requests) }
    }

    /// The readings of all requests, or `None` if the reply is malformed or contradicts the replay.
    fn replay(&self, answer: Value) -> Option<Vec<RequestReadings>> {
        let mut replay = Replay::parse(answer)?;
        let requests = self.requests.iter().zip(&self.batch.charge_indexes);
        requests.map(|(request, indexes)| replay.next_readings(request, indexes)).collect()
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

fn is_script_missing(answer: &Result<Value, RedisRequestError>) -> bool {
    matches!(answer, Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT")
}
