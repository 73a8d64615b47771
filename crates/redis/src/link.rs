//! A server that is asked, and the one who looks after the connection to it.
//!
//! A call that fails never waits for a new connection: without one, whoever asks is told at once. The
//! keeper makes connections, probes with the real script, and lets the breaker close.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value, cmd};
use tidegate_core::key::Fingerprint;
use tidegate_core::policy::{Algorithm, Policy};
use tidegate_core::quota::Quota;
use tidegate_core::store::{Op, Role};
use tidegate_core::time::{Clock as _, ManualClock, Micros};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address::Host;
use crate::ask::{Ask, Batch, Item};
use crate::breaker::{Breaker, Change};
use crate::connect::{Connector, Place, ask};
use crate::name::{Name, slot};
use crate::replay::Replay;
use crate::script::Text;

/// How long the keeper waits between attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What all links of a store share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) connector: Connector,
    pub(crate) script: Text,
    pub(crate) prefix: String,
    pub(crate) deadline: Duration,
    /// The clock of a test, instead of the server's.
    pub(crate) rehearsal: Option<ManualClock>,
    pub(crate) observer: Observer,
}

/// Hears what becomes of the servers.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

/// What becomes of a server; told once for each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It does not answer; rules follow their `on_fail`.
    Lost {
        /// Which server.
        server: String,
        /// Why.
        why: String,
    },
    /// It answers again.
    Back {
        /// Which server.
        server: String,
    },
}

impl Observer {
    /// An observer that calls a function.
    pub fn new(hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(..)")
    }
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may or may not have been done.
    Lost(String),
    /// Another server of the cluster has the key; nothing was done.
    Moved(Host),
    /// Another server of the cluster may have the key, if asked so; nothing was done.
    Ask(Host),
    /// The key is being moved; nothing was done.
    TryAgain,
}

/// A server that is asked.
#[derive(Debug)]
pub(crate) struct Link {
    place: Place,
    common: Arc<Common>,
    state: Mutex<State>,
    woken: Notify,
    opened: Notify,
}

#[derive(Debug)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Which connection it is: news of an older one is no news.
    number: u64,
    breaker: Breaker,
    /// Why it was lost, as long as it is.
    lost: Option<String>,
    /// A slot that the server has, for probes.
    canary_slot: Option<u16>,
}

