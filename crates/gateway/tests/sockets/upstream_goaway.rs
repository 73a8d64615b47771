//! An HTTP/2 upstream that sends GOAWAY before it processes a request: the gateway resends the
//! request on a new connection, with its body if that is short.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_net::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::UNREACHED_LIMIT;
use tidegate_fixtures::gateway::{TestGateway, settings_for};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// What a refused connection has received when the upstream sends GOAWAY.
#[derive(Clone, Copy)]
enum GoawayTrigger {
    AfterHead,
    AfterBytes(usize),
}

fn encode_frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, 0], &[0; 4], payload].concat()
}

/// Reads until the trigger, then sends a GOAWAY that excludes every stream (RFC 9113 section 6.8).
async fn send_goaway(mut tcp: TcpStream, until: GoawayTrigger, goaway_sent: &Notify) {
    let mut preface = [0; 24];
    tcp.read_exact(&mut preface).await.unwrap();
    tcp.write_all(&encode_frame(SETTINGS, &[])).await.unwrap();
    let mut bytes = 0;
    loop {
        let mut head = [0; 9];
        tcp.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        tcp.read_exact(&mut vec![0; length]).await.unwrap();
        bytes += if head[3] == DATA { length } else { 0 };
        match until {
            GoawayTrigger::AfterHead if head[3] == HEADERS => break,
            GoawayTrigger::AfterBytes(enough) if bytes >= enough => break,
            _ => {}
        }
    }
    tcp.write_all(&encode_frame(GOAWAY, &[0; 8])).await.unwrap();
    goaway_sent.notify_one();
    // Keeps the connection open until the gateway closes it.
    let _ = tcp.read_to_end(&mut Vec::new()).await;
}

/// Responds with the request body.
async fn serve_echo(tcp: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| async {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(body)))
    });
    let _ = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(tcp), service)
        .await;
}

/// Starts a gateway whose upstream refuses its first connections; notified at each GOAWAY.
async fn gateway_with_goaway_upstream(
    refused: usize,
    until: GoawayTrigger,
) -> (TestGateway, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let goaway_sent = Arc::new(Notify::new());
    let notifier = Arc::clone(&goaway_sent);
    tokio::spawn(async move {
        for number in 0.. {
            let (tcp, _) = listener.accept().await.unwrap();
            let notifier = Arc::clone(&notifier);
            tokio::spawn(async move {
                if number < refused {
                    send_goaway(tcp, until, &notifier).await;
                } else {
                    serve_echo(tcp).await;
                }
            });
        }
    });
    let mut settings = settings_for(&[at]);
    settings.upstreams[0].servers = vec![(format!("h2c://{at}").parse().unwrap(), 1)];
    (
        TestGateway::start_with(UNREACHED_LIMIT, settings, listen::Settings::default()).await,
        goaway_sent,
    )
}

#[tokio::test]
async fn short_body_is_resent_after_goaway() {
    for refused in [0, 1, 2] {
        let (gate, _) = gateway_with_goaway_upstream(refused, GoawayTrigger::AfterBytes(5)).await;
        let response = gate.connect().await.request("POST", "/", b"hello").await;
        assert_eq!((response.status, response.body.as_str()), (200, "hello"), "{refused}");
    }
    let (gate, _) = gateway_with_goaway_upstream(3, GoawayTrigger::AfterBytes(5)).await;
    assert_eq!(
        gate.connect().await.request("POST", "/", b"hello").await.status,
        502,
        "the number of attempts is limited"
    );
}

#[tokio::test]
async fn unstarted_long_body_is_resent_after_goaway() {
    let (gate, goaway_sent) = gateway_with_goaway_upstream(1, GoawayTrigger::AfterHead).await;
    let mut caller = gate.connect().await;
    let body = "x".repeat(300_000);
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    caller.send(head.as_bytes()).await;
    goaway_sent.notified().await;
    caller.send(body.as_bytes()).await;
    let response = caller.read_response().await.unwrap();
    assert_eq!((response.status, response.body.len()), (200, body.len()));
}

#[tokio::test]
async fn partial_body_is_replayed_from_the_start() {
    let (gate, goaway_sent) = gateway_with_goaway_upstream(1, GoawayTrigger::AfterBytes(3)).await;
    let mut caller = gate.connect().await;
    caller.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nabc").await;
    goaway_sent.notified().await;
    caller.send(b"def").await;
    let response = caller.read_response().await.unwrap();
    assert_eq!((response.status, response.body.as_str()), (200, "abcdef"));
}

#[tokio::test]
async fn started_long_body_is_not_replayed() {
    // The initial flow-control window of HTTP/2.
    let (gate, _) = gateway_with_goaway_upstream(1, GoawayTrigger::AfterBytes(65_535)).await;
    let body = Bytes::from(vec![b'x'; 300_000]);
    assert_eq!(gate.connect().await.request("POST", "/", &body).await.status, 502);
}
