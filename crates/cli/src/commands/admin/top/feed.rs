//! Receives data from the server: ticks from the event stream, and keys and nodes by polling.
//! Reconnects after a lost connection, without a limit on the number of attempts.

use std::time::Duration;

use futures_util::future::join;
use tokio::sync::mpsc::Sender;

use super::super::api::AdminClient;
use super::api_types::{LiveKey, LiveKeysResponse, LiveNode, LiveTick, NodesResponse};
use crate::http_client::SseStream;
use tidegate_server::error::CommandError;

/// Time without an event after which the connection counts as lost. The server sends a tick every
/// second.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(6);

/// Delays before the first attempt to reconnect, the second, and so on; the last one repeats.
const RECONNECT_DELAYS: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Poll interval for keys and nodes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of keys in each list.
const MAX_KEYS: u32 = 20;

/// An event of the feed.
#[derive(Debug)]
pub(super) enum FeedEvent {
    /// New counts.
    Tick(Box<LiveTick>),
    /// New keys and nodes.
    Details(PolledDetails),
    /// The connection was lost, with the reason.
    Disconnected(String),
}

/// The data that is polled.
#[derive(Debug, Default)]
pub(super) struct PolledDetails {
    /// The most frequent keys.
    pub(super) keys: Vec<LiveKey>,
    /// The nodes that use the same rules.
    pub(super) nodes: Vec<LiveNode>,
}

/// Opens the event stream.
///
/// # Errors
/// If the request fails or the API returns an error.
pub(super) async fn open_stream(api: &AdminClient) -> Result<SseStream, CommandError> {
    api.subscribe("/v1/live").await
}

/// Fetches the most frequent keys and the nodes.
///
/// # Errors
/// If a request fails or the API returns an error.
pub(super) async fn fetch_details(api: &AdminClient) -> Result<PolledDetails, CommandError> {
    let keys =
        api.get(&format!("/v1/top?limit={MAX_KEYS}")).await?.parse::<LiveKeysResponse>()?.top;
    let nodes = api.get("/v1/status").await?.parse::<NodesResponse>()?.nodes;
    Ok(PolledDetails { keys, nodes })
}

/// Waits for the next tick of a stream.
///
/// # Errors
/// If the connection is lost or silent, or the tick cannot be parsed.
pub(super) async fn next_tick(events: &mut SseStream) -> Result<Box<LiveTick>, String> {
    loop {
        let next = tokio::time::timeout(SILENCE_TIMEOUT, events.next()).await;
        let event =
            next.map_err(|_| format!("no events for {} s", SILENCE_TIMEOUT.as_secs()))??;
        if event.name == "tick" {
            let tick = serde_json::from_str(&event.data);
            return tick
                .map_err(|why| format!("cannot parse the event; is it another version? {why}"));
        }
    }
}

/// Sends events to a channel until its receiver is dropped. Starts with the open stream `first`.
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
        // The lines below the first have advice on how to start, which does not apply here.
        let why = why.lines().next().unwrap_or_default().to_owned();
        if to.send(FeedEvent::Disconnected(why)).await.is_err() {
            return;
        }
        tokio::time::sleep(RECONNECT_DELAYS[failures.min(RECONNECT_DELAYS.len() - 1)]).await;
        failures += 1;
        stream = open_stream(api).await;
    }
}

/// Polls keys and nodes. Errors are ignored here; the event stream reports them.
async fn poll_details(api: &AdminClient, to: &Sender<FeedEvent>) {
    while !to.is_closed() {
        if let Ok(details) = fetch_details(api).await {
            let _ = to.send(FeedEvent::Details(details)).await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
