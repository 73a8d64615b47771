//! What a hostile client of HTTP/2 may try, frame by frame; an honest one is served meanwhile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{DEADLINE, Server, Upstream};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: a`.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection that has said hello.
fn connect(server: &Server, settings: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(&server.gateway).unwrap();
    tcp.set_read_timeout(Some(DEADLINE)).unwrap();
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    tcp.write_all(&frame(SETTINGS, 0, 0, settings)).unwrap();
    tcp
}

/// The next frame: its kind, stream and payload; none when the connection has ended.
fn next(tcp: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    tcp.read_exact(&mut payload).ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], stream, payload))
}

/// Reads to the end: the error of the last GOAWAY, if there was one.
fn ended(mut tcp: TcpStream) -> Option<u32> {
    let mut why = None;
    while let Some((kind, _, payload)) = next(&mut tcp) {
        if kind == GOAWAY {
            why = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
    why
}

fn start(upstream: &Upstream) -> Server {
    Server::in_front_of(&upstream.url(), &["--limit", "100000/s by ip"])
}

fn honest(server: &Server) {
    assert_eq!(server.visitor().get("/honest").status, 200, "{}", server.log());
}

#[test]
fn who_resets_as_fast_as_they_ask_is_told_to_go() {
    let upstream = Upstream::start();
    let server = start(&upstream);
    let mut tcp = connect(&server, &[]);
    let mut sent = 0;
    for stream in (1..40_000).step_by(2) {
        let ask = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if tcp.write_all(&[ask, reset].concat()).is_err() {
            break;
        }
        sent += 1;
    }
    honest(&server);
    let why = ended(tcp);
    assert!(sent < 20_000 || why.is_some(), "it ended: {why:?} after {sent}");
    assert!(why.is_none_or(|why| why == 11), "ENHANCE_YOUR_CALM: {why:?}");
    let passed = upstream.requests().len();
    assert!(passed < 2_000, "{passed} of {sent} reached the upstream");
    honest(&server);
}

#[test]
fn headers_that_are_continued_for_ever_are_cut_off() {
    let upstream = Upstream::start();
    let server = start(&upstream);
    // Literal headers without indexing, each of 1 KiB.
    let field = [&[0x00, 0x01, b'x', 0x7f, 0x80, 0x07][..], &[b'y'; 1023]].concat();
    for piece in [&field[..], &[][..]] {
        let mut tcp = connect(&server, &[]);
        tcp.write_all(&frame(HEADERS, END_STREAM, 1, GET)).unwrap();
        let flood = frame(CONTINUATION, 0, 1, piece).repeat(1_000);
        let written = (0..10_000).take_while(|_| tcp.write_all(&flood).is_ok()).count();
        assert!(written < 10_000, "it is not read for ever");
        honest(&server);
    }
    assert!(upstream.requests().iter().all(|request| request.head.starts_with("GET /honest")));
}

#[test]
fn frames_that_make_no_sense_end_their_connection_only() {
    let upstream = Upstream::start();
    let server = start(&upstream);
    let mut other = connect(&server, &[]);
    for nonsense in [
        frame(DATA, 0, 1, b"before its headers"),
        frame(HEADERS, END_STREAM | END_HEADERS, 2, GET),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff; 32]),
        frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        frame(SETTINGS, 0, 1, &[]),
        vec![0xff; 64],
    ] {
        let mut tcp = connect(&server, &[]);
        let _ = tcp.write_all(&nonsense);
        assert!(ended(tcp).is_none_or(|why| why > 0), "{nonsense:?}");
    }
    other.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, GET)).unwrap();
    while !matches!(next(&mut other).expect("an answer"), (HEADERS, 1, _)) {}
}

#[test]
fn a_stream_says_for_whom_it_is_once() {
    let upstream = Upstream::start();
    let server = start(&upstream);
    // A host that contradicts `:authority`: refused with 400, whose place in the table is 12.
    let host = [GET, &[0x00, 0x04], b"host", &[0x01, b'b']].concat();
    let mut tcp = connect(&server, &[]);
    tcp.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &host)).unwrap();
    loop {
        if let (HEADERS, 1, payload) = next(&mut tcp).expect("an answer") {
            assert_eq!(payload[0], 0x80 | 12, "{payload:?}");
            break;
        }
    }
    assert!(upstream.requests().is_empty());
}
