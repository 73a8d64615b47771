//! A TCP proxy that cuts, delays or swallows its connections while a test runs.
//!
//! It forwards bytes and knows no protocol. It runs on its own thread and runtime, so tests may be
//! blocking or asynchronous, and may use a paused clock. Dropping the proxy ends the thread and
//! closes all connections.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::port::ReservedPort;

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Cleanly: the client reads an end of file.
    Fin,
    /// At once: the client sees a reset.
    Reset,
}

/// Which direction is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayScope {
    /// Requests and replies, each by the full delay.
    Both,
    /// Replies only: the server executes requests at once.
    Replies,
}

/// The proxy's current behaviour.
#[derive(Clone, Copy, Debug)]
enum ProxyMode {
    Pass,
    Delay { by: Duration, what: DelayScope },
    Blackhole,
    CutAfter { bytes: usize, ending: ConnectionEnd },
    Refuse,
}

/// A mode with a generation, which distinguishes it from the same mode set again.
#[derive(Clone, Copy, Debug)]
struct ProxySetting {
    mode: ProxyMode,
    generation: u64,
}

/// A proxy in front of an upstream server, with injectable faults.
#[derive(Debug)]
pub struct FaultProxy {
    port: ReservedPort,
    counts: Arc<ConnectionCounts>,
    /// `None` while the proxy is being dropped.
    mode_changes: Option<mpsc::UnboundedSender<ModeChange>>,
    thread: Option<JoinHandle<()>>,
}

/// A mode to change to, and the channel to confirm the change.
type ModeChange = (ProxyMode, SyncSender<()>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    open: AtomicUsize,
    total: AtomicUsize,
}

impl FaultProxy {
    /// Starts a proxy in front of `upstream` that forwards everything.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let port = ReservedPort::reserve();
        let counts = Arc::new(ConnectionCounts::default());
        let (mode_changes, received) = mpsc::unbounded_channel();
        let task = ProxyTask { port: port.address(), upstream, counts: Arc::clone(&counts) };
        let name = format!("proxy-{}", port.number());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(task.run(received));
        };
        let thread = thread::Builder::new().name(name).spawn(run).expect("a thread");
        let proxy = Self { port, counts, mode_changes: Some(mode_changes), thread: Some(thread) };
        proxy.pass();
        proxy
    }

    /// The address for clients.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The port of [`FaultProxy::address`].
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Number of connections accepted so far.
    #[must_use]
    pub fn total_connections(&self) -> usize {
        self.counts.total.load(Ordering::SeqCst)
    }

    /// Forwards everything at once, including bytes that a delay still held. A connection that lost
    /// bytes in a black hole is reset, because a TCP stream cannot continue with bytes missing.
    pub fn pass(&self) {
        self.set_mode(ProxyMode::Pass);
    }

    /// Forwards everything with a delay. Throughput is not reduced: bytes sent together arrive
    /// together. A long delay of replies simulates a server that works and whose responses are
    /// lost.
    pub fn delay(&self, by: Duration, what: DelayScope) {
        self.set_mode(ProxyMode::Delay { by, what });
    }

    /// Accepts connections but discards all bytes and sends none, on open connections too.
    pub fn blackhole(&self) {
        self.set_mode(ProxyMode::Blackhole);
    }

    /// Forwards this many bytes of replies on each connection, counted from now, then closes it.
    /// With 0 it is closed when a reply arrives: the request was executed and its response is lost.
    pub fn cut_after(&self, bytes: usize, ending: ConnectionEnd) {
        self.set_mode(ProxyMode::CutAfter { bytes, ending });
    }

    /// Closes the port, so that connecting is refused, and resets all open connections before it
    /// returns.
    pub fn refuse(&self) {
        self.set_mode(ProxyMode::Refuse);
    }

    /// Sets the mode. Returns when the proxy's thread has opened or closed the port accordingly.
    fn set_mode(&self, mode: ProxyMode) {
        let (done, wait) = sync_channel(1);
        let mode_changes = self.mode_changes.as_ref().expect("present until drop");
        mode_changes.send((mode, done)).expect("the proxy's thread must be running");
        wait.recv().expect("the proxy's thread must be running");
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.mode_changes.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed; another one here would abort the test
            // run.
            let _ = thread.join();
        }
    }
}

/// The state of the proxy's thread.
struct ProxyTask {
    port: SocketAddr,
    upstream: SocketAddr,
    counts: Arc<ConnectionCounts>,
}

impl ProxyTask {
    /// Applies mode changes and accepts connections until the proxy is dropped.
    async fn run(self, mut mode_changes: mpsc::UnboundedReceiver<ModeChange>) {
        let (setting, _) = watch::channel(ProxySetting { mode: ProxyMode::Refuse, generation: 0 });
        let mut listener: Option<ProxyListener> = None;
        loop {
            tokio::select! {
                change = mode_changes.recv() => {
                    let Some((mode, done)) = change else { return };
                    listener = match (mode, listener) {
                        (ProxyMode::Refuse, _) => None,
                        (_, None) => Some(self.listen()),
                        (_, open) => open,
                    };
                    setting.send_modify(|now| *now = ProxySetting { mode, generation: now.generation + 1 });
                    if matches!(mode, ProxyMode::Refuse) {
                        self.wait_all_closed().await;
                    }
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => {
                    self.counts.total.fetch_add(1, Ordering::SeqCst);
                    let open = OpenConnection::new(&self.counts);
                    tokio::spawn(connection::run(client, self.upstream, setting.subscribe(), open));
                }
            }
        }
    }

    /// Waits until all connections are closed. Otherwise the next mode could be set before a
    /// connection has seen the refusal.
    async fn wait_all_closed(&self) {
        while self.counts.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Listens on the reserved port. `SO_REUSEADDR` allows this although another socket reserves
    /// it.
    fn listen(&self) -> ProxyListener {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("SO_REUSEADDR");
        socket.bind(self.port).expect("the reserved port");
        ProxyListener(socket.listen(1024).expect("a listening port"))
    }
}

/// A listener that closes the port when dropped.
///
/// Closing the socket is not enough: a process that another test is just starting holds a copy of
/// it between fork and exec, and the port would stay open for that time.
struct ProxyListener(TcpListener);

impl Drop for ProxyListener {
    fn drop(&mut self) {
        shutdown(&self.0, Shutdown::Both).expect("a listening socket can be shut down");
    }
}

async fn accept(listener: Option<&ProxyListener>) -> TcpStream {
    let Some(ProxyListener(listener)) = listener else { return std::future::pending().await };
    loop {
        if let Ok((client, _)) = listener.accept().await {
            return client;
        }
    }
}

/// Counts a connection as open until dropped.
struct OpenConnection(Arc<ConnectionCounts>);

impl OpenConnection {
    fn new(counts: &Arc<ConnectionCounts>) -> Self {
        counts.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counts))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
