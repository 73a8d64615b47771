//! Tests which bytes the parser accepts, rejects or finds incomplete, and that splitting them
//! changes nothing.

use proptest::prelude::*;
use tidegate_testkit::property::{cases, check_property};

use super::*;

fn request_args(bytes: &[u8]) -> Vec<Vec<u8>> {
    let request = next_request(bytes).unwrap().unwrap();
    assert_eq!(request.length, bytes.len());
    request.args.iter().map(|word| word.to_vec()).collect()
}

fn protocol_error(bytes: &[u8]) -> ProtocolError {
    next_request(bytes).unwrap_err()
}

#[test]
fn multibulk_request_yields_arguments() {
    assert_eq!(request_args(b"*1\r\n$4\r\nPING\r\n"), [b"PING"]);
    assert_eq!(request_args(b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n"), [b"ECHO".to_vec(), Vec::new()]);
    assert_eq!(request_args(b"*1\r\n$4\r\n\xff\0\r\n\r\n"), [b"\xff\0\r\n"], "keys are bytes");
    for empty in [b"*0\r\n".as_slice(), b"*-1\r\n", b"*-7\r\n", b"\r\n", b"\n", b"  \r\n"] {
        assert_eq!(request_args(empty), Vec::<Vec<u8>>::new(), "ignored");
    }
}

#[test]
fn only_first_request_is_consumed() {
    let request = next_request(b"*1\r\n$4\r\nPING\r\n*1\r\n$1\r\nx").unwrap().unwrap();
    assert_eq!(request.length, 14);
}

#[test]
fn inline_request_is_unquoted_like_redis() {
    assert_eq!(request_args(b"PING\r\n"), [b"PING"]);
    assert_eq!(request_args(b"  SET  a\tb \n"), [b"SET".as_slice(), b"a", b"b"]);
    assert_eq!(
        request_args(b"ECHO \"a \\\"b\\\" \\n\\x41\\q\" 'it\\'s'\n"),
        [b"ECHO".as_slice(), b"a \"b\" \nAq", b"it's"]
    );
    for unbalanced in
        [b"\"a\n".as_slice(), b"'a\n", b"\"a\"b\n", b"'a'b\n", b"\"a\\\"\n", b"a\"b\n", b"a\0b\n"]
    {
        assert_eq!(protocol_error(unbalanced), ProtocolError::UnbalancedQuotes, "{unbalanced:?}");
    }
}

#[test]
fn protocol_errors_use_redis_wording() {
    for (bytes, why) in [
        (b"*x\r\n".as_slice(), "Protocol error: invalid multibulk length"),
        (b"*\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\rx", "Protocol error: invalid multibulk length"),
        (b"*+1\r\n", "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
        (b"*2147483648\r\n", "Protocol error: invalid multibulk length, more than 133"),
        (b"*1\r\n:5\r\n", "Protocol error: expected '$', got ':'"),
        (b"*1\r\n\x07", "Protocol error: expected '$', got '\\x07'"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$65537\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$1\r\nabc", "Protocol error: expected CRLF after an argument"),
        (b"*1\r\n$1\r\na\rx", "Protocol error: expected CRLF after an argument"),
        (b"ECHO \"a\r\n", "Protocol error: unbalanced quotes in request"),
    ] {
        let error = protocol_error(bytes).to_string();
        assert!(error.starts_with(why), "{bytes:?}: {error}");
    }
}

#[test]
fn oversized_request_is_refused() {
    let mut request = format!("*{MAX_ARGS}\r\n").into_bytes();
    let each = MAX_REQUEST_BYTES / 5;
    for _ in 0..5 {
        request.extend(format!("${each}\r\n").bytes());
        request.extend(vec![b'x'; each]);
        request.extend(b"\r\n");
    }
    assert_eq!(
        protocol_error(&request),
        ProtocolError::TooLong,
        "rejected before the rest arrives"
    );
    let line = vec![b'x'; MAX_INLINE_BYTES];
    assert_eq!(next_request(&line[1..]), Ok(None));
    assert_eq!(protocol_error(&line), ProtocolError::LineTooLong);
    assert_eq!(next_request(b"*0000000000000000000000"), Ok(None));
    assert_eq!(
        protocol_error(b"*000000000000000000000000"),
        ProtocolError::ArrayLength,
        "a length line without an end"
    );
    let many = "x ".repeat(MAX_ARGS + 1) + "\n";
    assert_eq!(protocol_error(many.as_bytes()), ProtocolError::TooManyArgs);
}

#[test]
fn http_request_is_refused_at_first_line() {
    for line in [
        "GET / HTTP/1.1\r\n",
        "POST /v1/reset HTTP/1.1\r\n",
        "post x\n",
        "Host: localhost\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
    ] {
        let mut bytes = line.as_bytes().to_vec();
        bytes.extend(b"\r\n*1\r\n$8\r\nFLUSHALL\r\n");
        assert_eq!(protocol_error(&bytes), ProtocolError::Http, "{line}");
    }
    assert_eq!(request_args(b"*1\r\n$3\r\nGET\r\n"), [b"GET"], "browsers cannot send this");
}

/// Streams of valid requests, invalid requests and random bytes.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        "[a-zA-Z.]{0,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let request = prop::collection::vec(word, 0..6).prop_map(|words| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        bytes
    });
    let piece = prop_oneof![
        6 => request,
        2 => "[a-z \"'\\\\]{0,20}\r?\n".prop_map(String::into_bytes),
        2 => "[*$0-9\r\n-]{0,8}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Decodes a stream that arrives in pieces; returns its requests and the error that ended it, if
/// any.
fn decode_pieces(pieces: &[&[u8]]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut held, mut requests) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let length = match next_request(&held) {
                Ok(Some(request)) => {
                    requests.push(request.args.iter().map(|word| word.to_vec()).collect());
                    request.length
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            };
            held.drain(..length);
        }
    }
    (requests, None)
}

#[test]
fn split_bytes_decode_to_same_requests() {
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    check_property("resp_split", cases() / 5, &(streams(), cuts), |(stream, cuts)| {
        let whole = decode_pieces(&[&stream]);
        let one_by_one: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&decode_pieces(&one_by_one), &whole);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        prop_assert_eq!(&decode_pieces(&pieces), &whole);
        Ok(())
    });
}

