//! A connection to an upstream.
//!
//! One of HTTP/1.1 is driven by whoever uses it, in their own task: a request then costs no hop to a
//! task that owns the connection and back, which is a good part of what a small one costs. In the pool
//! nobody drives it; one that was closed meanwhile says so when it is used, and gives the request back.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::address::{Address, Protocol};
use super::deadline::{Deadline, Waiting};
use super::failure::Failure;
use super::outgoing::Outgoing;
use super::trust::Trust;
use crate::bell::{Bell, muffled};
use crate::brief::Brief;

/// The bytes of a connection.
pub(crate) type Io = TokioIo<Brief<Either<TcpStream, Box<TlsStream<TcpStream>>>>>;

/// A sender of requests over HTTP/2; copies share the connection.
pub(super) type Http2 = http2::SendRequest<Outgoing>;

/// A connection of HTTP/1.1.
pub(super) struct Http1 {
    sender: http1::SendRequest<Outgoing>,
    driven: Driven,
    /// When the answer under way is late.
    deadline: Deadline,
}

/// What drives it.
struct Driven {
    /// None when it has ended.
    connection: Option<http1::Connection<Io, Outgoing>>,
    /// Wakes whoever drives it.
    bell: Arc<Bell>,
    waker: Waker,
}

/// A new connection, as the server speaks it.
pub(super) enum Dialled {
    Http1(Box<Http1>),
    Http2(Http2),
}

/// Connects and agrees on a protocol: whether it is HTTP/2.
pub(crate) async fn connect(address: &Address, trust: &Trust) -> io::Result<(Io, bool)> {
    let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
    tcp.set_nodelay(true)?;
    let (io, http2) = match address.protocol {
        Protocol::Http => (Either::Left(tcp), false),
        Protocol::Http2 => (Either::Left(tcp), true),
        Protocol::Https => {
            let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
            let tls = trust.connector().connect(name, tcp).await?;
            let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            (Either::Right(Box::new(tls)), http2)
        }
    };
    Ok((TokioIo::new(Brief(io)), http2))
}

/// A new connection to an upstream.
pub(super) async fn dial(address: &Address, trust: &Trust) -> io::Result<Dialled> {
    let (io, http2) = connect(address, trust).await?;
    let dialled = if http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new()).adaptive_window(true);
        let (sender, connection) = http.handshake(io).await.map_err(io::Error::other)?;
        // Shared by many requests, so it has a task of its own; it ends with its last sender.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to an upstream ended early");
            }
        });
        Dialled::Http2(sender)
    } else {
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        let (driven, deadline) = (Driven::new(connection), Deadline::default());
        Dialled::Http1(Box::new(Http1 { sender, driven, deadline }))
    };
    Ok(dialled)
}

impl Http1 {
    /// Sends a request and waits for the head of the answer. The request is taken, and put back where surely
    /// nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        unsent: &mut Option<Request<Outgoing>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let Some(request) = unsent.take() else { return Err(Failure::Sent) };
        let progress = request.body().progress();
        let Self { sender, driven, deadline } = self;
        let mut answer = pin!(muffled(|| sender.try_send_request(request)));
        let mut waiting = Waiting::new(progress, patience, deadline);
        poll_fn(|cx| {
            driven.drive(cx);
            match answer.as_mut().poll(&mut unheard()) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => {
                    *unsent = error.take_message();
                    Poll::Ready(Err(Failure::of(error.into_error())))
                }
                Poll::Pending => waiting.poll_late(cx).map(|()| Err(Failure::ResponseTimeout)),
            }
        })
        .await
    }

    /// The next piece of the body of the answer under way.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // A short body comes with its head, and is there already.
        let mut next = || muffled(|| Pin::new(&mut *body).poll_frame(&mut unheard()));
        match next() {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => {
                self.driven.drive(cx);
                next()
            }
        }
    }

    /// Whether another request may be sent, as far as the system has told.
    pub(super) fn is_free(&mut self) -> bool {
        if !self.sender.is_ready() {
            self.driven.drive(&unheard());
        }
        self.driven.connection.is_some() && self.sender.is_ready()
    }

    /// The same connection on a task of its own, for a request that may change the protocol.
    pub(super) fn with_upgrades(self) -> http1::SendRequest<Outgoing> {
        let connection = self.driven.connection.map(http1::Connection::with_upgrades);
        tokio::spawn(async move {
            let Some(connection) = connection else { return };
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to an upstream ended early");
            }
        });
        self.sender
    }
}

