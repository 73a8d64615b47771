//! Accepts connections until it is told to stop, then drains them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_core::store::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::connection::speak;
use super::{Door, Settings};

/// How long to wait when the system has no more to give (file descriptors, memory).
const OUT_OF_RESOURCES: Duration = Duration::from_millis(50);

/// Answers on `listener` until `stop`, then drains: accepts no more, closes each connection with its
/// next answer, lets requests under way finish within the settings' `drain_timeout`, and returns.
pub async fn serve<S: Store + 'static, L: Store + 'static>(
    listener: TcpListener,
    door: Arc<Door<S, L>>,
    stop: impl Future<Output = ()> + Send,
) {
    let mut hall = Hall::new(door);
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
                Ok((tcp, peer)) => hall.welcome(tcp, peer, place),
                Err(error) => pause(&error).await,
            },
        }
    }
    hall.door.status.drain();
    // Those that the system has accepted already would be reset when the listener closes.
    while let Poll::Ready(Ok((tcp, peer))) =
        poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await
    {
        let place = hall.place().await;
        hall.welcome(tcp, peer, place);
    }
    drop(listener);
    hall.drain().await;
}

/// The connections that are open.
struct Hall<S, L> {
    door: Arc<Door<S, L>>,
    places: Arc<Semaphore>,
    connections: JoinSet<()>,
    ending: watch::Sender<bool>,
}

impl<S: Store + 'static, L: Store + 'static> Hall<S, L> {
    fn new(door: Arc<Door<S, L>>) -> Self {
        let places = door.settings.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            door,
            places: Arc::new(Semaphore::new(places)),
            connections: JoinSet::new(),
            ending: watch::Sender::new(false),
        }
    }

    /// Waits until there is room for one more; never none, because the semaphore is not closed.
    fn place(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<S, L> {
        let places = Arc::clone(&self.places);
        async move { places.acquire_owned().await.ok() }
    }

    fn welcome(&mut self, tcp: TcpStream, peer: SocketAddr, place: Option<OwnedSemaphorePermit>) {
        // An answer is one small write: it must not wait for the acknowledgement of the last.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let speaking = speak(tcp, peer.ip(), Arc::clone(&self.door), self.ending.subscribe());
        self.connections.spawn(async move {
            speaking.await;
            drop(place);
        });
        while let Some(ended) = self.connections.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a connection's task failed");
            }
        }
    }

    async fn drain(mut self) {
        let Settings { drain_grace, drain_timeout, .. } = self.door.settings;
        let grace = drain_grace.min(drain_timeout);
        if tokio::time::timeout(grace, self.all_ended()).await.is_ok() {
            return;
        }
        self.ending.send_replace(true);
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
