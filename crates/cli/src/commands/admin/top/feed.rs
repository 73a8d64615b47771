//! What a server tells, read as it comes: its events, and now and then which keys occur most and who else is there. When the connection is
//! lost it comes back by itself, as often as that takes.

use std::time::Duration;

use futures_util::future::join;
use tokio::sync::mpsc::Sender;

use super::super::api::AdminClient;
use super::api_types::{LiveKey, LiveKeysResponse, LiveNode, LiveTick, NodesResponse};
use crate::http_client::SseStream;
use tidegate_server::error::CommandError;

/// A server that says nothing for so long is as good as none: it tells something each second.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(6);

/// How long to wait before the first attempt to come back, the second, …
const RECONNECT_DELAYS: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// How often the rest is asked for.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How many of each list.
const MAX_KEYS: u32 = 20;

/// What was heard.
#[derive(Debug)]
pub(super) enum FeedEvent {
    /// Everything that is counted.
    Tick(Box<LiveTick>),
    /// What is asked for now and then.
    Details(PolledDetails),
    /// Nothing comes any more, and why.
    Disconnected(String),
}

/// What is asked for now and then.
#[derive(Debug, Default)]
pub(super) struct PolledDetails {
    /// The keys that occur most.
    pub(super) keys: Vec<LiveKey>,
    /// Who follows the same rules.
    pub(super) nodes: Vec<LiveNode>,
}

/// Opens the stream of events.
///
/// # Errors
/// When the API does not tell.
pub(super) async fn open_stream(api: &AdminClient) -> Result<SseStream, CommandError> {
    api.subscribe("/v1/live").await
}

/// The keys that occur most, and the nodes.
///
/// # Errors
/// When the API does not tell.
pub(super) async fn fetch_details(api: &AdminClient) -> Result<PolledDetails, CommandError> {
    let keys =
        api.get(&format!("/v1/top?limit={MAX_KEYS}")).await?.parse::<LiveKeysResponse>()?.top;
    let nodes = api.get("/v1/status").await?.parse::<NodesResponse>()?.nodes;
    Ok(PolledDetails { keys, nodes })
}

/// The next tick of a stream.
///
/// # Errors
/// Why there is none.
pub(super) async fn next_tick(events: &mut SseStream) -> Result<Box<LiveTick>, String> {
    loop {
        let next = tokio::time::timeout(SILENCE_TIMEOUT, events.next()).await;
        let event =
            next.map_err(|_| format!("nothing came for {} s", SILENCE_TIMEOUT.as_secs()))??;
        if event.name == "tick" {
            let read = serde_json::from_str(&event.data);
            return read
                .map_err(|why| format!("it is not understood, is it another version? {why}"));
        }
    }
}

/// Tells what comes until nobody listens, from a stream that is open.
pub(super) async fn run(api: AdminClient, first: SseStream, to: Sender<FeedEvent>) {
    join(forward_ticks(&api, first, &to), poll_details(&api, &to)).await;
}

async fn forward_ticks(api: &AdminClient, first: SseStream, to: &Sender<FeedEvent>) {
    let (mut stream, mut failures) = (Ok::<_, CommandError>(first), 0);
    loop {
        let why = match &mut stream {
            Ok(events) => loop {
                match next_tick(events).await {
                    Ok(tick) => match to.send(FeedEvent::Tick(tick)).await {
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
        if to.send(FeedEvent::Disconnected(why)).await.is_err() {
            return;
        }
        tokio::time::sleep(RECONNECT_DELAYS[failures.min(RECONNECT_DELAYS.len() - 1)]).await;
        failures += 1;
        stream = open_stream(api).await;
    }
}

/// Nobody who asks in vain says so here: whoever follows the events does.
async fn poll_details(api: &AdminClient, to: &Sender<FeedEvent>) {
    while !to.is_closed() {
        if let Ok(asked) = fetch_details(api).await {
            let _ = to.send(FeedEvent::Details(asked)).await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
