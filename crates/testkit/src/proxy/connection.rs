//! One connection through the proxy, and how the current mode treats its bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::{ConnectionEnd, DelayScope, OpenConnection, ProxyMode, ProxySetting};

/// How long a client may continue to send after the proxy has closed its side.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Relays a connection until it ends.
pub(super) async fn run(
    mut client: TcpStream,
    upstream: SocketAddr,
    setting: watch::Receiver<ProxySetting>,
    open: OpenConnection,
) {
    let swallowed = AtomicBool::new(false);
    let ending = tokio::select! {
        ending = relay_connection(&mut client, upstream, setting.clone(), &swallowed) => ending,
        ending = wait_broken(setting.clone(), &swallowed) => ending,
    };
    drop(open);
    match ending {
        ConnectionEnd::Reset => {
            let _ = client.set_zero_linger();
        }
        ConnectionEnd::Fin => {
            let _ = client.shutdown().await;
            // Closing with unread data would send a reset.
            let rest = async { while matches!(client.read(&mut [0; 4096]).await, Ok(1..)) {} };
            let _ = timeout(LINGER_TIMEOUT, rest).await;
        }
    }
}

async fn relay_connection(
    client: &mut TcpStream,
    upstream: SocketAddr,
    mut setting: watch::Receiver<ProxySetting>,
    swallowed: &AtomicBool,
) -> ConnectionEnd {
    if let Err(ending) = leave_blackhole(client, &mut setting, swallowed).await {
        return ending;
    }
    let Ok(mut server) = TcpStream::connect(upstream).await else { return ConnectionEnd::Reset };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let pipe =
        |direction| ProxyPipe { direction, setting: setting.clone(), swallowed, cut: (0, 0) };
    let requests = pipe(ProxyDirection::Requests).relay(from_client, to_server);
    let replies = pipe(ProxyDirection::Replies).relay(from_server, to_client);
    tokio::try_join!(requests, replies).err().unwrap_or(ConnectionEnd::Fin)
}

/// Waits for the end of a black hole before connecting to the upstream.
async fn leave_blackhole(
    client: &mut TcpStream,
    setting: &mut watch::Receiver<ProxySetting>,
    swallowed: &AtomicBool,
) -> Result<(), ConnectionEnd> {
    while matches!(setting.borrow_and_update().mode, ProxyMode::Blackhole) {
        tokio::select! {
            _ = setting.changed() => {}
            read = async { client.read(&mut [0; 4096]).await } => match read {
                Ok(1..) => swallowed.store(true, Ordering::SeqCst),
                _ => return Err(ConnectionEnd::Fin),
            },
        }
    }
    if swallowed.load(Ordering::SeqCst) { Err(ConnectionEnd::Reset) } else { Ok(()) }
}

