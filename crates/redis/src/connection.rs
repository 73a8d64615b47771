//! A connection to one server and the task that supervises it.
//!
//! A request never waits for a new connection: without one it fails at once. The supervisor
//! connects, probes with the real script, and lets the circuit breaker close.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value, cmd};
use tidegate_core::time::{Clock as _, ManualClock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address::RedisHost;
use crate::batch::ScriptBatch;
use crate::breaker::{Breaker, BreakerChange};
use crate::connector::{ConnectionTarget, RedisConnector, send_command, server_error_text};
use crate::lua_script::LuaScript;
use crate::observer::{StoreEvent, StoreObserver};
use crate::probe::probe_request;
use crate::replay::Replay;
use crate::script_request::ScriptRequest;
use crate::stats::{BreakerState, CallCounters, FailureCause};

/// Backoff between connection attempts, initial and maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(250);

/// How long a server may be idle before it is probed, so that its loss is noticed before a request
/// fails.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// What all connections of a store share.
#[derive(Debug)]
pub(crate) struct StoreContext {
    pub(crate) connector: RedisConnector,
    pub(crate) script: LuaScript,
    pub(crate) prefix: String,
    pub(crate) deadline: CallDeadline,
    /// The most calls in flight on a connection.
    pub(crate) max_calls: usize,
    /// Test clock that replaces the server's clock.
    pub(crate) test_clock: Option<ManualClock>,
    pub(crate) observer: StoreObserver,
    pub(crate) counters: CallCounters,
}

/// How long a call may take, in microseconds.
#[derive(Debug)]
pub(crate) struct CallDeadline(AtomicU64);

impl CallDeadline {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self(AtomicU64::new(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, deadline: Duration) {
        let micros = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Ordering::Relaxed);
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedisRequestError {
    /// The request may or may not have run.
    OutcomeUnknown(FailureCause, String),
    /// The request was not sent, or the server rejected it: nothing ran.
    NotExecuted(FailureCause, String),
    /// Another server of the cluster owns the slot; nothing ran.
    Moved(RedisHost),
    /// Another server may have the keys; send ASKING first. Nothing ran.
    Ask(RedisHost),
    /// The slot is being migrated; nothing ran.
    TryAgain,
}

/// A supervised connection to one server.
#[derive(Debug)]
pub(crate) struct SupervisedConnection {
    target: ConnectionTarget,
    context: Arc<StoreContext>,
    state: Mutex<State>,
    wake: Notify,
    opened: Notify,
    /// Whether the server is a cluster node, which redirects requests for slots that it does not
    /// own.
    in_cluster: bool,
}

#[derive(Debug)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Number of the current connection; errors of older connections are ignored.
    generation: u64,
    breaker: Breaker,
    /// Why the server is unavailable, if it is.
    unavailable_reason: Option<String>,
    /// Whether the server left the cluster; it reports no more events.
    retired: bool,
    /// Whether a request succeeded since the supervisor last checked.
    answered: bool,
    /// A slot that the server owns, for probes.
    probe_slot: Option<u16>,
    /// The cached probe.
    probe_request: Option<Arc<ScriptRequest>>,
}

impl SupervisedConnection {
    pub(crate) fn new(target: ConnectionTarget, context: Arc<StoreContext>) -> Self {
        let state = State {
            connection: None,
            generation: 0,
            breaker: Breaker::new(Instant::now()),
            unavailable_reason: None,
            retired: false,
            answered: false,
            probe_slot: None,
            probe_request: None,
        };
        Self {
            target,
            context,
            state: Mutex::new(state),
            wake: Notify::new(),
            opened: Notify::new(),
            in_cluster: false,
        }
    }

    /// Creates a connection to a cluster node.
    pub(crate) fn for_cluster_node(host: &RedisHost, context: Arc<StoreContext>) -> Self {
        Self { in_cluster: true, ..Self::new(ConnectionTarget::Server(host.clone()), context) }
    }

    pub(crate) fn context(&self) -> &StoreContext {
        &self.context
    }

    /// Why the server is unavailable, if it is.
    pub(crate) fn unavailable_reason(&self) -> Option<String> {
        let state = self.state.lock();
        state.unavailable_reason.as_ref().map(|why| format!("{}: {why}", self.target))
    }

    /// The server's name and the state of its circuit breaker.
    pub(crate) fn breaker_state(&self) -> (String, BreakerState) {
        (self.target.to_string(), self.state.lock().breaker.state())
    }

    /// Checks whether the circuit breaker allows a request.
    ///
    /// # Errors
    /// The reason if it does not.
    pub(crate) fn check_breaker(&self) -> Result<(), RedisRequestError> {
        let mut state = self.state.lock();
        if state.breaker.admits(Instant::now()) {
            return Ok(());
        }
        let why = state.unavailable_reason.as_deref().unwrap_or("not yet connected");
        Err(RedisRequestError::NotExecuted(
            FailureCause::BreakerOpen,
            format!("{}: {why}", self.target),
        ))
    }

    /// Waits until the server is available.
    pub(crate) async fn wait_ready(&self) {
        loop {
            let opened = self.opened.notified();
            if !self.state.lock().breaker.is_open() {
                return;
            }
            opened.await;
        }
    }

    /// Sets a slot that the server owns, so that probes use a key in it.
    pub(crate) fn set_probe_slot(&self, slot: u16) {
        let mut state = self.state.lock();
        if state.probe_slot != Some(slot) {
            (state.probe_slot, state.probe_request) = (Some(slot), None);
        }
    }

    /// Sends a pipeline of commands and waits for the replies, at most until the deadline.
    ///
    /// # Errors
    /// If there are no replies; the circuit breaker has recorded the failure.
    pub(crate) async fn exchange(
        &self,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, RedisRequestError> {
        self.send(commands).await.map_err(|failure| failure.with_server(&self.target))
    }

    async fn send(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisRequestError> {
        let (connection, generation) = {
            let state = self.state.lock();
            (state.connection.clone(), state.generation)
        };
        let Some(mut connection) = connection else {
            return Err(RedisRequestError::NotExecuted(
                FailureCause::Disconnected,
                "not connected".to_owned(),
            ));
        };
        let sent = Instant::now();
        let answers = connection.send_packed_commands(commands, 0, commands.len());
        let deadline = self.context.deadline.get();
        match tokio::time::timeout(deadline, answers).await {
            Ok(Ok(answers)) => {
                self.context.counters.record_round_trip(sent);
                Ok(answers)
            }
            Ok(Err(error)) => {
                let why = error.to_string();
                self.drop_connection(generation, &why);
                Err(RedisRequestError::OutcomeUnknown(FailureCause::Disconnected, why))
            }
            Err(_) => {
                let why = format!("no answer within {deadline:?}");
                self.record_failure(&why);
                Err(RedisRequestError::OutcomeUnknown(FailureCause::Timeout, why))
            }
        }
    }

    /// Records a successful call.
    pub(crate) fn record_success(&self) {
        let mut state = self.state.lock();
        state.answered = true;
        let change = state.breaker.record_success(Instant::now());
        self.report_change(&mut state, change, "");
    }

    /// Records an error reply or a timeout.
    pub(crate) fn record_failure(&self, why: &str) {
        let mut state = self.state.lock();
        let change = state.breaker.record_failure(Instant::now());
        if state.breaker.is_open() {
            // A timeout may mean that the connection is dead, so drop it.
            state.connection = None;
            self.wake.notify_one();
        }
        self.report_change(&mut state, change, why);
    }

    /// Drops the current connection.
    pub(crate) fn disconnect(&self, why: &str) {
        let generation = self.state.lock().generation;
        self.drop_connection(generation, why);
    }

    fn drop_connection(&self, generation: u64, why: &str) {
        let mut state = self.state.lock();
        if state.generation == generation && state.connection.take().is_some() {
            let change = state.breaker.record_disconnect(Instant::now());
            self.wake.notify_one();
            self.report_change(&mut state, change, why);
        }
    }

    fn report_change(&self, state: &mut State, change: Option<BreakerChange>, why: &str) {
        let server = || self.target.to_string();
        match change {
            _ if state.retired => {}
            Some(BreakerChange::Opened) if state.unavailable_reason.is_none() => {
                state.unavailable_reason = Some(why.to_owned());
                self.notify_observer(&StoreEvent::Lost { server: server(), why: why.to_owned() });
            }
            Some(BreakerChange::Closed) if state.unavailable_reason.take().is_some() => {
                self.notify_observer(&StoreEvent::Recovered { server: server() });
            }
            _ => {}
        }
    }

    fn notify_observer(&self, event: &StoreEvent) {
        self.context.observer.notify(event);
    }

    /// Supervises the connection until the task is aborted.
    pub(crate) async fn supervise(self: Arc<Self>) {
        let mut pause = MIN_BACKOFF;
        loop {
            let (open, closing) = {
                let breaker = &self.state.lock().breaker;
                (breaker.is_open(), breaker.ramp_interval())
            };
            if !open {
                let woken = self.wake.notified();
                if tokio::time::timeout(closing.unwrap_or(IDLE_PROBE_INTERVAL), woken)
                    .await
                    .is_err()
                {
                    self.probe_if_idle().await;
                }
                continue;
            }
            match self.reconnect().await {
                Ok(()) => pause = MIN_BACKOFF,
                Err(why) => {
                    self.mark_unreachable(why);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    fn mark_unreachable(&self, why: String) {
        let mut state = self.state.lock();
        let is_new = state.unavailable_reason.is_none() && !state.retired;
        state.unavailable_reason = Some(why.clone());
        if is_new {
            self.notify_observer(&StoreEvent::Lost { server: self.target.to_string(), why });
        }
    }

    /// Stops reporting events, because other servers own this server's slots now.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        state.retired = true;
        if state.unavailable_reason.take().is_some() {
            self.notify_observer(&StoreEvent::Recovered { server: self.target.to_string() });
        }
    }

    /// Probes an idle server, to notice its loss and to let its breaker close.
    async fn probe_if_idle(&self) {
        let answered = std::mem::take(&mut self.state.lock().answered);
        if !answered && self.probe().await.is_ok() {
            self.record_success();
        }
    }

    /// Connects if necessary, and probes.
    async fn reconnect(&self) -> Result<(), String> {
        if self.state.lock().connection.is_none() {
            let mut connection = self.context.connector.open(&self.target).await?;
            // A server that requires a password closes the connection on a text as long as the
            // script, without an error. It answers a short command with the reason, so send TIME
            // first.
            send_command(&mut connection, &cmd("TIME")).await?;
            // Load the script now so that the probe is as fast as a decision. If SCRIPT LOAD is not
            // allowed, the first decision sends the text.
            let text = &self.context.script.text;
            _ = send_command(&mut connection, cmd("SCRIPT").arg("LOAD").arg(text)).await;
            let mut state = self.state.lock();
            state.generation += 1;
            state.connection = Some(connection);
        }
        self.probe().await?;
        let mut state = self.state.lock();
        if state.connection.is_none() {
            return Err("the connection was lost during the probe".to_owned());
        }
        let change = state.breaker.record_probe(Instant::now());
        self.report_change(&mut state, change, "");
        self.opened.notify_waiters();
        Ok(())
    }

    /// Runs the real script on a counter that limits no client, within the deadline.
    ///
    /// # Errors
    /// The reason; the circuit breaker has recorded the failure.
    async fn probe(&self) -> Result<(), String> {
        let requests = [self.probe_request()?];
        let batch = ScriptBatch::new(&requests);
        let now = self.context.test_clock.as_ref().map(ManualClock::now);
        let mut answer = self.send_one(batch.command(&self.context.script, false, now)).await?;
        if matches!(&answer, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            answer = self.send_one(batch.command(&self.context.script, true, now)).await?;
        }
        let why = match answer {
            // The server is healthy but has no slots, or other slots than we know of.
            Value::ServerError(error) if self.in_cluster && error.code() == "MOVED" => {
                return Ok(());
            }
            Value::ServerError(error) => server_error_text(&error),
            answer => {
                let readings = Replay::parse(answer).and_then(|mut replay| {
                    replay.next_readings(&requests[0], &batch.charge_indexes[0])
                });
                match readings {
                    Some(_) => return Ok(()),
                    None => "unexpected reply from the script".to_owned(),
                }
            }
        };
        self.record_failure(&why);
        Err(why)
    }

    /// Sends one command.
    async fn send_one(&self, command: redis::Cmd) -> Result<Value, String> {
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let answers = self.send(&commands).await.map_err(|failure| failure.to_string())?;
        answers.into_iter().next().ok_or_else(|| "the server sent no reply".to_owned())
    }

    /// The cached probe; finding a key name in the right slot takes many tries.
    fn probe_request(&self) -> Result<Arc<ScriptRequest>, String> {
        let mut state = self.state.lock();
        if let Some(probe) = &state.probe_request {
            return Ok(Arc::clone(probe));
        }
        let probe = Arc::new(probe_request(&self.context.prefix, state.probe_slot)?);
        state.probe_request = Some(Arc::clone(&probe));
        Ok(probe)
    }
}
