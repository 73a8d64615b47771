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
use hyper_util::rt::{TokioExecutor, TokioTimer};

use tidegate_net::connect::{OutboundAddress, OutboundIo, OutboundTls, connect};

use super::request_body::UpstreamRequestBody;
use super::response_deadline::{ResponseDeadline, ResponseTimer};
use super::upstream_error::UpstreamError;
use tidegate_net::wake_slot::{WakeSlot, suppress_wakes};

/// A sender of requests over HTTP/2; copies share the connection.
pub(super) type Http2Sender = http2::SendRequest<UpstreamRequestBody>;

/// A connection of HTTP/1.1.
pub(super) struct Http1Connection {
    sender: http1::SendRequest<UpstreamRequestBody>,
    inline: InlineConnection,
    /// When the answer under way is late.
    deadline: ResponseTimer,
}

/// What drives it.
struct InlineConnection {
    /// None when it has ended.
    connection: Option<http1::Connection<OutboundIo, UpstreamRequestBody>>,
    /// Wakes whoever drives it.
    wake_slot: Arc<WakeSlot>,
    waker: Waker,
}

/// A new connection, as the server speaks it.
pub(super) enum UpstreamConnection {
    Http1(Box<Http1Connection>),
    Http2(Http2Sender),
}

/// A new connection to an upstream.
pub(super) async fn dial(
    address: &OutboundAddress,
    trust: &OutboundTls,
) -> io::Result<UpstreamConnection> {
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
        UpstreamConnection::Http2(sender)
    } else {
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        let (driven, deadline) = (InlineConnection::new(connection), ResponseTimer::default());
        UpstreamConnection::Http1(Box::new(Http1Connection { sender, inline: driven, deadline }))
    };
    Ok(dialled)
}

impl Http1Connection {
    /// Sends a request and waits for the head of the answer. The request is taken, and put back where surely
    /// nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        unsent: &mut Option<Request<UpstreamRequestBody>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let Some(request) = unsent.take() else { return Err(UpstreamError::AlreadySent) };
        let progress = request.body().progress();
        let Self { sender, inline: driven, deadline } = self;
        let mut answer = pin!(suppress_wakes(|| sender.try_send_request(request)));
        let mut waiting = ResponseDeadline::new(progress, patience, deadline);
        poll_fn(|cx| {
            driven.drive(cx);
            match answer.as_mut().poll(&mut noop_context()) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => {
                    *unsent = error.take_message();
                    Poll::Ready(Err(UpstreamError::from_hyper(error.into_error())))
                }
                Poll::Pending => {
                    waiting.poll_elapsed(cx).map(|()| Err(UpstreamError::ResponseTimeout))
                }
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
        let mut next = || suppress_wakes(|| Pin::new(&mut *body).poll_frame(&mut noop_context()));
        match next() {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => {
                self.inline.drive(cx);
                next()
            }
        }
    }

    /// Whether another request may be sent, as far as the system has told.
    pub(super) fn is_reusable(&mut self) -> bool {
        if !self.sender.is_ready() {
            self.inline.drive(&noop_context());
        }
        self.inline.connection.is_some() && self.sender.is_ready()
    }

    /// The same connection on a task of its own, for a request that may change the protocol.
    pub(super) fn into_upgradable_sender(self) -> http1::SendRequest<UpstreamRequestBody> {
        let connection = self.inline.connection.map(http1::Connection::with_upgrades);
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
fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl InlineConnection {
    fn new(connection: http1::Connection<OutboundIo, UpstreamRequestBody>) -> Self {
        let wake_slot = WakeSlot::new(false);
        let waker = Waker::from(Arc::clone(&wake_slot));
        Self { connection: Some(connection), wake_slot, waker }
    }

    /// Lets the connection do its work. One that has ended is dropped: a request that it has not begun to send comes
    /// back only then.
    ///
    /// It is given a waker of its own. hyper wakes whoever drives a connection also when there is something for it to
    /// do, and that comes from those who drive it next: they would run their whole task, or that of whoever
    /// had the connection before, once more for nothing.
    fn drive(&mut self, cx: &Context<'_>) {
        let Some(alive) = &mut self.connection else { return };
        self.wake_slot.register(cx.waker());
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
    pub(crate) async fn test_connection() -> Box<Http1Connection> {
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
        match dial(&address, &OutboundTls::without_roots().unwrap()).await.unwrap() {
            UpstreamConnection::Http1(link) => link,
            UpstreamConnection::Http2(_) => panic!("it speaks HTTP/1.1"),
        }
    }

    /// Asks, and reads the answer to its end.
    async fn send_and_read(link: &mut Http1Connection) {
        let request =
            Request::builder().header("host", "a").body(UpstreamRequestBody::empty()).unwrap();
        let answer = link.send(&mut Some(request), Duration::from_secs(60)).await.unwrap();
        let mut body = answer.into_body();
        let frame = poll_fn(|cx| link.poll_frame(&mut body, cx)).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "ok");
        assert!(body.frame().await.is_none());
        assert!(link.is_reusable());
    }

    /// How often a future is polled until it is ready.
    async fn count_polls<T>(future: impl Future<Output = T>) -> (usize, T) {
        let (mut future, mut polls) = (pin!(future), 0);
        let given = poll_fn(|cx| {
            polls += 1;
            future.as_mut().poll(cx)
        });
        let given = given.await;
        (polls, given)
    }

    #[tokio::test]
    async fn only_server_data_wakes_requester() {
        let mut link = test_connection().await;
        for _ in 0..3 {
            let (polls, ()) = count_polls(send_and_read(&mut link)).await;
            assert_eq!(polls, 2, "once to ask, once when there is an answer");
        }
    }

    #[tokio::test]
    async fn reused_connection_wakes_no_previous_task() {
        let mut link = test_connection().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let ((give, given), (end, mut ended)) = (oneshot::channel(), oneshot::channel::<()>());
        let counted = Arc::clone(&polls);
        let before = tokio::spawn(async move {
            send_and_read(&mut link).await;
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
            send_and_read(&mut link).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Relaxed), 1, "it waits for something else");
        end.send(()).unwrap();
        before.await.unwrap();
    }
}
