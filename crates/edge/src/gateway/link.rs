//! A connection to an upstream.
//!
//! One of HTTP/1.1 is driven by whoever uses it, in their own task: a request then costs no hop to a
//! task that owns the connection and back, which is a good part of what a small one costs. In the pool
//! nobody drives it; whether it still lives is looked at when it is taken out.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::address::{Address, Protocol};
use super::outgoing::Outgoing;
use super::trust::Trust;

/// The bytes of a connection.
pub(crate) type Io = TokioIo<Either<TcpStream, Box<TlsStream<TcpStream>>>>;

/// A sender of requests over HTTP/2; copies share the connection.
pub(super) type Http2 = http2::SendRequest<Outgoing>;

/// A connection of HTTP/1.1.
pub(super) struct Http1 {
    sender: http1::SendRequest<Outgoing>,
    connection: http1::Connection<Io, Outgoing>,
    ended: bool,
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
    Ok((TokioIo::new(io), http2))
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
        Dialled::Http1(Box::new(Http1 { sender, connection, ended: false }))
    };
    Ok(dialled)
}

impl Http1 {
    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            drive(&mut self.connection, &mut self.ended, cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Lets the connection do its work.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, cx);
    }

    /// Whether another request may be sent, as far as the system has told.
    pub(super) fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// The same connection on a task of its own, for a request that may change the protocol.
    pub(super) fn with_upgrades(self) -> http1::SendRequest<Outgoing> {
        let connection = self.connection.with_upgrades();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to an upstream ended early");
            }
        });
        self.sender
    }
}

fn drive(connection: &mut http1::Connection<Io, Outgoing>, ended: &mut bool, cx: &mut Context<'_>) {
    if !*ended && Pin::new(connection).poll(cx).is_ready() {
        *ended = true;
    }
}
