//! HTTP/2 attacks, frame by frame; an honest client is still served.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::{RecordingUpstream, ServerProcess, TEST_TIMEOUT};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: a`.
const GET_HEADER_BLOCK: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

fn encode_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Opens a connection and sends the client preface.
fn connect(server: &ServerProcess, settings: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(&server.gateway).unwrap();
    tcp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    tcp.write_all(&encode_frame(SETTINGS, 0, 0, settings)).unwrap();
    tcp
}

/// Reads a frame and returns its type, stream and payload; `None` when the connection is closed.
fn read_frame(tcp: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    tcp.read_exact(&mut payload).ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((head[3], stream, payload))
}

/// Reads until the connection is closed, and returns the error code of the last GOAWAY frame.
fn read_goaway_error(mut tcp: TcpStream) -> Option<u32> {
    let mut error_code = None;
    while let Some((kind, _, payload)) = read_frame(&mut tcp) {
        if kind == GOAWAY {
            error_code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
    error_code
}

fn start_gateway(upstream: &RecordingUpstream) -> ServerProcess {
    ServerProcess::start_gateway(&upstream.url(), &["--limit", "100000/s by ip"])
}

fn assert_honest_client_served(server: &ServerProcess) {
    assert_eq!(server.gateway_client().get("/honest").status, 200, "{}", server.log());
}

#[test]
fn rapid_reset_client_is_disconnected() {
    let upstream = RecordingUpstream::start();
    let server = start_gateway(&upstream);
    let mut tcp = connect(&server, &[]);
    let mut sent = 0;
    for stream in (1..40_000).step_by(2) {
        let headers = encode_frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_HEADER_BLOCK);
        let reset = encode_frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if tcp.write_all(&[headers, reset].concat()).is_err() {
            break;
        }
        sent += 1;
    }
    assert_honest_client_served(&server);
    let error_code = read_goaway_error(tcp);
    assert!(sent < 20_000 || error_code.is_some(), "not closed after {sent} resets");
    assert!(error_code.is_none_or(|code| code == 11), "not ENHANCE_YOUR_CALM: {error_code:?}");
    let passed = upstream.received_requests().len();
    assert!(passed < 2_000, "{passed} of {sent} reached the upstream");
    assert_honest_client_served(&server);
}

#[test]
fn continuation_flood_is_cut_off() {
    let upstream = RecordingUpstream::start();
    let server = start_gateway(&upstream);
    // Literal headers without indexing, each of 1 KiB.
    let field = [&[0x00, 0x01, b'x', 0x7f, 0x80, 0x07][..], &[b'y'; 1023]].concat();
    for piece in [&field[..], &[][..]] {
        let mut tcp = connect(&server, &[]);
        tcp.write_all(&encode_frame(HEADERS, END_STREAM, 1, GET_HEADER_BLOCK)).unwrap();
        let flood = encode_frame(CONTINUATION, 0, 1, piece).repeat(1_000);
        let written = (0..10_000).take_while(|_| tcp.write_all(&flood).is_ok()).count();
        assert!(written < 10_000, "the server reads without limit");
        assert_honest_client_served(&server);
    }
    assert!(
        upstream.received_requests().iter().all(|request| request.head.starts_with("GET /honest"))
    );
}

#[test]
fn invalid_frames_close_only_their_connection() {
    let upstream = RecordingUpstream::start();
    let server = start_gateway(&upstream);
    let mut other = connect(&server, &[]);
    for nonsense in [
        encode_frame(DATA, 0, 1, b"before its headers"),
        encode_frame(HEADERS, END_STREAM | END_HEADERS, 2, GET_HEADER_BLOCK),
        encode_frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xff; 32]),
        encode_frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        encode_frame(SETTINGS, 0, 1, &[]),
        vec![0xff; 64],
    ] {
        let mut tcp = connect(&server, &[]);
        let _ = tcp.write_all(&nonsense);
        assert!(read_goaway_error(tcp).is_none_or(|code| code > 0), "{nonsense:?}");
    }
    other.write_all(&encode_frame(HEADERS, END_STREAM | END_HEADERS, 1, GET_HEADER_BLOCK)).unwrap();
    while !matches!(read_frame(&mut other).expect("a response"), (HEADERS, 1, _)) {}
}

#[test]
fn conflicting_host_and_authority_are_rejected() {
    let upstream = RecordingUpstream::start();
    let server = start_gateway(&upstream);
    // `host` contradicts `:authority`. HPACK's static table has `:status: 400` at index 12.
    let host = [GET_HEADER_BLOCK, &[0x00, 0x04], b"host", &[0x01, b'b']].concat();
    let mut tcp = connect(&server, &[]);
    tcp.write_all(&encode_frame(HEADERS, END_STREAM | END_HEADERS, 1, &host)).unwrap();
    loop {
        if let (HEADERS, 1, payload) = read_frame(&mut tcp).expect("a response") {
            assert_eq!(payload[0], 0x80 | 12, "{payload:?}");
            break;
        }
    }
    assert!(upstream.received_requests().is_empty());
}
