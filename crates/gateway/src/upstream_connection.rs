//! A connection to an upstream server.
//!
//! The task that sends a request also drives its HTTP/1.1 connection. This saves the round trip to
//! a separate connection task, a substantial part of the cost of a small request. An idle
//! connection in the pool is not driven. If the server closed it meanwhile, the next use detects
//! that and returns the request unsent.

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

/// A sender of HTTP/2 requests; clones share the connection.
pub(super) type Http2Sender = http2::SendRequest<UpstreamRequestBody>;

/// An HTTP/1.1 connection.
pub(super) struct Http1Connection {
    sender: http1::SendRequest<UpstreamRequestBody>,
    inline: InlineConnection,
    /// The timeout of the current response.
    deadline: ResponseTimer,
}

/// The part of the connection that must be polled.
struct InlineConnection {
    /// `None` when it has ended.
    connection: Option<http1::Connection<OutboundIo, UpstreamRequestBody>>,
    /// Forwards wake-ups to the task that drives the connection.
    wake_slot: Arc<WakeSlot>,
    waker: Waker,
}

/// A new connection, by the protocol that was negotiated.
pub(super) enum UpstreamConnection {
    Http1(Box<Http1Connection>),
    Http2(Http2Sender),
}

/// Connects to an upstream server.
pub(super) async fn dial(
    address: &OutboundAddress,
    tls: &OutboundTls,
) -> io::Result<UpstreamConnection> {
    let (io, http2) = connect(address, tls).await?;
    let connection = if http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new()).adaptive_window(true);
        let (sender, connection) = http.handshake(io).await.map_err(io::Error::other)?;
        // Many requests share it, so a separate task drives it. The task ends with the last sender.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended with an error");
            }
        });
        UpstreamConnection::Http2(sender)
    } else {
        let handshake = http1::handshake(io).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        let (inline, deadline) = (InlineConnection::new(connection), ResponseTimer::default());
        UpstreamConnection::Http1(Box::new(Http1Connection { sender, inline, deadline }))
    };
    Ok(connection)
}

impl Http1Connection {
    /// Sends a request and waits for the head of the response. Takes the request from `unsent`, and
    /// puts it back if nothing of it was sent.
    pub(super) async fn send(
        &mut self,
        unsent: &mut Option<Request<UpstreamRequestBody>>,
        timeout: Duration,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let Some(request) = unsent.take() else { return Err(UpstreamError::AlreadySent) };
        let progress = request.body().progress();
        let Self { sender, inline, deadline } = self;
        let mut response = pin!(suppress_wakes(|| sender.try_send_request(request)));
        let mut waiting = ResponseDeadline::new(progress, timeout, deadline);
        poll_fn(|cx| {
            inline.drive(cx);
            match response.as_mut().poll(&mut noop_context()) {
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

    /// Polls the next frame of the current response body.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // A short body arrives together with its head, and is already buffered.
        let mut next = || suppress_wakes(|| Pin::new(&mut *body).poll_frame(&mut noop_context()));
        match next() {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => {
                self.inline.drive(cx);
                next()
            }
        }
    }

    /// Whether another request can be sent, as far as the operating system has reported.
    pub(super) fn is_reusable(&mut self) -> bool {
        if !self.sender.is_ready() {
            self.inline.drive(&noop_context());
        }
        self.inline.connection.is_some() && self.sender.is_ready()
    }

    /// Moves the connection to a separate task, for a request that may upgrade the protocol.
    pub(super) fn into_upgradable_sender(self) -> http1::SendRequest<UpstreamRequestBody> {
        let connection = self.inline.connection.map(http1::Connection::with_upgrades);
        tokio::spawn(async move {
            let Some(connection) = connection else { return };
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended with an error");
            }
        });
        self.sender
    }
}

/// A context without wake-ups, for futures that make progress only while the connection is driven.
/// The driving task polls them afterwards, so a wake-up would only run it once more for nothing.
fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl InlineConnection {
    fn new(connection: http1::Connection<OutboundIo, UpstreamRequestBody>) -> Self {
        let wake_slot = WakeSlot::new(false);
        let waker = Waker::from(Arc::clone(&wake_slot));
        Self { connection: Some(connection), wake_slot, waker }
    }

    /// Polls the connection. Drops it when it has ended, because only then hyper returns a request
    /// that was not sent.
    ///
    /// The connection is polled with its own waker. hyper also wakes the driving task when a
    /// request is queued. The task that queues the request is the one that polls next, so that
    /// wake-up is redundant, and for a reused connection it hits the *previous* task.
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

    /// Connects to a server that sends the same response to every request.
    pub(crate) async fn test_connection() -> Box<Http1Connection> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut server, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            while server.read(&mut request).await.is_ok_and(|length| length > 0) {
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                server.write_all(response).await.unwrap();
            }
        });
        match dial(&address, &OutboundTls::without_roots().unwrap()).await.unwrap() {
            UpstreamConnection::Http1(connection) => connection,
            UpstreamConnection::Http2(_) => panic!("the server speaks HTTP/1.1"),
        }
    }

    /// Sends a request and reads the whole response.
    async fn send_and_read(connection: &mut Http1Connection) {
        let request =
            Request::builder().header("host", "a").body(UpstreamRequestBody::empty()).unwrap();
        let response = connection.send(&mut Some(request), Duration::from_secs(60)).await.unwrap();
        let mut body = response.into_body();
        let frame = poll_fn(|cx| connection.poll_frame(&mut body, cx)).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "ok");
        assert!(body.frame().await.is_none());
        assert!(connection.is_reusable());
    }

    /// Counts how often a future is polled until it is ready.
    async fn count_polls<T>(future: impl Future<Output = T>) -> (usize, T) {
        let (mut future, mut polls) = (pin!(future), 0);
        let output = poll_fn(|cx| {
            polls += 1;
            future.as_mut().poll(cx)
        });
        let output = output.await;
        (polls, output)
    }

    #[tokio::test]
    async fn only_server_data_wakes_requester() {
        let mut connection = test_connection().await;
        for _ in 0..3 {
            let (polls, ()) = count_polls(send_and_read(&mut connection)).await;
            assert_eq!(polls, 2, "once to send, once when the response arrives");
        }
    }

    #[tokio::test]
    async fn reused_connection_wakes_no_previous_task() {
        let mut connection = test_connection().await;
        let polls = Arc::new(AtomicUsize::new(0));
        let ((hand_over, handed_over), (end, mut ended)) =
            (oneshot::channel(), oneshot::channel::<()>());
        let counted = Arc::clone(&polls);
        let before = tokio::spawn(async move {
            send_and_read(&mut connection).await;
            hand_over.send(connection).ok();
            poll_fn(|cx| {
                counted.fetch_add(1, Relaxed);
                Pin::new(&mut ended).poll(cx)
            })
            .await
            .unwrap();
        });
        let mut connection = handed_over.await.unwrap();
        for _ in 0..3 {
            send_and_read(&mut connection).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Relaxed), 1, "the previous task was woken");
        end.send(()).unwrap();
        before.await.unwrap();
    }
}
