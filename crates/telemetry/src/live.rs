//! What goes on, told as it happens to whoever watches: server-sent events with everything that is counted, once
//! a second, and violations as they come.
//!
//! Counts are told as they are since the start; rates are the business of who reads. All listeners get the same
//! bytes, made once. Without listeners a refusal costs one look, and
//! only the [`DecisionHistory`] takes a sample each second.

mod history;
mod recent;
mod sources;

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
use tidegate_web::ProcessStatus;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::violation_log::ViolationLog;
pub use history::{DecisionHistory, RULES_PER_STEP, STEPS};
pub(crate) use recent::RecentViolations;

/// The most who listen at once.
pub const MAX_LISTENERS: usize = 16;

/// How often violations are told.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// Counts are told each time after so many steps.
const FLUSHES_PER_TICK: u64 = 4;

/// How many events a listener may be late; what is older it misses.
const MAX_LAG_EVENTS: usize = 8;

/// Whoever has something to tell with each tick.
pub trait LiveSource: Send + Sync {
    /// The name of what it tells, and that.
    fn live_data(&self) -> (&'static str, Json);
}

/// The events of one listener, as a body.
pub type LiveFeed = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// There are as many listeners as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyListenersError;

/// Tells what goes on.
pub struct LiveBroadcaster {
    sources: Vec<Arc<dyn LiveSource>>,
    log: Arc<ViolationLog>,
    status: Arc<ProcessStatus>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// What a listener gets first: the last minutes.
    history: Option<Arc<DecisionHistory>>,
    events: Sender<Bytes>,
    /// Whether somebody makes events. Who comes and who stops look at it one after the other.
    running: Mutex<bool>,
}

impl LiveBroadcaster {
    pub(crate) fn new(
        sources: Vec<Arc<dyn LiveSource>>,
        log: Arc<ViolationLog>,
        status: Arc<ProcessStatus>,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        let (events, running) = (Sender::new(MAX_LAG_EVENTS), Mutex::new(false));
        Self { sources, log, status, clock, history: None, events, running }
    }

    /// With the last minutes for a new listener. The caller runs [`DecisionHistory::run`].
    #[must_use]
    pub fn with_history(self, history: Arc<DecisionHistory>) -> Self {
        Self { history: Some(history), ..self }
    }

    /// The last minutes, if they are kept.
    #[must_use]
    pub fn history(&self) -> Option<Arc<DecisionHistory>> {
        self.history.clone()
    }

    /// Events from now on, the history and a tick at once, until the process is on its way out.
    ///
    /// # Errors
    /// When too many listen.
    pub fn subscribe(self: &Arc<Self>) -> Result<LiveFeed, TooManyListenersError> {
        let mut running = self.running.lock();
        if self.events.receiver_count() >= MAX_LISTENERS {
            return Err(TooManyListenersError);
        }
        let events = self.events.subscribe();
        if !std::mem::replace(&mut *running, true) {
            self.log.start_live();
            tokio::spawn(Arc::clone(self).run());
        }
        drop(running);
        let history =
            self.history.as_ref().map(|history| format_event("history", &history.steps()));
        let first = history.into_iter().chain([self.tick_event()]).collect();
        let listener = LiveListener { events, backlog: first, status: Arc::clone(&self.status) };
        let frames = unfold(listener, |mut listener| async {
            let event = listener.next().await?;
            Some((Ok(Frame::data(event)), listener))
        });
        Ok(StreamBody::new(frames.boxed()))
    }

    /// Makes events as long as somebody listens.
    async fn run(self: Arc<Self>) {
        let mut step = tokio::time::interval(FLUSH_INTERVAL);
        step.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for steps in 0_u64.. {
            step.tick().await;
            if self.stop_if_unused() {
                return;
            }
            // Nobody left to hear it is found out with the next step.
            if let Some(told) = self.log.take_recent() {
                let _ = self.events.send(format_event("violations", &told));
            }
            if steps % FLUSHES_PER_TICK == 0 {
                let _ = self.events.send(self.tick_event());
            }
        }
    }

    /// Whether nobody listens any more; then this is not running from now on.
    fn stop_if_unused(&self) -> bool {
        let mut running = self.running.lock();
        let alone = self.events.receiver_count() == 0;
        if alone {
            *running = false;
            self.log.stop_live();
        }
        alone
    }

    fn tick_event(&self) -> Bytes {
        let mut told = Map::new();
        told.insert("at_us".to_owned(), (self.clock)().as_micros().into());
        for (name, what) in self.sources.iter().map(|teller| teller.live_data()) {
            told.insert(name.to_owned(), what);
        }
        format_event("tick", &Json::Object(told))
    }
}

/// One who listens.
struct LiveListener {
    events: Receiver<Bytes>,
    /// Events that are there already.
    backlog: VecDeque<Bytes>,
    status: Arc<ProcessStatus>,
}

impl LiveListener {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.backlog.pop_front() {
            return Some(first);
        }
        loop {
            let heard = tokio::select! {
                heard = self.events.recv() => heard,
                () = self.status.wait_for_drain() => return None,
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
fn format_event(name: &str, data: &Json) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

impl fmt::Debug for LiveBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveBroadcaster").field("listeners", &self.events.receiver_count()).finish()
    }
}
