//! Finds where HTTP/1.1 requests begin and end, independently of hyper and before hyper sees the
//! bytes.
//!
//! hyper silently resolves some ambiguities, such as a length next to chunked coding or a repeated
//! length. A proxy must reject these, because the upstream may resolve them differently (request
//! smuggling).
//!
//! Heads that hyper rejects anyway are not judged here, and body bytes are never inspected.

use memchr::memchr;
use smallvec::SmallVec;

/// Bytes kept of a line: enough to identify a header and parse a length. A framing header padded
/// beyond this is treated as an attack.
const LINE_BYTES: usize = 64;

/// A line of `LINE_BYTES` plus a carriage return.
const BUFFERED_LINE_BYTES: usize = LINE_BYTES + 1;

/// Bytes kept of the end of a line: enough to identify the HTTP version.
const LINE_END_BYTES: usize = b"HTTP/1.0\r".len();

/// Tracks the requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    state: FramingState,
    head: HeadState,
    /// A line whose end has not arrived yet.
    partial_line: PartialLine,
    /// Number of complete request heads.
    heads: u64,
    ambiguous: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    /// Before a request: empty lines are skipped.
    #[default]
    BetweenRequests,
    Headers,
    Body {
        left: u64,
    },
    ChunkSize,
    ChunkData {
        left: u64,
    },
    Trailers,
    /// The position of the next request is unknown.
    OutOfSync,
}

/// Start and end of a line that arrives in several reads.
#[derive(Debug, Default)]
struct PartialLine {
    first: SmallVec<[u8; BUFFERED_LINE_BYTES]>,
    last: SmallVec<[u8; LINE_END_BYTES]>,
}

/// What the current head has declared so far.
#[derive(Clone, Copy, Debug, Default)]
struct HeadState {
    is_http10: bool,
    length: Option<u64>,
    chunked: bool,
}

/// A head that can be interpreted in two ways.
struct AmbiguousFramingError;

impl Framing {
    /// Processes the next bytes of the connection.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.state {
                FramingState::OutOfSync => return,
                FramingState::Body { left } => {
                    self.skip_body(bytes, left, FramingState::BetweenRequests, |left| {
                        FramingState::Body { left }
                    })
                }
                FramingState::ChunkData { left } => {
                    self.skip_body(bytes, left, FramingState::ChunkSize, |left| {
                        FramingState::ChunkData { left }
                    })
                }
                FramingState::BetweenRequests
                | FramingState::Headers
                | FramingState::ChunkSize
                | FramingState::Trailers => self.take_line(bytes),
            };
        }
    }

    /// Whether a request has begun whose head is incomplete.
    pub(crate) fn is_inside_head(&self) -> bool {
        self.state == FramingState::Headers
            || (self.state == FramingState::BetweenRequests && !self.partial_line.is_empty())
    }

    /// Index of the first request whose framing is ambiguous, if any.
    pub(crate) fn ambiguous_from(&self) -> Option<u64> {
        self.ambiguous.then_some(self.heads)
    }

    fn skip_body<'b>(
        &mut self,
        bytes: &'b [u8],
        left: u64,
        then: FramingState,
        rest: fn(u64) -> FramingState,
    ) -> &'b [u8] {
        let here = bytes.len() as u64;
        if here < left {
            self.state = rest(left - here);
            return &[];
        }
        self.state = then;
        // `left` is at most the length of the slice.
        bytes.get(usize::try_from(left).unwrap_or(usize::MAX)..).unwrap_or_default()
    }

    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = memchr(b'\n', bytes) else {
            self.partial_line.append(bytes);
            return &[];
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let result = if self.partial_line.is_empty() {
            self.process_line(line, line)
        } else {
            self.partial_line.append(line);
            let line_parts = std::mem::take(&mut self.partial_line);
            self.process_line(&line_parts.first, &line_parts.last)
        };
        if result.is_err() {
            (self.state, self.ambiguous) = (FramingState::OutOfSync, true);
        }
        rest
    }

    /// Processes a line given its start and its end, which overlap unless the line is long. Only
    /// the same limited prefix is used whether the line arrived in one read or in several.
    fn process_line(&mut self, first: &[u8], last: &[u8]) -> Result<(), AmbiguousFramingError> {
        let first = &first[..first.len().min(BUFFERED_LINE_BYTES)];
        let bare = |line: &'_ [u8]| line.strip_suffix(b"\r").unwrap_or(line).len();
        let ends_bare = !last.ends_with(b"\r");
        let (line, last) = (&first[..bare(first)], &last[..bare(last)]);
        match self.state {
            FramingState::BetweenRequests if line.is_empty() => {}
            FramingState::BetweenRequests => {
                let is_http10 = last.ends_with(b"HTTP/1.0");
                (self.state, self.head) =
                    (FramingState::Headers, HeadState { is_http10, ..HeadState::default() });
            }
            FramingState::Headers if line.is_empty() => self.end_head()?,
            FramingState::Headers => self.head.read_header(line)?,
            // hyper accepts a bare line feed as a line end in heads, but not in chunk lines or
            // trailers.
            FramingState::ChunkSize | FramingState::Trailers if ends_bare => {
                return Err(AmbiguousFramingError);
            }
            FramingState::ChunkSize => {
                let size = parse_chunk_size(line).ok_or(AmbiguousFramingError)?;
                // The data is followed by CRLF.
                self.state = match size {
                    0 => FramingState::Trailers,
                    size => FramingState::ChunkData {
                        left: size.checked_add(2).ok_or(AmbiguousFramingError)?,
                    },
                };
            }
            FramingState::Trailers if line.is_empty() => self.state = FramingState::BetweenRequests,
            FramingState::Trailers
            | FramingState::Body { .. }
            | FramingState::ChunkData { .. }
            | FramingState::OutOfSync => {}
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), AmbiguousFramingError> {
        let HeadState { is_http10, length, chunked } = self.head;
        if chunked && (is_http10 || length.is_some()) {
            return Err(AmbiguousFramingError);
        }
        self.heads += 1;
        self.state = match length {
            _ if chunked => FramingState::ChunkSize,
            Some(left) if left > 0 => FramingState::Body { left },
            _ => FramingState::BetweenRequests,
        };
        Ok(())
    }
}

