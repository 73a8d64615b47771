//! Charges for interrupted uploads. Random uploads end in random ways. The charge always covers the
//! bytes that reached the upstream, and never exceeds the bytes that the client sent.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tidegate_gateway::{Settings, UpstreamTimeouts};
use tidegate_net::listen;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::counting_upstream::{CountingUpstream, UpstreamBehavior};
use tidegate_fixtures::gateway::{TestGateway, settings_for};
use tidegate_fixtures::generators::sample_values;

const LIMIT: u64 = 1_000_000;
const RULES: &str = "rules: [{ id: r, key_by: global, limit: 1000000/h, cost: { body: 1KiB } }]";

/// Short, because the test always waits for it. The assertions do not depend on timing.
const SHORT_TIMEOUT: Duration = Duration::from_millis(30);

/// How the client frames the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadFraming {
    Chunked,
    /// With a declared Content-Length.
    ContentLength,
    Http2,
}

/// How an upload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadEnding {
    Completes,
    ClientDisconnects,
    ClientStalls,
    /// The next chunk has an invalid size.
    Malformed,
    TooLarge,
    UpstreamAborts,
    UpstreamStalls,
}

#[derive(Debug)]
struct UploadCase {
    pieces: Vec<usize>,
    framing: UploadFraming,
    ending: UploadEnding,
    upstream_speaks_http2: bool,
}

fn upload_cases() -> impl Strategy<Value = UploadCase> {
    let framing = prop::sample::select(
        &[UploadFraming::Chunked, UploadFraming::ContentLength, UploadFraming::Http2][..],
    );
    let ending = prop::sample::select(
        &[
            UploadEnding::Completes,
            UploadEnding::ClientDisconnects,
            UploadEnding::ClientStalls,
            UploadEnding::Malformed,
            UploadEnding::TooLarge,
            UploadEnding::UpstreamAborts,
            UploadEnding::UpstreamStalls,
        ][..],
    );
    let pieces = prop::collection::vec(1_usize..20_000, 1..6);
    (pieces, framing, ending, any::<bool>())
        .prop_map(|(pieces, framing, ending, upstream_speaks_http2)| UploadCase {
            pieces,
            framing,
            ending,
            upstream_speaks_http2,
        })
        .prop_filter("only chunks can be malformed, and a length is refused at once", |upload| {
            match upload.ending {
                UploadEnding::Malformed => upload.framing == UploadFraming::Chunked,
                UploadEnding::TooLarge => upload.framing != UploadFraming::ContentLength,
                _ => true,
            }
        })
}

impl UploadCase {
    fn total_bytes(&self) -> u64 {
        self.pieces.iter().sum::<usize>() as u64
    }

    fn upstream_behavior(&self) -> UpstreamBehavior {
        match self.ending {
            UploadEnding::UpstreamAborts => UpstreamBehavior::AbortsAfter(self.total_bytes() / 2),
            UploadEnding::UpstreamStalls => UpstreamBehavior::NeverResponds,
            _ => UpstreamBehavior::Responds,
        }
    }

    fn settings(&self, upstream: &CountingUpstream) -> Settings {
        let mut settings = settings_for(&[]);
        let upstream_settings = &mut settings.upstreams[0];
        upstream_settings.servers = vec![(upstream.url.parse().unwrap(), 1)];
        match self.ending {
            UploadEnding::ClientStalls => settings.body_timeout = SHORT_TIMEOUT,
            UploadEnding::TooLarge => settings.max_body_bytes = self.total_bytes() - 1,
            UploadEnding::UpstreamStalls => {
                upstream_settings.timeouts =
                    UpstreamTimeouts { response: SHORT_TIMEOUT, ..UpstreamTimeouts::default() };
            }
            _ => {}
        }
        settings
    }

    /// Whether the client sends everything it announced.
    fn is_complete(&self) -> bool {
        matches!(self.ending, UploadEnding::Completes | UploadEnding::UpstreamStalls)
    }

