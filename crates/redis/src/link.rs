//! A server that is asked, and the one who looks after the connection to it.
//!
//! A call that fails never waits for a new connection: without one, whoever asks is told at once. The
//! keeper makes connections, probes with the real script, and lets the breaker close.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value, cmd};
use tidegate_core::time::{Clock as _, ManualClock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::address::Host;
use crate::ask::Ask;
use crate::batch::Batch;
use crate::breaker::{Breaker, Change};
use crate::canary::canary;
use crate::connect::{Connector, Place, ask, said};
use crate::observer::{Event, Observer};
use crate::replay::Replay;
use crate::script::Text;
use crate::stats::{BreakerState, Cause, Counters};

/// How long the keeper waits between attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// After how long a server that nobody asks is probed, so that its loss is known before it matters.
const IDLE: Duration = Duration::from_secs(1);

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
    pub(crate) counters: Counters,
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may or may not have been done.
    Lost(Cause, String),
    /// It was not sent, or the server did not begin with it: nothing was done.
    NotSent(Cause, String),
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
    /// Whether it is one of a cluster, which sends those away who ask for what it does not have.
    in_cluster: bool,
}

#[derive(Debug)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Which connection it is: news of an older one is no news.
    number: u64,
    breaker: Breaker,
    /// Why it was lost, as long as it is.
    lost: Option<String>,
    /// Whether it was let go: nothing more is told of it.
    let_go: bool,
    /// Whether somebody was answered since the keeper last looked.
    answered: bool,
    /// A slot that the server has, for probes, and the probe.
    canary_slot: Option<u16>,
    canary: Option<Arc<Ask>>,
}

impl Link {
    pub(crate) fn new(place: Place, common: Arc<Common>) -> Self {
        let state = State {
            connection: None,
            number: 0,
            breaker: Breaker::new(Instant::now()),
            lost: None,
            let_go: false,
            answered: false,
            canary_slot: None,
            canary: None,
        };
        Self {
            place,
            common,
            state: Mutex::new(state),
            woken: Notify::new(),
            opened: Notify::new(),
            in_cluster: false,
        }
    }

    /// A server of a cluster.
    pub(crate) fn in_cluster(host: &Host, common: Arc<Common>) -> Self {
        Self { in_cluster: true, ..Self::new(Place::Server(host.clone()), common) }
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// Why the server is not asked, if it is not.
    pub(crate) fn lost(&self) -> Option<String> {
        let state = self.state.lock();
        state.lost.as_ref().map(|why| format!("{}: {why}", self.place))
    }

    /// Which server it is, and whether it is asked.
    pub(crate) fn breaker(&self) -> (String, BreakerState) {
        (self.place.to_string(), self.state.lock().breaker.state())
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
        Err(Failure::NotSent(Cause::BreakerOpen, format!("{}: {why}", self.place)))
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
        let mut state = self.state.lock();
        if state.canary_slot != Some(slot) {
            (state.canary_slot, state.canary) = (Some(slot), None);
        }
    }

    /// Sends commands in one go and waits for their answers, not longer than the deadline.
    ///
    /// # Errors
    /// When there are no answers; the breaker has been told.
    pub(crate) async fn exchange(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        self.send(commands).await.map_err(|failure| failure.at(&self.place))
    }

    async fn send(&self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let (connection, number) = {
            let state = self.state.lock();
            (state.connection.clone(), state.number)
        };
        let Some(mut connection) = connection else {
            return Err(Failure::NotSent(Cause::Disconnected, "not connected".to_owned()));
        };
        let sent = Instant::now();
        let answers = connection.send_packed_commands(commands, 0, commands.len());
        match tokio::time::timeout(self.common.deadline, answers).await {
            Ok(Ok(answers)) => {
                self.common.counters.answered(sent);
                Ok(answers)
            }
            Ok(Err(error)) => {
                let why = error.to_string();
                self.drop_connection(number, &why);
                Err(Failure::Lost(Cause::Disconnected, why))
            }
            Err(_) => {
                let why = format!("no answer within {:?}", self.common.deadline);
                self.failed(&why);
                Err(Failure::Lost(Cause::Timeout, why))
            }
        }
    }

    /// A call was answered well.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state.lock();
        state.answered = true;
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
            _ if state.let_go => {}
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
        self.common.observer.hear(event);
    }

