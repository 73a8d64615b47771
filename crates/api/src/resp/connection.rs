//! Serves one connection: reads commands, processes them and sends the replies at once.

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
use super::connection_timeouts::{RespActivity, RespPhase, wait_for_timeout};
use super::pipeline::PipelineNext;
use super::session::RespSession;
use tidegate_net::listen::{
    AcceptedSocket, ConnectionHandler, ListenerContext, MaybeTlsSocket, ShutdownPhase, accept_tls,
    poll_on_wake, set_nodelay,
};
use tidegate_web::{Peer, ProcessStatus};

/// Initial size of the read buffer: enough for a few commands. An idle connection holds no more.
const INITIAL_BUFFER_BYTES: usize = 2 * 1024;

/// Maximum size at which a buffer is kept: enough for a few hundred pipelined commands. Only a
/// single longer request or reply makes a buffer larger, and only temporarily.
const MAX_RETAINED_BYTES: usize = 16 * 1024;

/// How long, and for how many bytes, input is discarded after the last reply. Closing a socket with
/// unread input resets the connection, and the client could lose the reply.
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
        let activity = RespActivity::new();
        let mut connection =
            RespConnection { wire, activity: &activity, read: BytesMut::new(), out: Vec::new() };
        let mut session = RespSession::new(id, peer);
        tokio::select! {
            biased;
            ended = connection.serve_commands(&shared.handler, &mut session, &shared.status) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended early");
                }
            }
            () = poll_on_wake(wait_for_timeout(&activity, &shared.settings, stage)) => {}
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

/// A connection and its buffers.
struct RespConnection<'p> {
    wire: MaybeTlsSocket,
    activity: &'p RespActivity,
    /// Bytes that were read but not processed yet.
    read: BytesMut,
    /// Replies that were not sent yet.
    out: Vec<u8>,
}

impl RespConnection<'_> {
    async fn serve_commands<S: Store, L: Store>(
        &mut self,
        api: &RespApi<S, L>,
        session: &mut RespSession,
        status: &ProcessStatus,
    ) -> io::Result<()> {
        while self.read().await? {
            loop {
                self.activity.set_phase(RespPhase::Answering);
                let done = api.process_pipeline(session, &self.read, &mut self.out).await;
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

    /// Reads the available bytes; returns false if the client closed the connection.
    async fn read(&mut self) -> io::Result<bool> {
        self.activity.set_phase(if self.read.is_empty() {
            RespPhase::Idle
        } else {
            RespPhase::ReadingCommand
        });
        let held = self.read.len();
        if self.read.capacity() - held < INITIAL_BUFFER_BYTES {
            // Reuses the space of consumed bytes if it is large enough.
            self.read.reserve(held.max(INITIAL_BUFFER_BYTES));
        }
        if held == 0 && self.read.capacity() > MAX_RETAINED_BYTES {
            self.read = BytesMut::with_capacity(INITIAL_BUFFER_BYTES);
        }
        let count = self.wire.read_buf(&mut self.read).await?;
        if self.read.len() == self.read.capacity() && self.read.capacity() < MAX_RETAINED_BYTES {
            // A full buffer suggests a long pipeline, so grow at once to the size that is kept.
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

    /// Closes the connection after the last reply, discarding further input for a while.
    async fn linger_and_close(&mut self) -> io::Result<()> {
        self.wire.shutdown().await?;
        let discard = async {
            let mut left = LINGER_BYTES;
            while left > 0 {
                self.read.clear();
                match self.wire.read_buf(&mut self.read).await {
                    Ok(count) if count > 0 => left = left.saturating_sub(count),
                    _ => break,
                }
            }
        };
        // After a timeout the socket is closed even if the client has not closed its side.
        let _ = tokio::time::timeout(LINGER, discard).await;
        Ok(())
    }
}