/// Waits for a mode that ends the connection.
async fn wait_broken(
    mut setting: watch::Receiver<ProxySetting>,
    swallowed: &AtomicBool,
) -> ConnectionEnd {
    loop {
        match setting.borrow_and_update().mode {
            ProxyMode::Refuse => return ConnectionEnd::Reset,
            ProxyMode::Blackhole => {}
            _ if swallowed.load(Ordering::SeqCst) => return ConnectionEnd::Reset,
            _ => {}
        }
        // The sender lives as long as the runtime that this runs on.
        let _ = setting.changed().await;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProxyDirection {
    Requests,
    Replies,
}

/// One direction of a connection.
struct ProxyPipe<'a> {
    direction: ProxyDirection,
    setting: watch::Receiver<ProxySetting>,
    /// Whether a black hole has swallowed bytes of either direction.
    swallowed: &'a AtomicBool,
    /// Bytes forwarded under a cut, and the generation of its setting.
    cut: (usize, u64),
}

enum ProxyChunk {
    Bytes(Vec<u8>),
    End(ConnectionEnd),
}

/// What to do with a chunk.
enum ChunkAction {
    Pass,
    Swallow,
    Cut { left: usize, ending: ConnectionEnd },
}

impl ProxyPipe<'_> {
    /// Relays until the sender has ended and the receiver was notified, or until the connection
    /// must be closed. Reading continues while chunks are delayed, so that a delay affects nothing
    /// else.
    async fn relay(
        mut self,
        from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
    ) -> Result<(), ConnectionEnd> {
        let (sender, mut chunks) = mpsc::channel(1024);
        let write = async {
            while let Some((arrived, chunk)) = chunks.recv().await {
                match chunk {
                    ProxyChunk::Bytes(bytes) => {
                        self.forward_bytes(&bytes, arrived, &mut to).await?;
                    }
                    ProxyChunk::End(ending) => {
                        return self.forward_end(ending, arrived, &mut to).await;
                    }
                }
            }
            Ok(())
        };
        // The end arrives as a chunk, so reading never completes this future.
        let read = async {
            read_chunks(from, sender).await;
            std::future::pending().await
        };
        tokio::select! {
            written = write => written,
            never = read => never,
        }
    }

    async fn forward_bytes(
        &mut self,
        bytes: &[u8],
        arrived: Instant,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), ConnectionEnd> {
        match self.next_action(arrived).await {
            ChunkAction::Pass => to.write_all(bytes).await.map_err(|_| ConnectionEnd::Reset),
            ChunkAction::Swallow => {
                self.swallowed.store(true, Ordering::SeqCst);
                Ok(())
            }
            ChunkAction::Cut { left, ending } => {
                let through = left.min(bytes.len());
                to.write_all(&bytes[..through]).await.map_err(|_| ConnectionEnd::Reset)?;
                self.cut.0 += through;
                if through == left { Err(ending) } else { Ok(()) }
            }
        }
    }

    async fn forward_end(
        &mut self,
        ending: ConnectionEnd,
        arrived: Instant,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), ConnectionEnd> {
        while matches!(self.next_action(arrived).await, ChunkAction::Swallow) {
            if self.direction == ProxyDirection::Requests {
                // The client has disconnected, so there is no one left to hide the end from.
                return Err(ConnectionEnd::Fin);
            }
            let _ = self.setting.changed().await;
        }
        match ending {
            ConnectionEnd::Fin => to.shutdown().await.map_err(|_| ConnectionEnd::Reset),
            ConnectionEnd::Reset => Err(ConnectionEnd::Reset),
        }
    }

    /// Waits for the mode's delay and returns the action; a mode change takes effect while waiting.
    async fn next_action(&mut self, arrived: Instant) -> ChunkAction {
        loop {
            let ProxySetting { mode, generation } = *self.setting.borrow_and_update();
            match mode {
                ProxyMode::Blackhole => return ChunkAction::Swallow,
                ProxyMode::CutAfter { bytes, ending }
                    if self.direction == ProxyDirection::Replies =>
                {
                    if self.cut.1 != generation {
                        self.cut = (0, generation);
                    }
                    return ChunkAction::Cut { left: bytes - self.cut.0, ending };
                }
                ProxyMode::Delay { by, what } if self.is_delayed(what) => {
                    let due = arrived.checked_add(by);
                    if due.is_some_and(|due| due <= Instant::now()) {
                        return ChunkAction::Pass;
                    }
                    tokio::select! {
                        () = sleep_until_due(due) => {}
                        _ = self.setting.changed() => {}
                    }
                }
                _ => return ChunkAction::Pass,
            }
        }
    }

    fn is_delayed(&self, what: DelayScope) -> bool {
        what == DelayScope::Both || self.direction == ProxyDirection::Replies
    }
}

/// Sleeps until `due`; forever if `due` is `None` because it would overflow.
async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn read_chunks(mut from: ReadHalf<'_>, sender: mpsc::Sender<(Instant, ProxyChunk)>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let chunk = match from.read(&mut buffer).await {
            Ok(0) => ProxyChunk::End(ConnectionEnd::Fin),
            Ok(length) => ProxyChunk::Bytes(buffer[..length].to_vec()),
            Err(_) => ProxyChunk::End(ConnectionEnd::Reset),
        };
        let last = matches!(chunk, ProxyChunk::End(_));
        if sender.send((Instant::now(), chunk)).await.is_err() || last {
            return;
        }
    }
}
