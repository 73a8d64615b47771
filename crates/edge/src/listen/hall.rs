//! Accepts connections until it is told to stop, then drains them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::connection::speak;
use super::crew::Crew;
use super::peers::Peers;
use super::socket::{Listener, Socket, moved};
use super::{Answers, Settings};
use crate::{Peer, Status};

/// How long to wait when the system has no more to give (file descriptors, memory).
const OUT_OF_RESOURCES: Duration = Duration::from_millis(50);

/// No more connections wait at a listener than this.
const MOST_ACCEPTED: usize = 4_096;

/// What all connections of a listener have in common.
pub(crate) struct Shared<D> {
    pub(crate) door: Arc<D>,
    pub(crate) settings: Settings,
    pub(crate) status: Arc<Status>,
    pub(super) peers: Peers,
}

/// A protocol, and the door that is behind it.
pub(crate) trait Speaks: Send + Sync + 'static {
    /// Speaks on a connection until it ends, dawdles, or is told to end.
    fn speak(
        shared: Arc<Shared<Self>>,
        socket: Socket,
        peer: Peer,
        stage: watch::Receiver<Stage>,
    ) -> impl Future<Output = ()> + Send
    where
        Self: Sized;
}

impl<D: Answers> Speaks for D {
    async fn speak(
        shared: Arc<Shared<Self>>,
        socket: Socket,
        peer: Peer,
        stage: watch::Receiver<Stage>,
    ) {
        speak(socket, peer, shared, stage).await;
    }
}

/// How far the stop has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It has not begun.
    #[default]
    Open,
    /// Each connection is closed with its next answer.
    Closing,
    /// Idle connections are closed too.
    Ending,
}

/// Answers on `listener` until `stop`, then drains: accepts no more, closes each connection with its
/// next answer, lets requests under way finish within the settings' `drain_timeout`, and returns.
pub async fn serve<D: Answers>(
    listener: impl Into<Listener> + Send,
    door: Arc<D>,
    settings: Settings,
    status: Arc<Status>,
    stop: impl Future<Output = ()> + Send,
) {
    attend(listener.into(), door, settings, status, stop).await;
}

/// [`serve`], in any protocol.
pub(crate) async fn attend<D: Speaks>(
    listener: Listener,
    door: Arc<D>,
    settings: Settings,
    status: Arc<Status>,
    stop: impl Future<Output = ()> + Send,
) {
    let peers = Peers::new(settings.max_connections_per_ip);
    let mut hall = Hall::new(Shared { door, settings, status, peers });
    let mut stop = pin!(stop);
    loop {
        let place = tokio::select! {
            biased;
            () = &mut stop => break,
            place = hall.place() => place,
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => hall.welcome(socket, peer, place),
                Err(error) => pause(&error).await,
            },
        }
    }
    hall.shared.status.drain();
    for (socket, peer) in accepted(listener) {
        let place = hall.place().await;
        hall.welcome(socket, peer, place);
    }
    hall.drain().await;
}

/// Closes a listener. Those that the system has accepted already would be reset with it, so they are
/// taken first.
fn accepted(listener: Listener) -> Vec<(Socket, Peer)> {
    let Ok(waiting) = listener.into_waiting() else { return Vec::new() };
    // A successor may accept from the same socket, and then there is always one more.
    waiting.take(MOST_ACCEPTED).collect()
}

/// The connections that are open.
struct Hall<D> {
    shared: Arc<Shared<D>>,
    places: Arc<Semaphore>,
    connections: JoinSet<()>,
    stage: watch::Sender<Stage>,
}

impl<D: Speaks> Hall<D> {
    fn new(shared: Shared<D>) -> Self {
        let places = shared.settings.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(shared),
            places: Arc::new(Semaphore::new(places)),
            connections: JoinSet::new(),
            stage: watch::Sender::new(Stage::Open),
        }
    }

    /// Waits until there is room for one more; never none, because the semaphore is not closed.
    fn place(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<D> {
        let places = Arc::clone(&self.places);
        async move { places.acquire_owned().await.ok() }
    }

    fn welcome(&mut self, socket: Socket, peer: Peer, place: Option<OwnedSemaphorePermit>) {
        let (shared, stage) = (Arc::clone(&self.shared), self.stage.subscribe());
        // In the order in which they come, so that the last is the one too many. Who says nothing has a place too.
        // Whom the PROXY protocol names is known only later.
        let own = (!shared.settings.proxy_protocol).then(|| shared.peers.enter(peer));
        if matches!(own, Some(None)) {
            return;
        }
        let place = (place, own);
        match self.shared.settings.crew.as_ref().and_then(Crew::seat) {
            None => self.connections.spawn(async move {
                D::speak(shared, socket, peer, stage).await;
                drop(place);
            }),
            Some((thread, seat)) => {
                let speaking = async move {
                    match moved(socket) {
                        Ok(socket) => D::speak(shared, socket, peer, stage).await,
                        Err(error) => tracing::warn!(%error, "could not take up a connection"),
                    }
                    drop((place, seat));
                };
                self.connections.spawn_on(speaking, thread)
            }
        };
        while let Some(ended) = self.connections.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a connection's task failed");
            }
        }
    }

    async fn drain(mut self) {
        let Settings { drain_grace, drain_timeout, .. } = self.shared.settings;
        let grace = drain_grace.min(drain_timeout);
        self.stage.send_replace(Stage::Closing);
        if tokio::time::timeout(grace, self.all_ended()).await.is_ok() {
            return;
        }
        self.stage.send_replace(Stage::Ending);
        if tokio::time::timeout(drain_timeout - grace, self.all_ended()).await.is_err() {
            tracing::warn!(
                left = self.connections.len(),
                "requests cut off at the end of the drain"
            );
            self.connections.shutdown().await;
        }
    }

    async fn all_ended(&mut self) {
        while self.connections.join_next().await.is_some() {}
    }
}

/// Some errors are the connection's own, and the next may be well; others last for a while.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "could not accept a connection");
    let of_the_connection = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::Interrupted,
    ];
    if !of_the_connection.contains(&error.kind()) {
        tokio::time::sleep(OUT_OF_RESOURCES).await;
    }
}