/// A fuzz test for stable Rust: mutates typical client input by changing, inserting, removing and
/// repeating bytes.
#[test]
fn mutated_bytes_decode_within_limits() {
    let edit = (any::<prop::sample::Index>(), 0_u8..4, any::<u8>());
    let streams = (any::<prop::sample::Index>(), prop::collection::vec(edit, 0..12));
    check_property("resp_fuzz", cases(), &streams, |(seed, edits)| {
        let mut stream = CORPUS[seed.index(CORPUS.len())].to_vec();
        edits.into_iter().for_each(|(at, edit, byte)| mutate(&mut stream, at, edit, byte));
        let mut at = 0;
        while let Ok(Some(request)) = next_request(&stream[at..]) {
            prop_assert!(request.length > 0, "the parser makes progress");
            prop_assert!(request.args.len() <= MAX_ARGS);
            prop_assert!(request.length <= MAX_REQUEST_BYTES + 2);
            at += request.length;
        }
        prop_assert!(at <= stream.len());
        Ok(())
    });
}

fn mutate(stream: &mut Vec<u8>, at: prop::sample::Index, edit: u8, byte: u8) {
    let at = at.index(stream.len() + 1);
    match edit {
        0 if at < stream.len() => stream[at] = byte,
        1 if at < stream.len() => _ = stream.remove(at),
        2 => stream.insert(at, byte),
        _ => stream.extend_from_within(at..),
    }
}

const CORPUS: [&[u8]; 8] = [
    b"*6\r\n$11\r\nCL.THROTTLE\r\n$4\r\nuser\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n",
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$8\r\nredis-py\r\n",
    b"PING\r\nPING hello\r\n",
    b"ECHO \"a \\x41 b\" 'c'\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*0\r\n\r\n",
    b"*3\r\n$14\r\nTIDEGATE.CHECK\r\n$2\r\nip\r\n$11\r\n203.0.113.7\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"*-1\r\n*2\r\n$4\r\nAUTH\r\n$0\r\n\r\n",
];
