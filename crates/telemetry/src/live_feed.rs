//! The live feed: a stream of server-sent events with all counters once a second, and violations as
//! they occur.
//!
//! Counters are totals since the start; clients compute rates. An event is rendered once and all
//! listeners get the same bytes. Without listeners, a refusal checks one flag, and only the
//! [`DecisionHistory`] takes a sample each second.

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

/// Maximum number of concurrent listeners.
pub const MAX_LISTENERS: usize = 16;

/// How often violations are sent.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// Number of flush intervals between two `tick` events, which carry the counters.
const FLUSHES_PER_TICK: u64 = 4;

/// How many events a listener may lag behind; it misses older ones.
const MAX_LAG_EVENTS: usize = 8;

/// A source of data for the `tick` events.
pub trait LiveSource: Send + Sync {
    /// The field name in the event, and its value.
    fn live_data(&self) -> (&'static str, Json);
}

/// The events for one listener, as a response body.
pub type LiveFeed = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// The number of listeners has reached [`MAX_LISTENERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyListenersError;

/// Sends events to all listeners.
pub struct LiveBroadcaster {
    sources: Vec<Arc<dyn LiveSource>>,
    log: Arc<ViolationLog>,
    status: Arc<ProcessStatus>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The last two minutes, sent first to each new listener.
    history: Option<Arc<DecisionHistory>>,
    events: Sender<Bytes>,
    /// Whether the task that makes events runs. The lock serializes its start in `subscribe` and
    /// its end in `stop_if_unused`.
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

    /// Sends this history to each new listener. The caller runs [`DecisionHistory::run`].
    #[must_use]
    pub fn with_history(self, history: Arc<DecisionHistory>) -> Self {
        Self { history: Some(history), ..self }
    }

    /// The history, if one is kept.
    #[must_use]
    pub fn history(&self) -> Option<Arc<DecisionHistory>> {
        self.history.clone()
    }

    /// Adds a listener. It gets the history and a `tick` at once, then all events until the process
    /// drains.
    ///
    /// # Errors
    /// If there are [`MAX_LISTENERS`] listeners already.
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
        let backlog = history.into_iter().chain([self.tick_event()]).collect();
        let listener = LiveListener { events, backlog, status: Arc::clone(&self.status) };
        let frames = unfold(listener, |mut listener| async {
            let event = listener.next().await?;
            Some((Ok(Frame::data(event)), listener))
        });
        Ok(StreamBody::new(frames.boxed()))
    }

    /// Sends events as long as there are listeners.
    async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(FLUSH_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for flushes in 0_u64.. {
            interval.tick().await;
            if self.stop_if_unused() {
                return;
            }
            // `send` fails if the last listener has left; the next iteration stops the task.
            if let Some(violations) = self.log.take_recent() {
                let _ = self.events.send(format_event("violations", &violations));
            }
            if flushes % FLUSHES_PER_TICK == 0 {
                let _ = self.events.send(self.tick_event());
            }
        }
    }

    /// Returns whether there are no listeners left, and if so marks the task as stopped.
    fn stop_if_unused(&self) -> bool {
        let mut running = self.running.lock();
        let is_unused = self.events.receiver_count() == 0;
        if is_unused {
            *running = false;
            self.log.stop_live();
        }
        is_unused
    }

    fn tick_event(&self) -> Bytes {
        let mut data = Map::new();
        data.insert("at_us".to_owned(), (self.clock)().as_micros().into());
        for (name, value) in self.sources.iter().map(|source| source.live_data()) {
            data.insert(name.to_owned(), value);
        }
        format_event("tick", &Json::Object(data))
    }
}

/// A subscribed listener.
struct LiveListener {
    events: Receiver<Bytes>,
    /// Events to send before those of the broadcast channel.
    backlog: VecDeque<Bytes>,
    status: Arc<ProcessStatus>,
}

impl LiveListener {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.backlog.pop_front() {
            return Some(first);
        }
        loop {
            let received = tokio::select! {
                received = self.events.recv() => received,
                () = self.status.wait_for_drain() => return None,
            };
            match received {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Formats a server-sent event. Compact JSON contains no line breaks, so one `data` line suffices.
fn format_event(name: &str, data: &Json) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

impl fmt::Debug for LiveBroadcaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveBroadcaster").field("listeners", &self.events.receiver_count()).finish()
    }
}