impl Link {
    pub(crate) fn new(place: Place, common: Arc<Common>) -> Self {
        let state = State {
            connection: None,
            number: 0,
            breaker: Breaker::new(Instant::now()),
            lost: None,
            canary_slot: None,
        };
        Self {
            place,
            common,
            state: Mutex::new(state),
            woken: Notify::new(),
            opened: Notify::new(),
        }
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// Why the server is not asked, if it is not.
    pub(crate) fn lost(&self) -> Option<String> {
        let state = self.state.lock();
        state.lost.as_ref().map(|why| format!("{}: {why}", self.place))
    }

    /// Whether a request may be put to it now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admits(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if state.breaker.admits(Instant::now()) {
            return Ok(());
        }
        let why = state.lost.as_deref().unwrap_or("not yet connected");
        Err(Failure::Lost(format!("{}: {why}", self.place)))
    }

    /// Waits until the server is asked.
    pub(crate) async fn ready(&self) {
        loop {
            let opened = self.opened.notified();
            if !self.state.lock().breaker.is_open() {
                return;
            }
            opened.await;
        }
    }

    /// Tells which slot the server has, so that probes use a key of it.
    pub(crate) fn has_slot(&self, slot: u16) {
        self.state.lock().canary_slot = Some(slot);
    }

    /// Sends commands in one go and waits for their answers, not longer than the deadline.
    ///
    /// # Errors
    /// When there are no answers; the breaker has been told.
    pub(crate) async fn exchange(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let (connection, number) = {
            let state = self.state.lock();
            (state.connection.clone(), state.number)
        };
        let Some(mut connection) = connection else {
            return Err(Failure::Lost(format!("{}: not connected", self.place)));
        };
        let answers = connection.send_packed_commands(commands, 0, commands.len());
        match tokio::time::timeout(self.common.deadline, answers).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => {
                let why = error.to_string();
                self.drop_connection(number, &why);
                Err(Failure::Lost(format!("{}: {why}", self.place)))
            }
            Err(_) => {
                let why = format!("no answer within {:?}", self.common.deadline);
                self.failed(&why);
                Err(Failure::Lost(format!("{}: {why}", self.place)))
            }
        }
    }

    /// A call was answered well.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state.lock();
        let change = state.breaker.succeeded(Instant::now());
        self.tell_change(&mut state, change, "");
    }

    /// A call was answered with an error, or not in time.
    pub(crate) fn failed(&self, why: &str) {
        let mut state = self.state.lock();
        let change = state.breaker.failed(Instant::now());
        if state.breaker.is_open() {
            // What was not answered in time may sit in a connection that leads nowhere.
            state.connection = None;
            self.woken.notify_one();
        }
        self.tell_change(&mut state, change, why);
    }

    /// The connection is of no use any more.
    pub(crate) fn disconnect(&self, why: &str) {
        let number = self.state.lock().number;
        self.drop_connection(number, why);
    }

    fn drop_connection(&self, number: u64, why: &str) {
        let mut state = self.state.lock();
        if state.number == number && state.connection.take().is_some() {
            let change = state.breaker.lost(Instant::now());
            self.woken.notify_one();
            self.tell_change(&mut state, change, why);
        }
    }

    fn tell_change(&self, state: &mut State, change: Option<Change>, why: &str) {
        let server = || self.place.to_string();
        match change {
            Some(Change::Opened) if state.lost.is_none() => {
                state.lost = Some(why.to_owned());
                self.tell(&Event::Lost { server: server(), why: why.to_owned() });
            }
            Some(Change::Closed) if state.lost.take().is_some() => {
                self.tell(&Event::Back { server: server() });
            }
            _ => {}
        }
    }

    fn tell(&self, event: &Event) {
        (self.common.observer.0)(event);
    }

    /// Looks after the connection for as long as the link is used.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (open, closing) = {
                let breaker = &self.state.lock().breaker;
                (breaker.is_open(), breaker.is_closing())
            };
            if let Some(step) = closing {
                tokio::time::sleep(step).await;
                self.probe_again().await;
                continue;
            }
            if !open {
                self.woken.notified().await;
                continue;
            }
            match self.mend().await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(why) => {
                    self.unreachable(why);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn unreachable(&self, why: String) {
        let mut state = self.state.lock();
        let news = state.lost.is_none();
        state.lost = Some(why.clone());
        drop(state);
        if news {
            self.tell(&Event::Lost { server: self.place.to_string(), why });
        }
    }

    /// Probes while a share is asked, so that all is asked again also where nobody asks.
    async fn probe_again(&self) {
        let open = self.state.lock().connection.clone();
        let Some(mut connection) = open else { return };
        match self.probe(&mut connection).await {
            Ok(()) => self.succeeded(),
            Err(why) => self.failed(&why),
        }
    }

    /// Connects if need be, and probes.
    async fn mend(&self) -> Result<(), String> {
        let open = self.state.lock().connection.clone();
        let mut connection = match open {
            Some(connection) => connection,
            None => {
                let mut connection = self.common.connector.open(&self.place).await?;
                // So that the probe is as quick as a decision. Where it is not allowed, the first
                // decision brings the text.
                let text = &self.common.script.text;
                _ = ask(&mut connection, cmd("SCRIPT").arg("LOAD").arg(text)).await;
                connection
            }
        };
        self.probe(&mut connection).await?;
        let mut state = self.state.lock();
        if state.connection.is_none() {
            state.number += 1;
            state.connection = Some(connection);
        }
        let change = state.breaker.probed(Instant::now());
        self.tell_change(&mut state, change, "");
        self.opened.notify_waiters();
        Ok(())
    }

    /// Charges a counter that limits nobody, with the real script, inside the deadline.
    async fn probe(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let ask = canary(&self.common.prefix, self.state.lock().canary_slot)?;
        let asks = [Arc::new(ask)];
        let batch = Batch::new(&asks);
        let now = self.common.rehearsal.as_ref().map(ManualClock::now);
        let command = batch.command(&self.common.script, false, now);
        let mut answer = self.within_deadline(connection, &command).await?;
        if matches!(&answer, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            let command = batch.command(&self.common.script, true, now);
            answer = self.within_deadline(connection, &command).await?;
        }
        match answer {
            Value::ServerError(error) => Err(error.to_string()),
            answer => Replay::of(answer)
                .and_then(|mut replay| replay.next(&asks[0], &batch.places[0]))
                .map(drop)
                .ok_or_else(|| "the script answers strangely".to_owned()),
        }
    }

    async fn within_deadline(
        &self,
        connection: &mut MultiplexedConnection,
        command: &redis::Cmd,
    ) -> Result<Value, String> {
        let mut commands = Pipeline::new();
        commands.add_command(command.clone());
        let answers = connection.send_packed_commands(&commands, 0, 1);
        match tokio::time::timeout(self.common.deadline, answers).await {
            Ok(Ok(answers)) => answers.into_iter().next().ok_or_else(|| "no answer".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.common.deadline)),
        }
    }
}

/// A charge to a counter of nobody's, on a slot that the server has.
pub(crate) fn canary(prefix: &str, on: Option<u16>) -> Result<Ask, String> {
    let quota = Quota::new(1_000_000, Micros::from_secs(1));
    let policy = Policy::new(Algorithm::TokenBucket, quota).map_err(|error| error.to_string())?;
    let named = |number: u32| Name::from_slice(format!("{prefix}canary:{{{number}}}").as_bytes());
    let name = match on {
        None => named(0),
        // Any slot is found among the first few hundred thousand.
        Some(wanted) => {
            (0..1_000_000).map(named).find(|name| slot(name) == wanted).unwrap_or_default()
        }
    };
    let item = Item {
        fingerprint: Fingerprint::default(),
        name,
        policy,
        cost: 1,
        role: Role::Shadow,
        grace: None,
        ban: None,
    };
    Ok(Ask { op: Op::Charge, items: [item].into_iter().collect() })
}
