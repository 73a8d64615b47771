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

use super::RespApi;
use super::idle_watchdog::{RespActivity, RespPhase, wait_for_timeout};
use super::pipeline::PipelineNext;
use super::session::RespSession;
use tidegate_net::listen::{
    AcceptedSocket, ConnectionHandler, ListenerContext, MaybeTlsSocket, ShutdownPhase, accept_tls,
    poll_on_wake, set_nodelay,
};
use tidegate_web::{Peer, ProcessStatus};

/// Room for a few commands; a connection with nothing to say holds no more than that.
const INITIAL_BUFFER_BYTES: usize = 2 * 1024;

/// Room for a few hundred, for those who send as many at once. Only a single request that is longer,
/// or a single reply, takes more, and for no longer than it needs.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// How long, and for how many bytes, a caller whose bytes made no sense is listened to after the answer:
/// closing with bytes unread would take the answer back.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

impl<S: Store + 'static, L: Store + 'static> ConnectionHandler for RespApi<S, L> {
    async fn handle_connection(
        shared: Arc<ListenerContext<Self>>,
        socket: AcceptedSocket,
        peer: Peer,
        stage: Receiver<ShutdownPhase>,
    ) {
        let wire = match timeout(shared.settings.header_timeout, open_stream(socket, &shared)).await
        {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return tracing::debug!(%error, "connection not opened"),
            Err(_) => return tracing::debug!("connection not opened in time"),
        };
        let id = shared.handler.connections.fetch_add(1, Relaxed) + 1;
        let progress = RespActivity::new();
        let mut line =
            RespConnection { wire, activity: &progress, read: BytesMut::new(), out: Vec::new() };
        let mut session = RespSession::new(id, peer);
        tokio::select! {
            biased;
            ended = line.serve_commands(&shared.handler, &mut session, &shared.status) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
            }
            () = poll_on_wake(wait_for_timeout(&progress, &shared.settings, stage)) => {}
        }
    }
}

async fn open_stream<D>(
    socket: AcceptedSocket,
    shared: &ListenerContext<D>,
) -> io::Result<MaybeTlsSocket> {
    set_nodelay(&socket)?;
    accept_tls(socket, shared.settings.tls.as_ref()).await
}

/// A connection with what was read and not yet answered, and answered and not yet sent.
struct RespConnection<'p> {
    wire: MaybeTlsSocket,
    activity: &'p RespActivity,
    read: BytesMut,
    out: Vec<u8>,
}

impl RespConnection<'_> {
    async fn serve_commands<S: Store, L: Store>(
        &mut self,
        door: &RespApi<S, L>,
        session: &mut RespSession,
        status: &ProcessStatus,
    ) -> io::Result<()> {
        while self.read().await? {
            loop {
                self.activity.set_phase(RespPhase::Answering);
                let done = door.process_pipeline(session, &self.read, &mut self.out).await;
                self.read.advance(done.consumed);
                if done.consumed > 0 {
                    self.activity.record_step();
                }
                self.send().await?;
                match done.next {
                    PipelineNext::Continue => {}
                    PipelineNext::ReadMore => break,
                    PipelineNext::Close => return self.linger_and_close().await,
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
        self.activity.set_phase(if self.read.is_empty() {
            RespPhase::Idle
        } else {
            RespPhase::ReadingCommand
        });
        let held = self.read.len();
        if self.read.capacity() - held < INITIAL_BUFFER_BYTES {
            // Room that was read from is used again, where there is enough of it.
            self.read.reserve(held.max(INITIAL_BUFFER_BYTES));
        }
        if held == 0 && self.read.capacity() > MAX_RETAINED_BYTES {
            self.read = BytesMut::with_capacity(INITIAL_BUFFER_BYTES);
        }
        let count = self.wire.read_buf(&mut self.read).await?;
        if self.read.len() == self.read.capacity() && self.read.capacity() < MAX_RETAINED_BYTES {
            // A sign of a long pipeline: from now on there is room for much of it.
            self.read.reserve(MAX_RETAINED_BYTES - self.read.len());
        }
        Ok(count > 0)
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.activity.set_phase(RespPhase::Sending);
        let mut sent = 0;
        while sent < self.out.len() {
            match self.wire.write(&self.out[sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => sent += count,
            }
            self.activity.record_step();
        }
        self.wire.flush().await?;
        self.out.clear();
        if self.out.capacity() > MAX_RETAINED_BYTES {
            self.out = Vec::new();
        }
        Ok(())
    }

    /// Ends the connection after the last reply.
    async fn linger_and_close(&mut self) -> io::Result<()> {
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
