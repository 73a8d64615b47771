//! Accepts connections until shutdown, then drains them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::connection::serve_http_connection;
use super::per_ip_connections::PerIpConnections;
use super::socket::{AcceptedSocket, BoundListener, register_with_runtime};
use super::worker_pool::WorkerPool;
use super::{HttpHandler, Settings};
use tidegate_web::{Peer, ProcessStatus};

/// Pause after an accept error caused by a lack of resources (file descriptors, memory).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Maximum number of connections taken from the backlog when the listener closes.
const MAX_BACKLOG_DRAIN: usize = 4_096;

/// State shared by all connections of a listener.
pub struct ListenerContext<D> {
    /// Handles the connections.
    pub handler: Arc<D>,
    /// The listener's settings.
    pub settings: Settings,
    /// The status of the process.
    pub status: Arc<ProcessStatus>,
    pub(super) per_ip: PerIpConnections,
}

/// A protocol and the handler behind it.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// Serves a connection until it ends, times out or is shut down.
    fn handle_connection(
        shared: Arc<ListenerContext<Self>>,
        socket: AcceptedSocket,
        peer: Peer,
        stage: watch::Receiver<ShutdownPhase>,
    ) -> impl Future<Output = ()> + Send
    where
        Self: Sized;
}

impl<D: HttpHandler> ConnectionHandler for D {
    async fn handle_connection(
        shared: Arc<ListenerContext<Self>>,
        socket: AcceptedSocket,
        peer: Peer,
        stage: watch::Receiver<ShutdownPhase>,
    ) {
        serve_http_connection(socket, peer, shared, stage).await;
    }
}

/// Progress of the shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// No shutdown yet.
    #[default]
    Running,
    /// Each connection is closed after its next response.
    Closing,
    /// Idle connections are closed too.
    ClosingIdle,
}

/// Serves `listener` until `stop` completes, then drains and returns. Draining accepts no further
/// connections, closes each one after its next response, and gives running requests `drain_timeout`
/// to finish.
pub async fn serve<D: HttpHandler>(
    listener: impl Into<BoundListener> + Send,
    handler: Arc<D>,
    settings: Settings,
    status: Arc<ProcessStatus>,
    stop: impl Future<Output = ()> + Send,
) {
    serve_protocol(listener.into(), handler, settings, status, stop).await;
}

/// [`serve`] for any protocol.
pub async fn serve_protocol<D: ConnectionHandler>(
    listener: BoundListener,
    handler: Arc<D>,
    settings: Settings,
    status: Arc<ProcessStatus>,
    stop: impl Future<Output = ()> + Send,
) {
    listener.extend_accept_queue();
    let peers = PerIpConnections::new(settings.max_connections_per_ip);
    let mut connections =
        ConnectionSet::new(ListenerContext { handler, settings, status, per_ip: peers });
    let mut stop = pin!(stop);
    loop {
        let permit = tokio::select! {
            biased;
            () = &mut stop => break,
            permit = connections.acquire_permit() => permit,
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => connections.spawn_connection(socket, peer, permit),
                Err(error) => back_off_accept(&error).await,
            },
        }
    }
    connections.shared.status.start_drain();
    for (socket, peer) in drain_backlog(listener) {
        let permit = connections.acquire_permit().await;
        connections.spawn_connection(socket, peer, permit);
    }
    connections.drain().await;
}

/// Closes a listener. Closing would reset connections that the kernel has already accepted, so they
/// are taken first.
fn drain_backlog(listener: BoundListener) -> Vec<(AcceptedSocket, Peer)> {
    let Ok(backlog) = listener.into_backlog() else { return Vec::new() };
    // A successor process may accept from the same socket, so the backlog may never be empty.
    backlog.take(MAX_BACKLOG_DRAIN).collect()
}

/// The open connections of a listener.
struct ConnectionSet<D> {
    shared: Arc<ListenerContext<D>>,
    permits: Arc<Semaphore>,
    connections: JoinSet<()>,
    phase: watch::Sender<ShutdownPhase>,
}

impl<D: ConnectionHandler> ConnectionSet<D> {
    fn new(shared: ListenerContext<D>) -> Self {
        let permits = shared.settings.max_connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(shared),
            permits: Arc::new(Semaphore::new(permits)),
            connections: JoinSet::new(),
            phase: watch::Sender::new(ShutdownPhase::Running),
        }
    }

    /// Waits until another connection is allowed. Never `None`: the semaphore is not closed.
    fn acquire_permit(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send + use<D> {
        let permits = Arc::clone(&self.permits);
        async move { permits.acquire_owned().await.ok() }
    }

    fn spawn_connection(
        &mut self,
        socket: AcceptedSocket,
        peer: Peer,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let (shared, stage) = (Arc::clone(&self.shared), self.phase.subscribe());
        // Counted in accept order, so that the newest connection is the one rejected. Clients that
        // never send anything count too. With the PROXY protocol the client's address is not known
        // yet; `serve_http_connection` counts it.
        let per_ip_permit =
            (!shared.settings.proxy_protocol).then(|| shared.per_ip.try_acquire(peer));
        if matches!(per_ip_permit, Some(None)) {
            return;
        }
        let permit = (permit, per_ip_permit);
        match self.shared.settings.workers.as_ref().and_then(WorkerPool::assign_worker) {
            None => self.connections.spawn(async move {
                D::handle_connection(shared, socket, peer, stage).await;
                drop(permit);
            }),
            Some((worker, worker_permit)) => {
                let connection = async move {
                    match register_with_runtime(socket) {
                        Ok(socket) => D::handle_connection(shared, socket, peer, stage).await,
                        Err(error) => {
                            tracing::warn!(%error, "failed to register a connection with its worker");
                        }
                    }
                    drop((permit, worker_permit));
                };
                self.connections.spawn_on(connection, worker)
            }
        };
        while let Some(result) = self.connections.try_join_next() {
            if let Err(error) = result {
                tracing::error!(%error, "connection task failed");
            }
        }
    }

    async fn drain(mut self) {
        let Settings { drain_grace, drain_timeout, .. } = self.shared.settings;
        let grace = drain_grace.min(drain_timeout);
        self.phase.send_replace(ShutdownPhase::Closing);
        if tokio::time::timeout(grace, self.wait_all_closed()).await.is_ok() {
            return;
        }
        self.phase.send_replace(ShutdownPhase::ClosingIdle);
        if tokio::time::timeout(drain_timeout - grace, self.wait_all_closed()).await.is_err() {
            tracing::warn!(
                left = self.connections.len(),
                "drain timed out; closing the remaining connections"
            );
            self.connections.shutdown().await;
        }
    }

    async fn wait_all_closed(&mut self) {
        while self.connections.join_next().await.is_some() {}
    }
}

/// Pauses after an accept error, unless the error concerns only that one connection.
async fn back_off_accept(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a connection");
    let per_connection_errors = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::Interrupted,
    ];
    if !per_connection_errors.contains(&error.kind()) {
        tokio::time::sleep(ACCEPT_BACKOFF).await;
    }
}
