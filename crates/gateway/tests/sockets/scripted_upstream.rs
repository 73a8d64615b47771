//! An upstream that records every byte it receives and sends scripted responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify, mpsc};
use tokio::task::JoinHandle;

/// What the upstream does when it has received a request.
pub(crate) enum UpstreamReply {
    /// Sends this and waits for the next request.
    Send(Vec<u8>),
    /// Sends this and closes.
    SendAndClose(Vec<u8>),
    /// Sends this when as many requests are waiting as the barrier expects, and closes when
    /// notified.
    SendTogether(Arc<Barrier>, Arc<Notify>, Vec<u8>),
    /// Sends this after a delay.
    SendAfter(Duration, Vec<u8>),
    /// Sends this, then echoes everything it receives.
    Echo(Vec<u8>),
}

pub(crate) struct ScriptedUpstream {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    requests: mpsc::UnboundedReceiver<String>,
    server_task: JoinHandle<()>,
}

/// A response with status 200.
pub(crate) fn ok_response(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl ScriptedUpstream {
    /// Starts an upstream that responds with `hello`.
    pub(crate) async fn start() -> Self {
        Self::start_replying(|_| UpstreamReply::Send(ok_response("hello"))).await
    }

    /// Like [`start`](Self::start), at an address that was in use before.
    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        Self::start_listening(address, |_| UpstreamReply::Send(ok_response("hello"))).await
    }

    pub(crate) async fn start_replying(
        reply: impl Fn(&str) -> UpstreamReply + Send + Sync + 'static,
    ) -> Self {
        Self::start_listening(SocketAddr::from(([127, 0, 0, 1], 0)), reply).await
    }

    async fn start_listening(
        address: SocketAddr,
        reply: impl Fn(&str) -> UpstreamReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (request_sender, requests) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (reply, counted) = (Arc::new(reply), Arc::clone(&connections));
        let server_task = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Relaxed);
                let (reply, request_sender) = (Arc::clone(&reply), request_sender.clone());
                tokio::spawn(async move { serve_connection(tcp, &*reply, &request_sender).await });
            }
        });
        Self { address, connections, requests, server_task }
    }

    /// The next request, as received.
    pub(crate) async fn next_request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }

    /// All requests received since the last call.
    pub(crate) fn received_requests(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }

    /// Stops accepting connections.
    pub(crate) async fn stop(self) {
        self.server_task.abort();
        let _ = self.server_task.await;
    }
}

async fn serve_connection(
    mut tcp: TcpStream,
    reply: &(dyn Fn(&str) -> UpstreamReply + Send + Sync),
    request_sender: &mpsc::UnboundedSender<String>,
) {
    let mut read = Vec::new();
    while let Some(request) = read_request(&mut tcp, &mut read).await {
        let reply = reply(&request);
        let _ = request_sender.send(request);
        let response = match &reply {
            UpstreamReply::Send(bytes)
            | UpstreamReply::SendAndClose(bytes)
            | UpstreamReply::Echo(bytes) => bytes,
            UpstreamReply::SendTogether(all, _, bytes) => {
                all.wait().await;
                bytes
            }
            UpstreamReply::SendAfter(after, bytes) => {
                tokio::time::sleep(*after).await;
                bytes
            }
        };
        if tcp.write_all(response).await.is_err() {
            return;
        }
        match reply {
            UpstreamReply::SendAndClose(_) => return,
            UpstreamReply::SendTogether(_, close, _) => return close.notified().await,
            UpstreamReply::Echo(_) => {
                let (mut from, mut to) = tcp.split();
                let _ = to.write_all(&read).await;
                let _ = tokio::io::copy(&mut from, &mut to).await;
                return;
            }
            UpstreamReply::Send(_) | UpstreamReply::SendAfter(..) => {}
        }
    }
}

/// Reads a whole request; `None` when the connection is closed.
async fn read_request(tcp: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    let end = read_until(tcp, read, b"\r\n\r\n", 0).await?;
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let end = if head.contains("transfer-encoding: chunked") {
        // Matches a whole line, because other chunk sizes may end with 0.
        let data = read_until(tcp, read, b"\r\n0\r\n", end - 2).await?;
        read_until(tcp, read, b"\r\n", data).await?
    } else {
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        while read.len() < end + length {
            read_more(tcp, read).await?;
        }
        end + length
    };
    Some(String::from_utf8_lossy(&read.drain(..end).collect::<Vec<_>>()).into_owned())
}

async fn read_until(
    tcp: &mut TcpStream,
    read: &mut Vec<u8>,
    mark: &[u8],
    from: usize,
) -> Option<usize> {
    loop {
        let at = read[from..].windows(mark.len()).position(|window| window == mark);
        match at {
            Some(at) => return Some(from + at + mark.len()),
            None => read_more(tcp, read).await?,
        }
    }
}

async fn read_more(tcp: &mut TcpStream, read: &mut Vec<u8>) -> Option<()> {
    match tcp.read_buf(read).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