    /// Looks after the connection for as long as the link is used.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (open, closing) = {
                let breaker = &self.state.lock().breaker;
                (breaker.is_open(), breaker.is_closing())
            };
            if !open {
                let woken = self.woken.notified();
                if tokio::time::timeout(closing.unwrap_or(IDLE), woken).await.is_err() {
                    self.look().await;
                }
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
        let news = state.lost.is_none() && !state.let_go;
        state.lost = Some(why.clone());
        if news {
            self.tell(&Event::Lost { server: self.place.to_string(), why });
        }
    }

    /// Others have what this server had: it is not asked any more.
    pub(crate) fn let_go(&self) {
        let mut state = self.state.lock();
        state.let_go = true;
        if state.lost.take().is_some() {
            self.tell(&Event::Back { server: self.place.to_string() });
        }
    }

    /// Probes a server that nobody asks: its loss is noticed, and its breaker closes.
    async fn look(&self) {
        let answered = std::mem::take(&mut self.state.lock().answered);
        if !answered && self.probe().await.is_ok() {
            self.succeeded();
        }
    }

    /// Connects if need be, and probes.
    async fn mend(&self) -> Result<(), String> {
        if self.state.lock().connection.is_none() {
            let mut connection = self.common.connector.open(&self.place).await?;
            // A server that wants a password first cuts off whoever sends it so long a text, and does
            // not say why. A short question it refuses with the reason.
            ask(&mut connection, &cmd("TIME")).await?;
            // So that the probe is as quick as a decision. Where it is not allowed, the first
            // decision brings the text.
            let text = &self.common.script.text;
            _ = ask(&mut connection, cmd("SCRIPT").arg("LOAD").arg(text)).await;
            let mut state = self.state.lock();
            state.number += 1;
            state.connection = Some(connection);
        }
        self.probe().await?;
        let mut state = self.state.lock();
        if state.connection.is_none() {
            return Err("the connection was lost again".to_owned());
        }
        let change = state.breaker.probed(Instant::now());
        self.tell_change(&mut state, change, "");
        self.opened.notify_waiters();
        Ok(())
    }

    /// Charges a counter that limits nobody, with the real script, inside the deadline.
    ///
    /// # Errors
    /// Why that was not answered; the breaker has been told.
    async fn probe(&self) -> Result<(), String> {
        let asks = [self.canary()?];
        let batch = Batch::new(&asks);
        let now = self.common.rehearsal.as_ref().map(ManualClock::now);
        let mut answer = self.put(batch.command(&self.common.script, false, now)).await?;
        if matches!(&answer, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            answer = self.put(batch.command(&self.common.script, true, now)).await?;
        }
        let why = match answer {
            // It has no slots yet, or others than we know of: it is well, and says who has them.
            Value::ServerError(error) if self.in_cluster && error.code() == "MOVED" => {
                return Ok(());
            }
            Value::ServerError(error) => said(&error),
            answer => {
                let told = Replay::of(answer)
                    .and_then(|mut replay| replay.next(&asks[0], &batch.places[0]));
                match told {
                    Some(_) => return Ok(()),
                    None => "the script answers strangely".to_owned(),
                }
            }
        };
        self.failed(&why);
        Err(why)
    }

    /// Sends one command.
    async fn put(&self, command: redis::Cmd) -> Result<Value, String> {
        let mut commands = Pipeline::new();
        commands.add_command(command);
        let answers = self.send(&commands).await.map_err(|failure| failure.to_string())?;
        answers.into_iter().next().ok_or_else(|| "no answer".to_owned())
    }

    /// The probe; a name on the right slot takes some finding.
    fn canary(&self) -> Result<Arc<Ask>, String> {
        let mut state = self.state.lock();
        if let Some(canary) = &state.canary {
            return Ok(Arc::clone(canary));
        }
        let canary = Arc::new(canary(&self.common.prefix, state.canary_slot)?);
        state.canary = Some(Arc::clone(&canary));
        Ok(canary)
    }
}
