//! A second opinion on where requests of HTTP/1.1 begin and end, taken from the bytes before hyper sees
//! them. hyper resolves some ambiguities silently (a length beside chunks, a length said twice); a
//! proxy must refuse them, because the next server may resolve them otherwise.
//!
//! It judges nothing that hyper refuses anyway, and looks at no byte of a body.

use memchr::memchr;
use smallvec::SmallVec;

/// As much of a line as is needed to tell which header it is and what a length says; whoever pads one
/// of these with more is up to no good.
const LINE_BYTES: usize = 64;

/// A line of `LINE_BYTES` may end with a carriage return.
const KEPT_BYTES: usize = LINE_BYTES + 1;

/// As much of its end as is needed to tell the version of HTTP.
const LINE_END_BYTES: usize = b"HTTP/1.0\r".len();

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    at: At,
    head: Head,
    /// A line whose end has not come yet.
    line: Line,
    /// Requests whose head has come to its end.
    heads: u64,
    ambiguous: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before a request: empty lines are skipped.
    #[default]
    Between,
    Headers,
    Body {
        left: u64,
    },
    ChunkSize,
    ChunkData {
        left: u64,
    },
    Trailers,
    /// What follows cannot be told apart.
    Lost,
}

/// What is kept of a line that comes in pieces: as much as is looked at.
#[derive(Debug, Default)]
struct Line {
    first: SmallVec<[u8; KEPT_BYTES]>,
    last: SmallVec<[u8; LINE_END_BYTES]>,
}

/// What the head at hand has said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    old: bool,
    length: Option<u64>,
    chunked: bool,
}

/// A head that can be read in two ways.
struct Ambiguous;

impl Framing {
    /// Takes the next bytes of the connection.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.at {
                At::Lost => return,
                At::Body { left } => self.skip(bytes, left, At::Between, |left| At::Body { left }),
                At::ChunkData { left } => {
                    self.skip(bytes, left, At::ChunkSize, |left| At::ChunkData { left })
                }
                At::Between | At::Headers | At::ChunkSize | At::Trailers => self.take_line(bytes),
            };
        }
    }

    /// Whether a request has begun whose head is not complete.
    pub(crate) fn is_inside_head(&self) -> bool {
        self.at == At::Headers || (self.at == At::Between && !self.line.is_empty())
    }

    /// From which request on nothing can be told any more, if there is one.
    pub(crate) fn ambiguous_from(&self) -> Option<u64> {
        self.ambiguous.then_some(self.heads)
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], left: u64, then: At, rest: fn(u64) -> At) -> &'b [u8] {
        let here = bytes.len() as u64;
        if here < left {
            self.at = rest(left - here);
            return &[];
        }
        self.at = then;
        // `left` is no more than the length of the slice.
        bytes.get(usize::try_from(left).unwrap_or(usize::MAX)..).unwrap_or_default()
    }

    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(end) = memchr(b'\n', bytes) else {
            self.line.keep(bytes);
            return &[];
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let judged = if self.line.is_empty() {
            self.judge(line, line)
        } else {
            self.line.keep(line);
            let kept = std::mem::take(&mut self.line);
            self.judge(&kept.first, &kept.last)
        };
        if judged.is_err() {
            (self.at, self.ambiguous) = (At::Lost, true);
        }
        rest
    }

    /// Judges a line by its beginning and its end, which overlap unless it is long. It sees no more
    /// of a line that came at once than of one that came in pieces.
    fn judge(&mut self, first: &[u8], last: &[u8]) -> Result<(), Ambiguous> {
        let first = &first[..first.len().min(KEPT_BYTES)];
        let bare = |line: &'_ [u8]| line.strip_suffix(b"\r").unwrap_or(line).len();
        let ends_bare = !last.ends_with(b"\r");
        let (line, last) = (&first[..bare(first)], &last[..bare(last)]);
        match self.at {
            At::Between if line.is_empty() => {}
            At::Between => {
                let old = last.ends_with(b"HTTP/1.0");
                (self.at, self.head) = (At::Headers, Head { old, ..Head::default() });
            }
            At::Headers if line.is_empty() => self.end_head()?,
            At::Headers => self.head.read(line)?,
            // To hyper a line feed alone ends a line of a head, but none between chunks and after them.
            At::ChunkSize | At::Trailers if ends_bare => return Err(Ambiguous),
            At::ChunkSize => {
                let size = chunk_size(line).ok_or(Ambiguous)?;
                // Two bytes more end the data's line.
                self.at = match size {
                    0 => At::Trailers,
                    size => At::ChunkData { left: size.checked_add(2).ok_or(Ambiguous)? },
                };
            }
            At::Trailers if line.is_empty() => self.at = At::Between,
            At::Trailers | At::Body { .. } | At::ChunkData { .. } | At::Lost => {}
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), Ambiguous> {
        let Head { old, length, chunked } = self.head;
        if chunked && (old || length.is_some()) {
            return Err(Ambiguous);
        }
        self.heads += 1;
        self.at = match length {
            _ if chunked => At::ChunkSize,
            Some(left) if left > 0 => At::Body { left },
            _ => At::Between,
        };
        Ok(())
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = KEPT_BYTES.saturating_sub(self.first.len());
        self.first.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let over = (self.last.len() + bytes.len()).saturating_sub(LINE_END_BYTES);
        self.last.drain(..over.min(self.last.len()));
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(LINE_END_BYTES)..]);
    }
}

