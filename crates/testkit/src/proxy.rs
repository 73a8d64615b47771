//! A TCP proxy whose line is cut, slowed or swallowed while a test runs.
//!
//! It knows nothing of what passes: bytes only. It runs on a thread and a runtime of its own, so a
//! test may be blocking or asynchronous, and its clock may stand still. When the proxy is dropped, the
//! thread has ended and every connection is closed.

#![expect(clippy::expect_used, reason = "a test whose proxy does not obey cannot go on")]

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
    /// In order: the client reads an end of file.
    Fin,
    /// At once: the client sees a reset.
    Reset,
}

/// What is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayScope {
    /// Requests and replies, each by the whole delay.
    Both,
    /// Replies only: the server does what it is asked at once.
    Replies,
}

/// What the proxy does at present.
#[derive(Clone, Copy, Debug)]
enum ProxyMode {
    Pass,
    Delay { by: Duration, what: DelayScope },
    Blackhole,
    CutAfter { bytes: usize, ending: ConnectionEnd },
    Refuse,
}

/// A mode, told from the same one set again.
#[derive(Clone, Copy, Debug)]
struct ProxySetting {
    mode: ProxyMode,
    generation: u64,
}

/// A port that leads to another one, for better or worse.
#[derive(Debug)]
pub struct FaultProxy {
    port: ReservedPort,
    counts: Arc<ConnectionCounts>,
    /// Gone when the proxy is being dropped.
    mode_changes: Option<mpsc::UnboundedSender<ModeChange>>,
    thread: Option<JoinHandle<()>>,
}

/// A mode to change to, and whom to tell that it is done.
type ModeChange = (ProxyMode, SyncSender<()>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    open: AtomicUsize,
    total: AtomicUsize,
}

impl FaultProxy {
    /// A proxy before `upstream`, passing everything.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let port = ReservedPort::reserve();
        let counts = Arc::new(ConnectionCounts::default());
        let (orders, taken) = mpsc::unbounded_channel();
        let house = ProxyTask { port: port.address(), upstream, counts: Arc::clone(&counts) };
        let name = format!("proxy-{}", port.number());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(house.run(taken));
        };
        let thread = thread::Builder::new().name(name).spawn(run).expect("a thread");
        let proxy = Self { port, counts, mode_changes: Some(orders), thread: Some(thread) };
        proxy.pass();
        proxy
    }

    /// Where clients connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The port of [`FaultProxy::address`].
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Connections that were ever accepted.
    #[must_use]
    pub fn total_connections(&self) -> usize {
        self.counts.total.load(Ordering::SeqCst)
    }

    /// Passes everything, at once; also what a delay still held. A connection of which a black hole
    /// has swallowed something is reset: TCP never goes on with bytes missing.
    pub fn pass(&self) {
        self.set_mode(ProxyMode::Pass);
    }

    /// Passes everything later. Throughput is not lessened: what is sent together arrives together.
    /// A long delay of replies is a server that works and whose answers are lost.
    pub fn delay(&self, by: Duration, what: DelayScope) {
        self.set_mode(ProxyMode::Delay { by, what });
    }

    /// Accepts connections, swallows everything and answers nothing, on open connections too.
    pub fn blackhole(&self) {
        self.set_mode(ProxyMode::Blackhole);
    }

    /// Lets so many bytes of replies through on each connection, counted from now, then closes it.
    /// With 0 it is closed when a reply comes: the request was done and its answer is lost.
    pub fn cut_after(&self, bytes: usize, ending: ConnectionEnd) {
        self.set_mode(ProxyMode::CutAfter { bytes, ending });
    }

    /// Closes the port, so that connecting is refused, and resets what is open, before it returns.
    pub fn refuse(&self) {
        self.set_mode(ProxyMode::Refuse);
    }

    /// Returns when the port is open or closed as the mode wants it: the thread says so.
    fn set_mode(&self, mode: ProxyMode) {
        let (done, wait) = sync_channel(1);
        let orders = self.mode_changes.as_ref().expect("there until dropped");
        orders.send((mode, done)).expect("the proxy's thread runs");
        wait.recv().expect("the proxy's thread runs");
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        drop(self.mode_changes.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been printed; a second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

/// What runs on the proxy's thread.
struct ProxyTask {
    port: SocketAddr,
    upstream: SocketAddr,
    counts: Arc<ConnectionCounts>,
}

impl ProxyTask {
    /// Obeys orders and accepts connections until the proxy is dropped.
    async fn run(self, mut orders: mpsc::UnboundedReceiver<ModeChange>) {
        let (setting, _) = watch::channel(ProxySetting { mode: ProxyMode::Refuse, generation: 0 });
        let mut listener: Option<ProxyListener> = None;
        loop {
            tokio::select! {
                order = orders.recv() => {
                    let Some((mode, done)) = order else { return };
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

    /// Else the next mode could come before a connection has seen that it is refused.
    async fn wait_all_closed(&self) {
        while self.counts.open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Beside the socket that keeps the port, which is why the address is used again.
    fn listen(&self) -> ProxyListener {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("SO_REUSEADDR");
        socket.bind(self.port).expect("the port that is kept");
        ProxyListener(socket.listen(1024).expect("a listening port"))
    }
}

/// A port that is open until this is dropped.
///
/// Closing the socket would not be enough: a process that another test starts at this moment has a
/// copy of it until it becomes its own program, and the port would stay open as long.
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

/// An open connection, as far as counting goes.
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
