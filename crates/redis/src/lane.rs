//! Natural batching: requests that come while a call is under way wait and travel together in the
//! next one. When nothing is under way, a request goes at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::{Pipeline, Value, cmd};
use smallvec::SmallVec;
use tidegate_core::time::{Clock as _, ManualClock};
use tokio::sync::oneshot;

use crate::address::Host;
use crate::ask::Ask;
use crate::batch::Batch;
use crate::connect::said;
use crate::link::{Failure, Link};
use crate::replay::{Replay, Told};
use crate::stats::Cause;

/// Calls under way at once: one is worked on by the server while the next is on its way.
const MAX_CALLS: usize = 2;

/// Requests that travel together.
const MAX_BATCH: usize = 128;

/// Keys of a call at most: a script has a stack of 8000.
const MAX_KEYS: usize = 6_000;

/// Requests that wait; those beyond are not answered by the store.
const MAX_WAITING: usize = 10_000;

/// Errors of a server that refuses a script as a whole, or at its first write: nothing was changed.
const NOTHING_RAN: [&str; 10] = [
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

/// The requests to one server.
#[derive(Debug)]
pub(crate) struct Lane {
    link: Arc<Link>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

/// One request, and who waits for it.
#[derive(Debug)]
struct Waiting {
    ask: Arc<Ask>,
    route: Route,
    answer: oneshot::Sender<Result<Told, Failure>>,
}

/// Which requests may share a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The cluster slot; none where there is no cluster.
    pub(crate) slot: Option<u16>,
    /// Whether to say that another server sent us.
    pub(crate) asking: bool,
    /// Whether it goes by itself: keys of a slot that is being moved may be in two places.
    pub(crate) alone: bool,
}

impl Lane {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, queue: Mutex::default() }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Puts a request in line.
    ///
    /// # Errors
    /// When the server is not asked at present, or too many wait already.
    pub(crate) fn submit(
        self: &Arc<Self>,
        ask: Arc<Ask>,
        route: Route,
    ) -> Result<oneshot::Receiver<Result<Told, Failure>>, Failure> {
        self.link.admits()?;
        if 3 * ask.items.len() > MAX_KEYS {
            return Err(Failure::NotSent(
                Cause::Crowded,
                "too many rules govern one request".to_owned(),
            ));
        }
        let (answer, answered) = oneshot::channel();
        let mut queue = self.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            return Err(Failure::NotSent(
                Cause::Crowded,
                format!("{MAX_WAITING} requests wait already"),
            ));
        }
        ask.enqueue();
        queue.waiting.push_back(Waiting { ask, route, answer });
        if queue.calls < MAX_CALLS {
            queue.calls += 1;
            tokio::spawn(Arc::clone(self).drive());
        }
        Ok(answered)
    }

    /// Makes calls until nobody waits. A task of its own: whoever asked may go away at any time.
    async fn drive(self: Arc<Self>) {
        loop {
            let batch: Vec<Waiting> = {
                let mut queue = self.queue.lock();
                let count = together(&queue.waiting);
                if count == 0 {
                    queue.calls -= 1;
                    return;
                }
                // A request that no caller waits for any more is not sent.
                let is_wanted = |one: &Waiting| !one.answer.is_closed() && one.ask.take();
                queue.waiting.drain(..count).filter(is_wanted).collect()
            };
            if !batch.is_empty() {
                self.link.common().counters.together(batch.len());
                self.call(batch).await;
            }
        }
    }

    async fn call(&self, mut batch: Vec<Waiting>) {
        let mut groups: SmallVec<[Vec<Waiting>; 1]> = SmallVec::new();
        if batch.iter().all(|one| one.route == batch[0].route && !one.route.alone) {
            groups.push(batch);
        } else {
            batch.sort_by_key(|one| (one.route.slot, one.route.asking, one.route.alone));
            for one in batch {
                match groups.last_mut() {
                    Some(group) if group[0].route == one.route && !one.route.alone => {
                        group.push(one);
                    }
                    _ => groups.push(vec![one]),
                }
            }
        }
        let common = self.link.common();
        let now = common.rehearsal.as_ref().map(ManualClock::now);
        // The asks are shared, so that what is sent can borrow from them.
        let asks: Vec<Vec<Arc<Ask>>> = groups
            .iter()
            .map(|group| group.iter().map(|one| Arc::clone(&one.ask)).collect())
            .collect();
        let calls: Vec<Call<'_>> = asks.iter().map(|asks| Call::new(asks)).collect();
        let commands = |whole: bool, which: &[usize]| {
            let mut commands = Pipeline::with_capacity(which.len());
            for &which in which {
                if groups[which][0].route.asking {
                    commands.add_command(cmd("ASKING"));
                }
                commands.add_command(calls[which].batch.command(&common.script, whole, now));
            }
            commands
        };
        let all: Vec<usize> = (0..groups.len()).collect();
        let mut answers = self.exchange(&commands(false, &all), &groups, &all).await;
        let unknown: Vec<usize> = all.into_iter().filter(|&i| is_unknown(&answers[i])).collect();
        if !unknown.is_empty() {
            // The script is not there: nothing ran, so it is sent along with the same question.
            let again = self.exchange(&commands(true, &unknown), &groups, &unknown).await;
            for (i, answer) in unknown.into_iter().zip(again) {
                answers[i] = answer;
            }
        }
        let mut told = Vec::with_capacity(calls.len());
        for (call, answer) in calls.into_iter().zip(answers) {
            told.push(self.read(&call, answer));
        }
        for (group, told) in groups.into_iter().zip(told) {
            for (one, told) in group.into_iter().zip(told) {
                // Whoever has gone away meanwhile does not hear it.
                _ = one.answer.send(told);
            }
        }
    }

    /// The answers to the calls of some groups, without those to what only introduces them.
    async fn exchange(
        &self,
        commands: &Pipeline,
        groups: &[Vec<Waiting>],
        which: &[usize],
    ) -> Vec<Result<Value, Failure>> {
        match self.link.exchange(commands).await {
            Err(failure) => which.iter().map(|_| Err(failure.clone())).collect(),
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let mut answer = |which: &usize| {
                    if groups[*which][0].route.asking {
                        answers.next();
                    }
                    answers.next().ok_or_else(|| {
                        Failure::Lost(Cause::Refused, "an answer is missing".to_owned())
                    })
                };
                which.iter().map(&mut answer).collect()
            }
        }
    }

    /// What each request of a call is told.
    fn read(&self, call: &Call<'_>, answer: Result<Value, Failure>) -> Vec<Result<Told, Failure>> {
        let failure = match answer {
            Err(failure) => failure,
            Ok(Value::ServerError(error)) => self.refused(&error),
            Ok(answer) => {
                if let Some(told) = call.replay(answer) {
                    self.link.succeeded();
                    return told.into_iter().map(Ok).collect();
                }
                // Somebody else's data under our keys, or a defect of ours.
                let why = "the script and the core disagree";
                self.link.failed(why);
                Failure::Lost(Cause::Refused, why.to_owned())
            }
        };
        call.asks.iter().map(|_| Err(failure.clone())).collect()
    }

    /// What an error of the server's means to those who asked.
    fn refused(&self, error: &redis::ServerError) -> Failure {
        let redirected = || {
            let (_, to) = error.details()?.split_once(' ')?;
            let (name, port) = to.rsplit_once(':')?;
            Some(Host { name: name.to_owned(), port: port.parse().ok()? })
        };
        match (error.code(), redirected()) {
            ("MOVED", Some(host)) => return Failure::Moved(host),
            ("ASK", Some(host)) => return Failure::Ask(host),
            ("TRYAGAIN", _) => return Failure::TryAgain,
            // It was the primary once; who is now has to be found out.
            ("READONLY", _) => self.link.disconnect(&said(error)),
            _ => self.link.failed(&said(error)),
        }
        match NOTHING_RAN.contains(&error.code()) {
            true => Failure::NotSent(Cause::Refused, said(error)),
            false => Failure::Lost(Cause::Refused, said(error)),
        }
    }
}

/// The requests of one call.
struct Call<'a> {
    asks: &'a [Arc<Ask>],
    batch: Batch<'a>,
}

impl<'a> Call<'a> {
    fn new(asks: &'a [Arc<Ask>]) -> Self {
        Self { asks, batch: Batch::new(asks) }
    }

    /// The readings of all requests, if the answer is one.
    fn replay(&self, answer: Value) -> Option<Vec<Told>> {
        let mut replay = Replay::of(answer)?;
        let requests = self.asks.iter().zip(&self.batch.places);
        requests.map(|(ask, places)| replay.next(ask, places)).collect()
    }
}

/// How many of those who wait travel together.
fn together(waiting: &VecDeque<Waiting>) -> usize {
    let mut keys = 0;
    let few = waiting.iter().take(MAX_BATCH).take_while(|one| {
        keys += 3 * one.ask.items.len();
        keys <= MAX_KEYS
    });
    // One that is too large for company travels alone.
    few.count().max(1).min(waiting.len())
}

fn is_unknown(answer: &Result<Value, Failure>) -> bool {
    matches!(answer, Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT")
}
