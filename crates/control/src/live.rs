//! What goes on, told as it happens to whoever watches: server-sent events with everything that is counted, once
//! a second, and violations as they come.
//!
//! Counts are told as they are since the start; rates are the business of who reads. All listeners get the same
//! bytes, made once. Without listeners a refusal costs one look, and
//! only the [`History`] takes a sample each second.

mod history;
mod recent;
mod tellers;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, unfold};
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Map, Value as Json};
use tidegate_core::time::Timestamp;
use tidegate_edge::Status;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::log::ViolationLog;
pub use history::{History, RULES_PER_STEP, STEPS};
pub(crate) use recent::Recent;

/// The most who listen at once.
pub const MOST_LISTENERS: usize = 16;

/// How often violations are told.
const STEP: Duration = Duration::from_millis(250);

/// Counts are told each time after so many steps.
const STEPS_A_TICK: u64 = 4;

/// How many events a listener may be late; what is older it misses.
const LATE: usize = 8;

/// Whoever has something to tell with each tick.
pub trait Tells: Send + Sync {
    /// The name of what it tells, and that.
    fn tell(&self) -> (&'static str, Json);
}

/// The events of one listener, as a body.
pub type Feed = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// There are as many listeners as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

/// Tells what goes on.
pub struct Live {
    tellers: Vec<Arc<dyn Tells>>,
    log: Arc<ViolationLog>,
    status: Arc<Status>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// What a listener gets first: the last minutes.
    history: Option<Arc<History>>,
    events: Sender<Bytes>,
    /// Whether somebody makes events. Who comes and who stops look at it one after the other.
    running: Mutex<bool>,
}

impl Live {
    pub(crate) fn new(
        tellers: Vec<Arc<dyn Tells>>,
        log: Arc<ViolationLog>,
        status: Arc<Status>,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (events, running) = (Sender::new(LATE), Mutex::new(false));
        Self { tellers, log, status, clock, history: None, events, running }
    }

    /// With the last minutes for a new listener. The caller runs [`History::run`].
    #[must_use]
    pub fn with_history(self, history: Arc<History>) -> Self {
        Self { history: Some(history), ..self }
    }

    /// The last minutes, if they are kept.
    #[must_use]
    pub fn history(&self) -> Option<Arc<History>> {
        self.history.clone()
    }

    /// Events from now on, the history and a tick at once, until the process is on its way out.
    ///
    /// # Errors
    /// When too many listen.
    pub fn listen(self: &Arc<Self>) -> Result<Feed, Crowded> {
        let mut running = self.running.lock();
        if self.events.receiver_count() >= MOST_LISTENERS {
            return Err(Crowded);
        }
        let events = self.events.subscribe();
        if !std::mem::replace(&mut *running, true) {
            self.log.watch();
            tokio::spawn(Arc::clone(self).run());
        }
        drop(running);
        let history = self.history.as_ref().map(|history| event("history", &history.steps()));
        let first = history.into_iter().chain([self.tick()]).collect();
        let listener = Listener { events, first, status: Arc::clone(&self.status) };
        let frames = unfold(listener, |mut listener| async {
            let event = listener.next().await?;
            Some((Ok(Frame::data(event)), listener))
        });
        Ok(StreamBody::new(frames.boxed()))
    }

    /// Makes events as long as somebody listens.
    async fn run(self: Arc<Self>) {
        let mut step = tokio::time::interval(STEP);
        step.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for steps in 0_u64.. {
            step.tick().await;
            if self.is_alone() {
                return;
            }
            // Nobody left to hear it is found out with the next step.
            if let Some(told) = self.log.recent() {
                let _ = self.events.send(event("violations", &told));
            }
            if steps % STEPS_A_TICK == 0 {
                let _ = self.events.send(self.tick());
            }
        }
    }

    /// Whether nobody listens any more; then this is not running from now on.
    fn is_alone(&self) -> bool {
        let mut running = self.running.lock();
        let alone = self.events.receiver_count() == 0;
        if alone {
            *running = false;
            self.log.look_away();
        }
        alone
    }

    fn tick(&self) -> Bytes {
        let mut told = Map::new();
        told.insert("at_us".to_owned(), (self.clock)().as_micros().into());
        for (name, what) in self.tellers.iter().map(|teller| teller.tell()) {
            told.insert(name.to_owned(), what);
        }
        event("tick", &Json::Object(told))
    }
}

/// One who listens.
struct Listener {
    events: Receiver<Bytes>,
    /// Events that are there already.
    first: VecDeque<Bytes>,
    status: Arc<Status>,
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        loop {
            let heard = tokio::select! {
                heard = self.events.recv() => heard,
                () = self.status.until_draining() => return None,
            };
            match heard {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// An event as it is sent. JSON has no line ends within.
fn event(name: &str, data: &Json) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("listeners", &self.events.receiver_count()).finish()
    }
}
