//! Differential test of [`Framing`] against hyper. For any input, both count the same number of
//! requests, or `Framing` reports ambiguity before hyper delivers the first request they disagree
//! on.

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;

use super::Framing;

/// How hyper parses a connection.
#[derive(Debug, Default)]
struct HyperObservation {
    /// Requests that hyper delivered.
    requests: AtomicU64,
    /// hyper found an error; nothing after it counts.
    faulty: AtomicBool,
    /// hyper answered a request after which it closes the connection.
    closing: AtomicBool,
}

fn run_hyper(bytes: &[u8]) -> HyperObservation {
    let seen = HyperObservation::default();
    let answer = |request: Request<Incoming>| {
        seen.requests.fetch_add(1, Relaxed);
        let asks_to_close = request.headers().contains_key(http::header::CONNECTION);
        seen.closing.fetch_or(asks_to_close || request.version() == Version::HTTP_10, Relaxed);
        let seen = &seen;
        async move {
            seen.faulty.fetch_or(request.into_body().collect().await.is_err(), Relaxed);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    };
    let wire = tokio::io::join(Cursor::new(bytes), tokio::io::sink());
    let connection = http1::Builder::new()
        // All bytes are available from the start, followed by end of file.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(wire), service_fn(answer));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ended = runtime.block_on(connection);
    seen.faulty.fetch_or(ended.is_err(), Relaxed);
    seen
}

/// Feeds the bytes in pieces of `size` and compares both parsers. Returns whether both parsed
/// everything to the end.
fn check_agreement(bytes: &[u8], size: usize) -> bool {
    let mut framing = Framing::default();
    bytes.chunks(size).for_each(|piece| framing.feed(piece));
    let HyperObservation { requests, faulty, closing } = run_hyper(bytes);
    let (requests, faulty, closing) =
        (requests.into_inner(), faulty.into_inner(), closing.into_inner());
    let text = bytes.escape_ascii();
    match framing.ambiguous_from() {
        // How hyper parses the rest does not matter: none of it is served.
        Some(from) => {
            assert_eq!(from, framing.heads);
            assert!(
                requests >= from || faulty || closing,
                "hyper delivered only {requests} of {from} requests: {text}"
            );
        }
        None => {
            assert!(
                requests <= framing.heads,
                "hyper delivered {requests} requests instead of {}: {text}",
                framing.heads
            );
            assert!(
                requests == framing.heads || faulty || closing,
                "hyper delivered only {requests} of {} requests: {text}",
                framing.heads
            );
        }
    }
    framing.ambiguous_from().is_none() && !faulty && !closing
}

/// A line of a head or between chunks, mostly with a correct line end.
fn text_line(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let end =
        prop_oneof![12 => Just("\r\n"), 2 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\r\n")];
    (text, end).prop_map(|(text, end)| text + end)
}

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(texts).prop_map(str::to_owned)
}

/// Text too long for `Framing` to keep whole.
fn padding() -> impl Strategy<Value = String> {
    let filler = prop::sample::select(&["0", " ", "a", "\t", ";"][..]);
    (filler, 50_usize..80).prop_map(|(filler, times)| filler.repeat(times))
}

fn request_line() -> impl Strategy<Value = String> {
    let version = prop_oneof![
        14 => Just("HTTP/1.1"), 2 => Just("HTTP/1.0"), 1 => Just("HTTP/1.1 "), 1 => Just("HTTP/2.0"),
    ];
    let target =
        prop_oneof![6 => Just("/".to_owned()), 1 => padding().prop_map(|text| format!("/{text}"))];
    let method = prop::sample::select(&["GET", "POST"][..]);
    (method, target, version)
        .prop_map(|(method, target, version)| format!("{method} {target} {version}"))
}

fn header() -> impl Strategy<Value = String> {
    let length = prop_oneof![
        4 => one_of(&["0", "3", "5"]),
        1 => one_of(&["", "+3", "-1", "3,3", "3, 3", "0x3", "03", "3 3", "99999999999999999999"]),
        1 => padding().prop_map(|text| text + "3"),
    ];
    let coding = prop_oneof![
        4 => Just("chunked".to_owned()),
        1 => one_of(&["", "Chunked", "chunked ", "identity", "gzip, chunked", "chunked, gzip", "xchunked", "chunked\x0b"]),
        1 => padding().prop_map(|text| text + "chunked"),
    ];
    prop_oneof![
        3 => length.prop_map(|length| format!("Content-Length: {length}")),
        3 => coding.prop_map(|coding| format!("Transfer-Encoding: {coding}")),
        2 => one_of(&["Host: a", "X: Content-Length: 3", "x:", "content-length:3", "transfer-encoding:chunked"]),
        1 => one_of(&["Content-Length : 3", " Content-Length: 3", "\tx: y", "no colon", ": x", "Connection: close"]),
        1 => (padding(), padding()).prop_map(|(name, value)| format!("X-{name}: {value}")),
    ]
}

fn body() -> impl Strategy<Value = String> {
    let size = prop_oneof![
        4 => one_of(&["0", "3", "3;x=y", "5 ", "A"]),
        1 => one_of(&["", "g", "-1", "0x3", "3 3", "+3", " 3", "3;", "fffffffffffffffff", "ffffffffffffffff"]),
        1 => (padding(), one_of(&["", "0", "3", ";x"])).prop_map(|(text, size)| text + &size),
        1 => (one_of(&["0", "3"]), padding()).prop_map(|(size, text)| size + &text),
    ];
    let data = || one_of(&["", "abc", "hello", "0123456789", "GET / HTTP/1.1\r\n\r\n"]);
    let chunk = (text_line(size), text_line(data())).prop_map(|(size, data)| size + &data);
    prop_oneof![
        3 => Just(String::new()),
        3 => data(),
        4 => prop::collection::vec(chunk, 0..3).prop_map(|chunks| chunks.concat() + "0\r\n\r\n"),
        1 => Just("0\r\nX: y\r\n\r\n".to_owned()),
    ]
}

/// Arbitrary requests, most of them invalid.
fn malformed_request() -> impl Strategy<Value = String> {
    let headers = prop::collection::vec(text_line(header()), 0..4);
    let end = prop_oneof![12 => Just("\r\n"), 1 => Just("\n"), 1 => Just("")];
    (text_line(request_line()), headers, end, body())
        .prop_map(|(first, headers, end, body)| first + &headers.concat() + end + &body)
}

/// Valid requests, some with bodies that look like requests or use unusual but valid syntax.
fn valid_request() -> impl Strategy<Value = String> {
    let data = || one_of(&["", "abc", "0\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\n\n\r\n"]);
    let end = || prop_oneof![3 => Just("\r\n"), 1 => Just("\n")];
    let between = prop_oneof![6 => Just(""), 1 => Just("\r\n"), 1 => Just("\n")];
    let extension = prop_oneof![4 => Just(String::new()), 1 => Just(";x=y".to_owned()), 1 => padding().prop_map(|text| format!(";x={text}"))];
    let chunk =
        (data(), 0_usize..40, extension).prop_map(|(data, zeros, extension)| match data.len() {
            0 => String::new(),
            length => format!("{}{length:X}{extension}\r\n{data}\r\n", "0".repeat(zeros)),
        });
    let framed = prop_oneof![
        Just((String::new(), String::new())),
        data().prop_map(|data| (format!("content-LENGTH: {}", data.len()), data)),
        prop::collection::vec(chunk, 0..3).prop_map(|chunks| {
            ("Transfer-encoding:  CHUNKED ".to_owned(), chunks.concat() + "0\r\nX: y\r\n\r\n")
        }),
    ];
    (between, padding(), end(), framed).prop_map(|(between, pad, end, (header, body))| {
        let header = if header.is_empty() { header } else { header + end };
        format!("{between}POST /{} HTTP/1.1{end}X-Pad: {pad}{end}{header}{end}{body}", pad.len())
    })
}

/// Removes a few bytes somewhere and inserts others.
fn byte_edit() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    let put = one_of(&[
        "", "\r", "\n", "\r\n", " ", "\t", ":", ";", ",", "0", "3", "a", "\0", "\x0b", "\r\n\r\n",
    ]);
    (any::<prop::sample::Index>(), 0_usize..3, put)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn framing_counts_requests_like_hyper(
        requests in prop::collection::vec(prop_oneof![4 => valid_request(), 1 => malformed_request()], 1..5),
        edits in prop::collection::vec(byte_edit(), 0..3),
        size in prop_oneof![1_usize..80, Just(usize::MAX)],
    ) {
        let mut bytes = requests.concat().into_bytes();
        for (at, taken, put) in edits {
            let at = at.index(bytes.len() + 1);
            let end = bytes.len().min(at + taken);
            bytes.splice(at..end, put.into_bytes());
        }
        check_agreement(&bytes, size);
    }
}

/// Guards the property above: both parsers accept unusual but valid requests to the end.
#[test]
fn valid_requests_are_fully_parsed() {
    let long = format!("GET /{} HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(99), "b".repeat(99));
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n",
        &long,
    ] {
        assert!(check_agreement(text.repeat(3).as_bytes(), 7), "{text}");
    }
}
