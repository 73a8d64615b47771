//! What a body costs that does not come to its end. Random uploads end in random ways; whatever
//! happens, what has reached the upstream is charged, and never more than the client has sent.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tidegate_edge::gateway::{Settings, Timeouts};
use tidegate_edge::listen;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::sink::{Manners, Sink};
use super::{Gate, to};
use crate::random::some;

const LIMIT: u64 = 1_000_000;
const RULES: &str = "rules: [{ id: r, key_by: global, limit: 1000000/h, cost: { body: 1KiB } }]";

/// Short, because it is always waited for; whatever happens meanwhile, the same is asserted.
const SHORT: Duration = Duration::from_millis(30);

/// How the client sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sends {
    Chunks,
    /// With a length that it declares.
    Length,
    Http2,
}

/// How an upload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Whole,
    ClientGoes,
    ClientStalls,
    /// The next chunk is none.
    Malformed,
    TooLarge,
    UpstreamBreaksOff,
    UpstreamIsSilent,
}

#[derive(Debug)]
struct Upload {
    pieces: Vec<usize>,
    sends: Sends,
    ends: Ends,
    upstream_speaks_http2: bool,
}

fn uploads() -> impl Strategy<Value = Upload> {
    let sends = prop::sample::select(&[Sends::Chunks, Sends::Length, Sends::Http2][..]);
    let ends = prop::sample::select(
        &[
            Ends::Whole,
            Ends::ClientGoes,
            Ends::ClientStalls,
            Ends::Malformed,
            Ends::TooLarge,
            Ends::UpstreamBreaksOff,
            Ends::UpstreamIsSilent,
        ][..],
    );
    let pieces = prop::collection::vec(1_usize..20_000, 1..6);
    (pieces, sends, ends, any::<bool>())
        .prop_map(|(pieces, sends, ends, upstream_speaks_http2)| Upload {
            pieces,
            sends,
            ends,
            upstream_speaks_http2,
        })
        .prop_filter("only chunks can be malformed, and a length is refused at once", |upload| {
            match upload.ends {
                Ends::Malformed => upload.sends == Sends::Chunks,
                Ends::TooLarge => upload.sends != Sends::Length,
                _ => true,
            }
        })
}

impl Upload {
    fn bytes(&self) -> u64 {
        self.pieces.iter().sum::<usize>() as u64
    }

    fn manners(&self) -> Manners {
        match self.ends {
            Ends::UpstreamBreaksOff => Manners::BreaksOff(self.bytes() / 2),
            Ends::UpstreamIsSilent => Manners::IsSilent,
            _ => Manners::Answers,
        }
    }

    fn settings(&self, sink: &Sink) -> Settings {
        let mut settings = to(&[]);
        let upstream = &mut settings.upstreams[0];
        upstream.servers = vec![(sink.url.parse().unwrap(), 1)];
        match self.ends {
            Ends::ClientStalls => settings.body_timeout = SHORT,
            Ends::TooLarge => settings.max_body_bytes = self.bytes() - 1,
            Ends::UpstreamIsSilent => {
                upstream.timeouts = Timeouts { response: SHORT, ..Timeouts::default() };
            }
            _ => {}
        }
        settings
    }

    /// Whether all that the client says it will send is sent.
    fn is_complete(&self) -> bool {
        matches!(self.ends, Ends::Whole | Ends::UpstreamIsSilent)
    }

    /// Sends it over HTTP/1.1. The connection is open as long as what is returned.
    async fn send_http1(&self, gate: &Gate, sink: &mut Sink) -> Option<TcpStream> {
        let mut tcp = TcpStream::connect(gate.address).await.unwrap();
        let declared = self.bytes() + if self.is_complete() { 0 } else { 1_000 };
        let framing = match self.sends {
            Sends::Length => format!("Content-Length: {declared}"),
            _ => "Transfer-Encoding: chunked".to_owned(),
        };
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        for (at, length) in self.pieces.iter().enumerate() {
            let mut piece = vec![b'a'; *length];
            if self.sends == Sends::Chunks {
                let size = format!("{length:x}\r\n").into_bytes();
                piece = [size, piece, b"\r\n".to_vec()].concat();
            }
            // The gateway may have closed it.
            let _ = tcp.write_all(&piece).await;
            if at == 0 {
                sink.begun().await;
            }
        }
        let last: &[u8] = match self.sends {
            Sends::Chunks if self.is_complete() => b"0\r\n\r\n",
            Sends::Chunks if self.ends == Ends::Malformed => b"zz\r\n",
            _ => b"",
        };
        let _ = tcp.write_all(last).await;
        (self.ends != Ends::ClientGoes).then_some(tcp)
    }

    /// The same over HTTP/2.
    async fn send_http2(&self, gate: &Gate, sink: &mut Sink) -> Option<mpsc::Sender<Piece>> {
        let tcp = TcpStream::connect(gate.address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await;
        let (mut client, connection) = handshake.unwrap();
        tokio::spawn(connection);
        let (pieces, coming) = mpsc::channel::<Piece>(1);
        let body = StreamBody::new(stream::unfold(coming, |mut coming| async {
            coming.recv().await.map(|piece| (piece, coming))
        }));
        let request = Request::post("http://a/").body(Box::pin(body)).unwrap();
        tokio::spawn(client.send_request(request));
        for (at, length) in self.pieces.iter().enumerate() {
            let _ = pieces.send(Ok(Frame::data(vec![b'a'; *length].into()))).await;
            if at == 0 {
                sink.begun().await;
            }
        }
        match self.ends {
            Ends::ClientGoes => pieces.send(Err("it goes")).await.unwrap(),
            _ if self.is_complete() => {}
            _ => return Some(pieces),
        }
        None
    }
}

type Piece = Result<Frame<Bytes>, &'static str>;

/// What was charged so far.
async fn charged(gate: &Gate) -> u64 {
    let decision = gate.limiter.peek(&[("ip", "127.0.0.1")].into_iter().collect(), None, 1).await;
    LIMIT - decision.tightest().unwrap().1.numbers.unwrap().remaining
}

fn parts(bytes: u64) -> u64 {
    bytes.div_ceil(1_024).max(1)
}

/// Waits until a charge in this range is made. A length that is declared is charged before, and partly
/// given back.
async fn until_charged(gate: &Gate, range: std::ops::RangeInclusive<u64>) -> Result<(), u64> {
    let settled = async {
        while !range.contains(&charged(gate).await) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), settled).await;
    if waited.is_ok() { Ok(()) } else { Err(charged(gate).await) }
}

#[tokio::test]
async fn what_reaches_the_upstream_is_charged_however_the_upload_ends() {
    for upload in some(60, &uploads()) {
        let mut sink = Sink::start(upload.manners(), upload.upstream_speaks_http2).await;
        let settings = upload.settings(&sink);
        let gate = Gate::open_with(RULES, settings, listen::Settings::default()).await;
        let (mut http1, mut http2) = (None, None);
        match upload.sends {
            Sends::Http2 => http2 = upload.send_http2(&gate, &mut sink).await,
            _ => http1 = upload.send_http1(&gate, &mut sink).await,
        }
        let received = sink.received().await;
        assert!(received <= upload.bytes(), "{received}: {upload:?}");
        let expected = match upload.ends {
            Ends::Whole => parts(upload.bytes())..=parts(upload.bytes()),
            _ => parts(received)..=parts(upload.bytes()),
        };
        let settled = until_charged(&gate, expected.clone()).await;
        assert_eq!(settled, Ok(()), "{expected:?} for {received} bytes: {upload:?}");
        drop((http1, http2));
    }
}
