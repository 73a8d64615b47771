//! One connection: what is read is answered, and what is answered is sent at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tidegate_core::store::Store;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use super::Door;
use super::pipeline::Next;
use super::session::Session;
use super::watch::{Phase, Progress, dawdling};
use crate::listen::{Shared, Socket, Speaks, Stage, Wire, secured, seldom, send_at_once};
use crate::{Peer, Status};

/// Room for a few commands; a connection with nothing to say holds no more than that.
const FIRST_BYTES: usize = 2 * 1024;

/// Room for a few hundred, for those who send as many at once. Only a single request that is longer,
/// or a single reply, takes more, and for no longer than it needs.
const KEPT_BYTES: usize = 16 * 1024;

/// How long, and for how many bytes, a caller whose bytes made no sense is listened to after the answer:
/// closing with bytes unread would take the answer back.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

impl<S: Store + 'static, L: Store + 'static> Speaks for Door<S, L> {
    async fn speak(shared: Arc<Shared<Self>>, socket: Socket, peer: Peer, stage: Receiver<Stage>) {
        let wire = match timeout(shared.settings.header_timeout, open(socket, &shared)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return tracing::debug!(%error, "connection not opened"),
            Err(_) => return tracing::debug!("connection not opened in time"),
        };
        let id = shared.door.connections.fetch_add(1, Relaxed) + 1;
        let progress = Progress::new();
        let mut line = Line { wire, progress: &progress, read: BytesMut::new(), out: Vec::new() };
        let mut session = Session::new(id, peer);
        tokio::select! {
            biased;
            ended = line.converse(&shared.door, &mut session, &shared.status) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
            }
            () = seldom(dawdling(&progress, &shared.settings, stage)) => {}
        }
    }
}

async fn open<D>(socket: Socket, shared: &Shared<D>) -> io::Result<Wire> {
    send_at_once(&socket)?;
    secured(socket, shared.settings.tls.as_ref()).await
}

/// A connection with what was read and not yet answered, and answered and not yet sent.
struct Line<'p> {
    wire: Wire,
    progress: &'p Progress,
    read: BytesMut,
    out: Vec<u8>,
}

impl Line<'_> {
    async fn converse<S: Store, L: Store>(
        &mut self,
        door: &Door<S, L>,
        session: &mut Session,
        status: &Status,
    ) -> io::Result<()> {
        while self.read().await? {
            loop {
                self.progress.at(Phase::Answering);
                let done = door.answer(session, &self.read, &mut self.out).await;
                self.read.advance(done.taken);
                if done.taken > 0 {
                    self.progress.step();
                }
                self.send().await?;
                match done.next {
                    Next::Go => {}
                    Next::Read => break,
                    Next::Close => return self.hang_up().await,
                }
            }
            if status.is_draining() && self.read.is_empty() {
                return self.wire.shutdown().await;
            }
        }
        Ok(())
    }

    /// Reads what there is; says whether there was anything.
    async fn read(&mut self) -> io::Result<bool> {
        self.progress.at(if self.read.is_empty() { Phase::Idle } else { Phase::Command });
        let held = self.read.len();
        if self.read.capacity() - held < FIRST_BYTES {
            // Room that was read from is used again, where there is enough of it.
            self.read.reserve(held.max(FIRST_BYTES));
        }
        if held == 0 && self.read.capacity() > KEPT_BYTES {
            self.read = BytesMut::with_capacity(FIRST_BYTES);
        }
        let count = self.wire.read_buf(&mut self.read).await?;
        if self.read.len() == self.read.capacity() && self.read.capacity() < KEPT_BYTES {
            // A sign of a long pipeline: from now on there is room for much of it.
            self.read.reserve(KEPT_BYTES - self.read.len());
        }
        Ok(count > 0)
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.progress.at(Phase::Sending);
        let mut sent = 0;
        while sent < self.out.len() {
            match self.wire.write(&self.out[sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => sent += count,
            }
            self.progress.step();
        }
        self.wire.flush().await?;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        Ok(())
    }

    /// Ends the connection after the last reply.
    async fn hang_up(&mut self) -> io::Result<()> {
        self.wire.shutdown().await?;
        let heard = async {
            let mut left = LINGER_BYTES;
            while left > 0 {
                self.read.clear();
                match self.wire.read_buf(&mut self.read).await {
                    Ok(count) if count > 0 => left = left.saturating_sub(count),
                    _ => break,
                }
            }
        };
        // Whoever says nothing more and does not close either is left alone.
        let _ = tokio::time::timeout(LINGER, heard).await;
        Ok(())
    }
}
