//! A server behind the gateway that notes every byte of what it gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify, mpsc};
use tokio::task::JoinHandle;

/// What an upstream does when a request has come.
pub(crate) enum Reply {
    /// Says this, and waits for the next.
    Say(Vec<u8>),
    /// Says this, and closes.
    SayAndClose(Vec<u8>),
    /// Says this when as many are asking as the barrier waits for, and closes when it is told to.
    SayTogether(Arc<Barrier>, Arc<Notify>, Vec<u8>),
    /// Says nothing for so long, then this.
    SayLater(Duration, Vec<u8>),
    /// Says this, then sends back whatever comes.
    Echo(Vec<u8>),
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    requests: mpsc::UnboundedReceiver<String>,
    serving: JoinHandle<()>,
}

/// A plain answer.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Upstream {
    /// One that answers `ok` with its number.
    pub(crate) async fn start() -> Self {
        Self::replying(|_| Reply::Say(ok("hello"))).await
    }

    /// The same at an address that was in use before.
    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self::listening(address, |_| Reply::Say(ok("hello"))).await
    }

    pub(crate) async fn replying(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::listening(SocketAddr::from(([127, 0, 0, 1], 0)), reply).await
    }

    async fn listening(
        address: SocketAddr,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (noted, requests) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let (reply, counted) = (Arc::new(reply), Arc::clone(&connections));
        let serving = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Relaxed);
                let (reply, noted) = (Arc::clone(&reply), noted.clone());
                tokio::spawn(async move { converse(tcp, &*reply, &noted).await });
            }
        });
        Self { address, connections, requests, serving }
    }

    /// The next request, as it came.
    pub(crate) async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }

    /// Every request that has come and was not asked for yet.
    pub(crate) fn seen(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }

    /// Accepts nobody any more.
    pub(crate) async fn leave(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

async fn converse(
    mut tcp: TcpStream,
    reply: &(dyn Fn(&str) -> Reply + Send + Sync),
    noted: &mpsc::UnboundedSender<String>,
) {
    let mut read = Vec::new();
    while let Some(request) = next(&mut tcp, &mut read).await {
        let reply = reply(&request);
        let _ = noted.send(request);
        let said = match &reply {
            Reply::Say(bytes) | Reply::SayAndClose(bytes) | Reply::Echo(bytes) => bytes,
            Reply::SayTogether(all, _, bytes) => {
                all.wait().await;
                bytes
            }
            Reply::SayLater(after, bytes) => {
                tokio::time::sleep(*after).await;
                bytes
            }
        };
        if tcp.write_all(said).await.is_err() {
            return;
        }
        match reply {
            Reply::SayAndClose(_) => return,
            Reply::SayTogether(_, told, _) => return told.notified().await,
            Reply::Echo(_) => {
                let (mut from, mut to) = tcp.split();
                let _ = to.write_all(&read).await;
                let _ = tokio::io::copy(&mut from, &mut to).await;
                return;
            }
            Reply::Say(_) | Reply::SayLater(..) => {}
        }
    }
}

/// A whole request; none at the end.
async fn next(tcp: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    let end = until(tcp, read, b"\r\n\r\n", 0).await?;
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let end = if head.contains("transfer-encoding: chunked") {
        // A line of its own: sizes end with a nought too.
        let data = until(tcp, read, b"\r\n0\r\n", end - 2).await?;
        until(tcp, read, b"\r\n", data).await?
    } else {
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        while read.len() < end + length {
            more(tcp, read).await?;
        }
        end + length
    };
    Some(String::from_utf8_lossy(&read.drain(..end).collect::<Vec<_>>()).into_owned())
}

async fn until(tcp: &mut TcpStream, read: &mut Vec<u8>, mark: &[u8], from: usize) -> Option<usize> {
    loop {
        let at = read[from..].windows(mark.len()).position(|window| window == mark);
        match at {
            Some(at) => return Some(from + at + mark.len()),
            None => more(tcp, read).await?,
        }
    }
}

async fn more(tcp: &mut TcpStream, read: &mut Vec<u8>) -> Option<()> {
    match tcp.read_buf(read).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}
