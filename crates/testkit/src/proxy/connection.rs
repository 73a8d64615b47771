//! One connection through the proxy: what becomes of each piece of it, by the mode of the moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Delayed, Ending, Mode, Open, Setting};

/// How long a client that was told the end may go on sending before it is cut off.
const FAREWELL: Duration = Duration::from_secs(1);

/// Carries a connection to its end.
pub(super) async fn run(
    mut client: TcpStream,
    upstream: SocketAddr,
    setting: watch::Receiver<Setting>,
    open: Open,
) {
    let holed = AtomicBool::new(false);
    let ending = tokio::select! {
        ending = carry(&mut client, upstream, setting.clone(), &holed) => ending,
        ending = broken(setting.clone(), &holed) => ending,
    };
    drop(open);
    match ending {
        Ending::Reset => {
            let _ = client.set_zero_linger();
        }
        Ending::Fin => {
            let _ = client.shutdown().await;
            // Closing with something unread would be a reset.
            let rest = async { while matches!(client.read(&mut [0; 4096]).await, Ok(1..)) {} };
            let _ = timeout(FAREWELL, rest).await;
        }
    }
}

async fn carry(
    client: &mut TcpStream,
    upstream: SocketAddr,
    mut setting: watch::Receiver<Setting>,
    holed: &AtomicBool,
) -> Ending {
    if let Err(ending) = leave_blackhole(client, &mut setting, holed).await {
        return ending;
    }
    let Ok(mut server) = TcpStream::connect(upstream).await else { return Ending::Reset };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let line = |side| Line { side, setting: setting.clone(), holed, cut: (0, 0) };
    let requests = line(Side::Requests).carry(from_client, to_server);
    let replies = line(Side::Replies).carry(from_server, to_client);
    tokio::try_join!(requests, replies).err().unwrap_or(Ending::Fin)
}

/// A connection that is accepted in a black hole has nobody behind it until it is out.
async fn leave_blackhole(
    client: &mut TcpStream,
    setting: &mut watch::Receiver<Setting>,
    holed: &AtomicBool,
) -> Result<(), Ending> {
    while matches!(setting.borrow_and_update().mode, Mode::Blackhole) {
        tokio::select! {
            _ = setting.changed() => {}
            read = async { client.read(&mut [0; 4096]).await } => match read {
                Ok(1..) => holed.store(true, Ordering::SeqCst),
                _ => return Err(Ending::Fin),
            },
        }
    }
    if holed.load(Ordering::SeqCst) { Err(Ending::Reset) } else { Ok(()) }
}

/// Waits until a mode is set that the connection does not survive.
async fn broken(mut setting: watch::Receiver<Setting>, holed: &AtomicBool) -> Ending {
    loop {
        match setting.borrow_and_update().mode {
            Mode::Refuse => return Ending::Reset,
            Mode::Blackhole => {}
            _ if holed.load(Ordering::SeqCst) => return Ending::Reset,
            _ => {}
        }
        // The sender lives as long as the runtime that this runs on.
        let _ = setting.changed().await;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Replies,
}

/// One direction of a connection.
struct Line<'a> {
    side: Side,
    setting: watch::Receiver<Setting>,
    /// Whether a black hole has swallowed something of either direction.
    holed: &'a AtomicBool,
    /// Bytes that were let through before a cut, and the number of the setting that wants it.
    cut: (usize, u64),
}

enum Piece {
    Bytes(Vec<u8>),
    End(Ending),
}

/// What becomes of a piece.
enum Fate {
    Pass,
    Swallow,
    Cut { left: usize, ending: Ending },
}

impl Line<'_> {
    /// Until the sender has ended and the receiver knows, or the connection must be closed. Reading
    /// goes on while pieces wait, so that a delay holds up nothing but what it delays.
    async fn carry(mut self, from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Ending> {
        let (sender, mut pieces) = mpsc::channel(1024);
        let write = async {
            while let Some((arrived, piece)) = pieces.recv().await {
                match piece {
                    Piece::Bytes(bytes) => self.bytes(&bytes, arrived, &mut to).await?,
                    Piece::End(ending) => return self.end(ending, arrived, &mut to).await,
                }
            }
            Ok(())
        };
        // The end comes through the pieces, so reading is never what ends this.
        let read = async {
            read(from, sender).await;
            std::future::pending().await
        };
        tokio::select! {
            written = write => written,
            never = read => never,
        }
    }

    async fn bytes(
        &mut self,
        bytes: &[u8],
        arrived: Instant,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), Ending> {
        match self.fate(arrived).await {
            Fate::Pass => to.write_all(bytes).await.map_err(|_| Ending::Reset),
            Fate::Swallow => {
                self.holed.store(true, Ordering::SeqCst);
                Ok(())
            }
            Fate::Cut { left, ending } => {
                let through = left.min(bytes.len());
                to.write_all(&bytes[..through]).await.map_err(|_| Ending::Reset)?;
                self.cut.0 += through;
                if through == left { Err(ending) } else { Ok(()) }
            }
        }
    }

    async fn end(
        &mut self,
        ending: Ending,
        arrived: Instant,
        to: &mut WriteHalf<'_>,
    ) -> Result<(), Ending> {
        while matches!(self.fate(arrived).await, Fate::Swallow) {
            if self.side == Side::Requests {
                // The client is gone: nobody is left to be kept in the dark.
                return Err(Ending::Fin);
            }
            let _ = self.setting.changed().await;
        }
        match ending {
            Ending::Fin => to.shutdown().await.map_err(|_| Ending::Reset),
            Ending::Reset => Err(Ending::Reset),
        }
    }

    /// Waits as long as the mode wants, whatever it is changed to meanwhile.
    async fn fate(&mut self, arrived: Instant) -> Fate {
        loop {
            let Setting { mode, number } = *self.setting.borrow_and_update();
            match mode {
                Mode::Blackhole => return Fate::Swallow,
                Mode::CutAfter { bytes, ending } if self.side == Side::Replies => {
                    if self.cut.1 != number {
                        self.cut = (0, number);
                    }
                    return Fate::Cut { left: bytes - self.cut.0, ending };
                }
                Mode::Delay { by, what } if self.is_delayed(what) => {
                    let due = arrived.checked_add(by);
                    if due.is_some_and(|due| due <= Instant::now()) {
                        return Fate::Pass;
                    }
                    tokio::select! {
                        () = reached(due) => {}
                        _ = self.setting.changed() => {}
                    }
                }
                _ => return Fate::Pass,
            }
        }
    }

    fn is_delayed(&self, what: Delayed) -> bool {
        what == Delayed::Both || self.side == Side::Replies
    }
}

/// Never, when the time is too far off to be told.
async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn read(mut from: ReadHalf<'_>, sender: mpsc::Sender<(Instant, Piece)>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let piece = match from.read(&mut buffer).await {
            Ok(0) => Piece::End(Ending::Fin),
            Ok(length) => Piece::Bytes(buffer[..length].to_vec()),
            Err(_) => Piece::End(Ending::Reset),
        };
        let last = matches!(piece, Piece::End(_));
        if sender.send((Instant::now(), piece)).await.is_err() || last {
            return;
        }
    }
}