impl Head {
    fn read(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        if let Some(b' ' | b'\t') = line.first() {
            // A folded line: hyper refuses it too.
            return Err(Ambiguous);
        }
        // Most names are told apart by their first letter.
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

    fn read_length(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        let length = digits(value).ok_or(Ambiguous)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(Ambiguous),
        }
    }

    fn read_coding(&mut self, value: &[u8]) -> Result<(), Ambiguous> {
        let again = std::mem::replace(&mut self.chunked, true);
        match !again && value.eq_ignore_ascii_case(b"chunked") {
            true => Ok(()),
            false => Err(Ambiguous),
        }
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let whole = (line.len() < LINE_BYTES).then_some(line.len());
    let end = memchr(b';', line).or(whole)?;
    let text = line[..end].trim_ascii_end();
    let plain = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(str::from_utf8(text).ok().filter(|_| plain)?, 16).ok()
}

#[cfg(test)]
mod beside_hyper;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, however the bytes are cut.
    fn follow(bytes: &[u8]) -> (u64, Option<u64>, bool) {
        let told = |size: usize| {
            let mut framing = Framing::default();
            bytes.chunks(size).for_each(|piece| framing.feed(piece));
            (framing.heads, framing.ambiguous_from(), framing.is_inside_head())
        };
        let whole = told(bytes.len().max(1));
        for size in [1, 2, 3, 7, 64, 65] {
            assert_eq!(told(size), whole, "in pieces of {size}: {}", bytes.escape_ascii());
        }
        whole
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn requests_are_told_apart() {
        let length =
            "POST / HTTP/1.1\r\nContent-Length: 29\r\n\r\nGET\n\nTransfer-Encoding: bad\n\n";
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding:  Chunked \r\n\r\n3;x=y\r\n\r\n\n\r\n1 \r\nA\r\n0\r\nx: y\r\n\r\n";
        let old = "GET / HTTP/1.0\nContent-Length: 1\n\n!";
        let long = format!("GET /{} HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(99), "b".repeat(99));
        for text in [PLAIN, length, chunks, old, &long] {
            assert_eq!(follow(text.as_bytes()), (1, None, false), "{text}");
            let thrice = format!("\r\n{text}\r\n\n{PLAIN}{text}");
            assert_eq!(follow(thrice.as_bytes()), (3, None, false), "{text}");
        }
        assert_eq!(follow(b"\r\n"), (0, None, false));
        assert_eq!(follow(b"\r\nG"), (0, None, true));
        assert_eq!(follow(b"GET / HTTP/1.1\r\n"), (0, None, true));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_ambiguous() {
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
            assert_eq!(follow(text.as_bytes()), (1, Some(1), false), "{headers}");
        }
        for target in ["/", &*format!("/{}", "a".repeat(99))] {
            let text = |version: &str| {
                let head = format!("POST {target} HTTP/{version}\r\nTransfer-Encoding: chunked");
                format!("{head}\r\n\r\n0\r\n\r\n")
            };
            assert_eq!(follow(text("1.0").as_bytes()), (0, Some(0), false), "{target}");
            assert_eq!(follow(text("1.1").as_bytes()), (1, None, false), "{target}");
        }
        for rest in ["0\r\n\n", "0\r\nX: y\n\r\n", "3\nabc\r\n0\r\n\r\n"] {
            let text =
                format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{rest}{PLAIN}");
            assert_eq!(follow(text.as_bytes()), (1, Some(1), false), "{rest}");
        }
        let zeros = format!("{}3", "0".repeat(99));
        let blanks = format!("3{}4", " ".repeat(99));
        let overflowing = ["fffffffffffffffff", "ffffffffffffffff"];
        for size in ["", "g", "-1", "0x1", "1 1", &zeros, &blanks].into_iter().chain(overflowing) {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\nx");
            assert_eq!(follow(text.as_bytes()).1, Some(1), "{size}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn any_bytes_are_followed_the_same_however_they_are_cut(
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
            follow(&bytes.concat());
        }
    }
}
