//! Like `graceful_restart`, with HTTP/2 clients that have many requests on one connection. The old
//! process sends GOAWAY, answers the requests it has received, and the next ones go to the
//! successor. (curl 7.88 cannot be used here: it keeps using a connection after GOAWAY.)

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_testkit::nginx::NginxServer;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::support::{ServerProcess, SuccessorChain, wait_for};

/// Concurrent requests per connection.
const STREAMS_PER_CONNECTION: usize = 16;

type Http2RequestSender = http2::SendRequest<Empty<Bytes>>;

#[derive(Default)]
struct Http2LoadCounters {
    stop: AtomicBool,
    done: AtomicU64,
    /// Connections that reached their end.
    connections: AtomicU64,
}

async fn connect(address: &str) -> Http2RequestSender {
    let tcp = TcpStream::connect(address).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
    let (sender, connection) = handshake.unwrap();
    tokio::spawn(connection);
    sender
}

/// Whether GOAWAY arrived before the request was sent, so that the server has not processed it (RFC
/// 9113 section 6.8). For a processed request, the error would be a broken connection.
fn is_unprocessed_goaway(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_go_away() && cause.is_remote() && cause.reason() == Some(h2::Reason::NO_ERROR)
    })
}

/// Sends one request. `false` if the connection accepts no more; the request was not sent then.
async fn send_once(
    mut sender: Http2RequestSender,
    load: &Http2LoadCounters,
) -> Result<bool, String> {
    if sender.ready().await.is_err() {
        return Ok(false);
    }
    let request = Request::get("http://a/x").body(Empty::new()).unwrap();
    let response = match sender.try_send_request(request).await {
        Ok(response) => response,
        Err(error) if error.message().is_some() || is_unprocessed_goaway(error.error()) => {
            return Ok(false);
        }
        Err(error) => return Err(format!("{:?}", error.into_error())),
    };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
    if (status, &*body.to_bytes()) != (200, b"ok") {
        return Err(format!("{status}"));
    }
    load.done.fetch_add(1, Ordering::Relaxed);
    Ok(true)
}

/// Sends requests over one connection after the other until stopped.
async fn send_until_stopped(address: String, load: Arc<Http2LoadCounters>) -> Vec<String> {
    let mut failures = Vec::new();
    while !load.stop.load(Ordering::Relaxed) {
        let (sender, mut streams) = (connect(&address).await, JoinSet::new());
        for _ in 0..STREAMS_PER_CONNECTION {
            let (sender, load) = (sender.clone(), Arc::clone(&load));
            streams.spawn(async move {
                while !load.stop.load(Ordering::Relaxed) {
                    match send_once(sender.clone(), &load).await {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(failure) => return Some(failure),
                    }
                }
                None
            });
        }
        failures.extend(streams.join_all().await.into_iter().flatten());
        load.connections.fetch_add(1, Ordering::Relaxed);
    }
    failures
}

#[test]
fn restarts_under_http2_load_lose_no_request() {
    let nginx = NginxServer::start("return 200 ok;");
    let server = ServerProcess::start_gateway(&nginx.url(), &["--limit", "1000000/s by ip"]);
    let mut chain = SuccessorChain::new(&server);
    let (load, runtime) = (Arc::new(Http2LoadCounters::default()), Runtime::new().unwrap());
    let clients: Vec<_> = (0..3)
        .map(|_| runtime.spawn(send_until_stopped(server.gateway.clone(), Arc::clone(&load))))
        .collect();
    for _ in 0..4 {
        let before = load.done.load(Ordering::Relaxed);
        wait_for("load", || (load.done.load(Ordering::Relaxed) > before + 500).then_some(()));
        chain.replace_process();
    }
    let before = load.done.load(Ordering::Relaxed);
    wait_for("load after", || (load.done.load(Ordering::Relaxed) > before + 500).then_some(()));
    load.stop.store(true, Ordering::Relaxed);
    let failures: Vec<String> =
        clients.into_iter().flat_map(|client| runtime.block_on(client).unwrap()).collect();
    let done = load.done.load(Ordering::Relaxed);
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
    assert_eq!(nginx.requests().len() as u64, done, "no request was sent twice");
    assert!(load.connections.load(Ordering::Relaxed) >= 3 * 5, "each restart ends a connection");
}