impl PartialLine {
    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = BUFFERED_LINE_BYTES.saturating_sub(self.first.len());
        self.first.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let over = (self.last.len() + bytes.len()).saturating_sub(LINE_END_BYTES);
        self.last.drain(..over.min(self.last.len()));
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(LINE_END_BYTES)..]);
    }
}

impl HeadState {
    fn read_header(&mut self, line: &[u8]) -> Result<(), AmbiguousFramingError> {
        if let Some(b' ' | b'\t') = line.first() {
            // A folded line (obs-fold): hyper rejects it too.
            return Err(AmbiguousFramingError);
        }
        // The first letter rules out most headers.
        let (Some(first), Some(colon)) = (line.first(), memchr(b':', line)) else { return Ok(()) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let value = if line.len() < LINE_BYTES { value } else { b"" };
        match first {
            b'c' | b'C' if name.eq_ignore_ascii_case(b"content-length") => self.read_length(value),
            b't' | b'T' if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.read_coding(value)
            }
            _ => Ok(()),
        }
    }

    fn read_length(&mut self, value: &[u8]) -> Result<(), AmbiguousFramingError> {
        let length = parse_digits(value).ok_or(AmbiguousFramingError)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(AmbiguousFramingError),
        }
    }

    fn read_coding(&mut self, value: &[u8]) -> Result<(), AmbiguousFramingError> {
        let again = std::mem::replace(&mut self.chunked, true);
        match !again && value.eq_ignore_ascii_case(b"chunked") {
            true => Ok(()),
            false => Err(AmbiguousFramingError),
        }
    }
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let whole = (line.len() < LINE_BYTES).then_some(line.len());
    let end = memchr(b';', line).or(whole)?;
    let text = line[..end].trim_ascii_end();
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(str::from_utf8(text).ok().filter(|_| plain)?, 16).ok()
}

