//! What a server tells, read as it comes: its events, and now and then which keys occur most and who else is there. When the connection is
//! lost it comes back by itself, as often as that takes.

use std::time::Duration;

use futures_util::future::join;
use tokio::sync::mpsc::Sender;

use super::super::api::Api;
use super::tick::{Fleet, Key, Keys, Node, Tick};
use crate::client::Events;
use crate::failure::Failure;

/// A server that says nothing for so long is as good as none: it tells something each second.
const QUIET: Duration = Duration::from_secs(6);

/// How long to wait before the first attempt to come back, the second, …
const PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// How often the rest is asked for.
const LOOK: Duration = Duration::from_secs(2);

/// How many of each list.
const MOST: u32 = 20;

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// Everything that is counted.
    Tick(Box<Tick>),
    /// What is asked for now and then.
    Asked(Asked),
    /// Nothing comes any more, and why.
    Lost(String),
}

/// What is asked for now and then.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The keys that occur most.
    pub(super) keys: Vec<Key>,
    /// Who follows the same rules.
    pub(super) nodes: Vec<Node>,
}

/// Opens the stream of events.
///
/// # Errors
/// When the API does not tell.
pub(super) async fn open(api: &Api) -> Result<Events, Failure> {
    api.listen("/v1/live").await
}

/// The keys that occur most, and the nodes.
///
/// # Errors
/// When the API does not tell.
pub(super) async fn ask(api: &Api) -> Result<Asked, Failure> {
    let keys = api.get(&format!("/v1/top?limit={MOST}")).await?.read::<Keys>()?.top;
    let nodes = api.get("/v1/status").await?.read::<Fleet>()?.nodes;
    Ok(Asked { keys, nodes })
}

/// The next tick of a stream.
///
/// # Errors
/// Why there is none.
pub(super) async fn tick(events: &mut Events) -> Result<Box<Tick>, String> {
    loop {
        let next = tokio::time::timeout(QUIET, events.next()).await;
        let event = next.map_err(|_| format!("nothing came for {} s", QUIET.as_secs()))??;
        if event.name == "tick" {
            let read = serde_json::from_str(&event.data);
            return read
                .map_err(|why| format!("it is not understood, is it another version? {why}"));
        }
    }
}

/// Tells what comes until nobody listens, from a stream that is open.
pub(super) async fn run(api: Api, first: Events, to: Sender<Heard>) {
    join(follow(&api, first, &to), rank(&api, &to)).await;
}

async fn follow(api: &Api, first: Events, to: &Sender<Heard>) {
    let (mut stream, mut failures) = (Ok::<_, Failure>(first), 0);
    loop {
        let why = match &mut stream {
            Ok(events) => loop {
                match tick(events).await {
                    Ok(tick) => match to.send(Heard::Tick(tick)).await {
                        Ok(()) => failures = 0,
                        Err(_) => return,
                    },
                    Err(why) => break why,
                }
            },
            Err(failure) => failure.to_string(),
        };
        // The advice below the first line is for those who have not begun yet.
        let why = why.lines().next().unwrap_or_default().to_owned();
        if to.send(Heard::Lost(why)).await.is_err() {
            return;
        }
        tokio::time::sleep(PAUSES[failures.min(PAUSES.len() - 1)]).await;
        failures += 1;
        stream = open(api).await;
    }
}

/// Nobody who asks in vain says so here: whoever follows the events does.
async fn rank(api: &Api, to: &Sender<Heard>) {
    while !to.is_closed() {
        if let Ok(asked) = ask(api).await {
            let _ = to.send(Heard::Asked(asked)).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}