/// For what comes only while the connection is driven: whoever drives it looks afterwards, so that to wake them
/// would be to run their whole task once more for nothing.
fn unheard() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Driven {
    fn new(connection: http1::Connection<Io, Outgoing>) -> Self {
        let bell = Bell::new(false);
        let waker = Waker::from(Arc::clone(&bell));
        Self { connection: Some(connection), bell, waker }
    }

    /// Lets the connection do its work. One that has ended is dropped: a request that it has not begun to send comes
    /// back only then.
    ///
    /// It is given a waker of its own. hyper wakes whoever drives a connection also when there is something for it to
    /// do, and that comes from those who drive it next: they would run their whole task, or that of whoever
    /// had the connection before, once more for nothing.
    fn drive(&mut self, cx: &Context<'_>) {
        let Some(alive) = &mut self.connection else { return };
        self.bell.hear(cx.waker());
        if Pin::new(alive).poll(&mut Context::from_waker(&self.waker)).is_ready() {
            self.connection = None;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;

    /// A connection to a server that answers everything alike.
    pub(in crate::gateway) async fn link() -> Box<Http1> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut asked = [0; 1024];
            while server.read(&mut asked).await.is_ok_and(|length| length > 0) {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                server.write_all(answer).await.unwrap();
            }
        });
        match dial(&address, &Trust::nobody().unwrap()).await.unwrap() {
            Dialled::Http1(link) => link,
            Dialled::Http2(_) => panic!("it speaks HTTP/1.1"),
        }
    }

    /// Asks, and reads the answer to its end.
    async fn ask(link: &mut Http1) {
        let request = Request::builder().header("host", "a").body(Outgoing::none()).unwrap();
        let answer = link.send(&mut Some(request), Duration::from_secs(60)).await.unwrap();
        let mut body = answer.into_body();
        let frame = poll_fn(|cx| link.poll_frame(&mut body, cx)).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "ok");
        assert!(body.frame().await.is_none());
        assert!(link.is_free());
    }

    /// How often a future is polled until it is ready.
    async fn polls<T>(future: impl Future<Output = T>) -> (usize, T) {
        let (mut future, mut polls) = (pin!(future), 0);
        let given = poll_fn(|cx| {
            polls += 1;
            future.as_mut().poll(cx)
        });
        let given = given.await;
        (polls, given)
    }

    #[tokio::test]
    async fn only_what_comes_from_the_server_wakes_whoever_asks() {
        let mut link = link().await;
        for _ in 0..3 {
            let (polls, ()) = polls(ask(&mut link)).await;
            assert_eq!(polls, 2, "once to ask, once when there is an answer");
        }
    }

    #[tokio::test]
    async fn nobody_is_woken_for_a_connection_that_another_has_by_now() {
        let mut link = link().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let ((give, given), (end, mut ended)) = (oneshot::channel(), oneshot::channel::<()>());
        let counted = Arc::clone(&polls);
        let before = tokio::spawn(async move {
            ask(&mut link).await;
            give.send(link).ok();
            poll_fn(|cx| {
                counted.fetch_add(1, Relaxed);
                Pin::new(&mut ended).poll(cx)
            })
            .await
            .unwrap();
        });
        let mut link = given.await.unwrap();
        for _ in 0..3 {
            ask(&mut link).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Relaxed), 1, "it waits for something else");
        end.send(()).unwrap();
        before.await.unwrap();
    }
}