#[cfg(test)]
mod hyper_differential;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses the bytes in pieces of several sizes and checks that the result is always the same.
    fn parse_in_pieces(bytes: &[u8]) -> (u64, Option<u64>, bool) {
        let parse = |size: usize| {
            let mut framing = Framing::default();
            bytes.chunks(size).for_each(|piece| framing.feed(piece));
            (framing.heads, framing.ambiguous_from(), framing.is_inside_head())
        };
        let whole = parse(bytes.len().max(1));
        for size in [1, 2, 3, 7, 64, 65] {
            assert_eq!(parse(size), whole, "in pieces of {size}: {}", bytes.escape_ascii());
        }
        whole
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn request_boundaries_are_found() {
        let length =
            "POST / HTTP/1.1\r\nContent-Length: 29\r\n\r\nGET\n\nTransfer-Encoding: bad\n\n";
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding:  Chunked \r\n\r\n3;x=y\r\n\r\n\n\r\n1 \r\nA\r\n0\r\nx: y\r\n\r\n";
        let old = "GET / HTTP/1.0\nContent-Length: 1\n\n!";
        let long = format!("GET /{} HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(99), "b".repeat(99));
        for text in [PLAIN, length, chunks, old, &long] {
            assert_eq!(parse_in_pieces(text.as_bytes()), (1, None, false), "{text}");
            let thrice = format!("\r\n{text}\r\n\n{PLAIN}{text}");
            assert_eq!(parse_in_pieces(thrice.as_bytes()), (3, None, false), "{text}");
        }
        assert_eq!(parse_in_pieces(b"\r\n"), (0, None, false));
        assert_eq!(parse_in_pieces(b"\r\nG"), (0, None, true));
        assert_eq!(parse_in_pieces(b"GET / HTTP/1.1\r\n"), (0, None, true));
    }

    #[test]
    fn conflicting_framing_is_ambiguous() {
        for headers in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\ncontent-length: 3",
            "Content-Length: 3\r\nContent-Length: 3",
            "Content-Length: 3, 3",
            "Content-Length: +3",
            "Content-Length: 0x3",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: \x0bchunked",
            "X: y\r\n folded: z",
            "X: y\r\n\tContent-Length: 3",
            "X: y\r\n no colon",
            &format!("X: y\r\n {}: z", "a".repeat(99)),
            &format!("Content-Length: {}3", "0".repeat(99)),
        ] {
            let text = format!("{PLAIN}POST / HTTP/1.1\r\n{headers}\r\n\r\nabc{PLAIN}");
            assert_eq!(parse_in_pieces(text.as_bytes()), (1, Some(1), false), "{headers}");
        }
        for target in ["/", &*format!("/{}", "a".repeat(99))] {
            let text = |version: &str| {
                let head = format!("POST {target} HTTP/{version}\r\nTransfer-Encoding: chunked");
                format!("{head}\r\n\r\n0\r\n\r\n")
            };
            assert_eq!(parse_in_pieces(text("1.0").as_bytes()), (0, Some(0), false), "{target}");
            assert_eq!(parse_in_pieces(text("1.1").as_bytes()), (1, None, false), "{target}");
        }
        for rest in ["0\r\n\n", "0\r\nX: y\n\r\n", "3\nabc\r\n0\r\n\r\n"] {
            let text =
                format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{rest}{PLAIN}");
            assert_eq!(parse_in_pieces(text.as_bytes()), (1, Some(1), false), "{rest}");
        }
        let zeros = format!("{}3", "0".repeat(99));
        let blanks = format!("3{}4", " ".repeat(99));
        let overflowing = ["fffffffffffffffff", "ffffffffffffffff"];
        for size in ["", "g", "-1", "0x1", "1 1", &zeros, &blanks].into_iter().chain(overflowing) {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nx");
            assert_eq!(parse_in_pieces(text.as_bytes()).1, Some(1), "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn result_is_independent_of_split(
            bytes in proptest::collection::vec(
                prop_oneof![
                    Just(b"\r\n".to_vec()), Just(b"\n".to_vec()), Just(b"POST / HTTP/1.1\r\n".to_vec()),
                    Just(b"Content-Length: 3\r\n".to_vec()), Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
                    Just(b"3\r\nabc\r\n".to_vec()), Just(b"0\r\n\r\n".to_vec()),
                    (prop_oneof![Just(b'0'), Just(b' '), Just(b'a'), Just(b'\r')], 50_usize..80)
                        .prop_map(|(byte, times)| vec![byte; times]),
                    prop_oneof![Just(b":".to_vec()), Just(b";".to_vec()), Just(b" ".to_vec())],
                    proptest::collection::vec(any::<u8>(), 0..70),
                ],
                0..12,
            ),
        ) {
            parse_in_pieces(&bytes.concat());
        }
    }
}