    /// Sends the upload over HTTP/1.1. The connection stays open until the returned value is
    /// dropped.
    async fn send_http1(
        &self,
        gate: &TestGateway,
        upstream: &mut CountingUpstream,
    ) -> Option<TcpStream> {
        let mut tcp = TcpStream::connect(gate.address).await.unwrap();
        let declared = self.total_bytes() + if self.is_complete() { 0 } else { 1_000 };
        let framing = match self.framing {
            UploadFraming::ContentLength => format!("Content-Length: {declared}"),
            _ => "Transfer-Encoding: chunked".to_owned(),
        };
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        for (at, length) in self.pieces.iter().enumerate() {
            let mut piece = vec![b'a'; *length];
            if self.framing == UploadFraming::Chunked {
                let size = format!("{length:x}\r\n").into_bytes();
                piece = [size, piece, b"\r\n".to_vec()].concat();
            }
            // The gateway may have closed the connection.
            let _ = tcp.write_all(&piece).await;
            if at == 0 {
                upstream.wait_for_request().await;
            }
        }
        let last: &[u8] = match self.framing {
            UploadFraming::Chunked if self.is_complete() => b"0\r\n\r\n",
            UploadFraming::Chunked if self.ending == UploadEnding::Malformed => b"zz\r\n",
            _ => b"",
        };
        let _ = tcp.write_all(last).await;
        (self.ending != UploadEnding::ClientDisconnects).then_some(tcp)
    }

    /// Sends the upload over HTTP/2.
    async fn send_http2(
        &self,
        gate: &TestGateway,
        upstream: &mut CountingUpstream,
    ) -> Option<mpsc::Sender<BodyPiece>> {
        let tcp = TcpStream::connect(gate.address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
        let (mut client, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let (pieces, receiver) = mpsc::channel::<BodyPiece>(1);
        let body = StreamBody::new(stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|piece| (piece, receiver))
        }));
        let request = Request::post("http://a/").body(Box::pin(body)).unwrap();
        tokio::spawn(client.send_request(request));
        for (at, length) in self.pieces.iter().enumerate() {
            let _ = pieces.send(Ok(Frame::data(vec![b'a'; *length].into()))).await;
            if at == 0 {
                upstream.wait_for_request().await;
            }
        }
        match self.ending {
            UploadEnding::ClientDisconnects => {
                pieces.send(Err("client disconnects")).await.unwrap();
            }
            _ if self.is_complete() => {}
            _ => return Some(pieces),
        }
        None
    }
}

type BodyPiece = Result<Frame<Bytes>, &'static str>;

/// The units charged so far.
async fn charged_units(gate: &TestGateway) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    LIMIT - decision.tightest().unwrap().1.numbers.unwrap().remaining
}

fn body_units(bytes: u64) -> u64 {
    bytes.div_ceil(1_024).max(1)
}

/// Waits until the charge is in this range. A declared length is charged in advance and partly
/// refunded.
async fn wait_for_charge(
    gate: &TestGateway,
    range: std::ops::RangeInclusive<u64>,
) -> Result<(), u64> {
    let settled = async {
        while !range.contains(&charged_units(gate).await) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), settled).await;
    if waited.is_ok() { Ok(()) } else { Err(charged_units(gate).await) }
}

#[tokio::test]
async fn interrupted_upload_is_charged_for_received_bytes() {
    for upload in sample_values(60, &upload_cases()) {
        let mut upstream =
            CountingUpstream::start(upload.upstream_behavior(), upload.upstream_speaks_http2).await;
        let settings = upload.settings(&upstream);
        let gate = TestGateway::start_with(RULES, settings, listen::Settings::default()).await;
        let (mut http1, mut http2) = (None, None);
        match upload.framing {
            UploadFraming::Http2 => http2 = upload.send_http2(&gate, &mut upstream).await,
            _ => http1 = upload.send_http1(&gate, &mut upstream).await,
        }
        let received = upstream.received_bytes().await;
        assert!(received <= upload.total_bytes(), "{received}: {upload:?}");
        let expected = match upload.ending {
            UploadEnding::Completes => {
                body_units(upload.total_bytes())..=body_units(upload.total_bytes())
            }
            _ => body_units(received)..=body_units(upload.total_bytes()),
        };
        let settled = wait_for_charge(&gate, expected.clone()).await;
        assert_eq!(settled, Ok(()), "{expected:?} for {received} bytes: {upload:?}");
        drop((http1, http2));
    }
}
