//! A connection's bytes, counted as they pass, and closed so that the last answer arrives.
//!
//! hyper reads a request with both `Transfer-Encoding` and `Content-Length` as chunked and hides the
//! length; here it can still be seen. What requests mean is not looked at.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A closed connection is read for so long, or for so many bytes: to close with bytes unread would
/// reset it, and the caller could lose the answer (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// What has passed on a connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    bytes_read: AtomicU64,
    /// `bytes_read` when the latest answer was ready.
    bytes_answered: AtomicU64,
    answers: AtomicU64,
    answering: AtomicBool,
    /// Lines that begin with `Content-Length`, as they came.
    lengths_read: AtomicU64,
    /// Those of them that hyper told of.
    lengths_told: AtomicU64,
}

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A request has begun to come, or is yet to come for the first time.
    Head,
    /// A request is being answered.
    Answering,
    /// There is nothing to do since this many answers.
    Idle { answers: u64 },
}

impl Traffic {
    pub(crate) fn phase(&self) -> Phase {
        let answers = self.answers.load(Relaxed);
        if self.answering.load(Relaxed) {
            Phase::Answering
        } else if answers == 0 || self.bytes_read.load(Relaxed) > self.bytes_answered.load(Relaxed)
        {
            Phase::Head
        } else {
            Phase::Idle { answers }
        }
    }

    /// Notes that a request is here. False if two of its headers disagree on where it ends.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> bool {
        self.answering.store(true, Relaxed);
        if headers.contains_key(CONTENT_LENGTH) {
            self.lengths_told.fetch_add(1, Relaxed);
        }
        !headers.contains_key(TRANSFER_ENCODING)
            || self.lengths_read.load(Relaxed) <= self.lengths_told.load(Relaxed)
    }

    /// Notes that the answer is ready.
    pub(crate) fn end(&self) {
        self.bytes_answered.store(self.bytes_read.load(Relaxed), Relaxed);
        self.answers.fetch_add(1, Relaxed);
        self.answering.store(false, Relaxed);
    }
}

/// A connection whose traffic is noted.
pub(crate) struct Stream {
    tcp: TcpStream,
    traffic: Arc<Traffic>,
    lengths: LengthLines,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, traffic: Arc<Traffic>) -> Self {
        Self { tcp, traffic, lengths: LengthLines::default(), linger: None }
    }

    /// Reads and forgets until the other side closes too, or patience ends.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let start = || (Box::pin(tokio::time::sleep(LINGER)), LINGER_BYTES);
        let (timer, left) = self.linger.get_or_insert_with(start);
        let mut space = [0; 4096];
        while *left > 0 && timer.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        self.traffic.bytes_read.fetch_add(read.len() as u64, Relaxed);
        let lengths = self.lengths.count(read);
        self.traffic.lengths_read.fetch_add(lengths, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
        }
        self.poll_linger(cx).map(Ok)
    }
}

/// Counts lines that begin with `Content-Length`, also when they come in pieces.
#[derive(Debug, Default)]
struct LengthLines {
    /// How much of [`Self::LINE`] has been seen.
    matched: usize,
}

impl LengthLines {
    const LINE: &[u8] = b"\ncontent-length";

    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut lines = 0;
        loop {
            if self.matched == 0 {
                let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return lines };
                (self.matched, bytes) = (1, &bytes[at + 1..]);
            }
            let Some((byte, rest)) = bytes.split_first() else { return lines };
            if byte.to_ascii_lowercase() == Self::LINE[self.matched] {
                (self.matched, bytes) = (self.matched + 1, rest);
                if self.matched == Self::LINE.len() {
                    (self.matched, lines) = (0, lines + 1);
                }
            } else {
                // The line's first byte is found nowhere else in it, so what follows starts afresh.
                self.matched = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_lines_are_counted_however_they_are_cut() {
        let text = b"POST / HTTP/1.1\r\nContent-Length: 3\r\nX: content-length\r\n\n\ncontent-lengthcontent-\ncOnTeNt-LeNgTh: 1\r\n";
        for size in 1..text.len() {
            let mut lines = LengthLines::default();
            assert_eq!(text.chunks(size).map(|piece| lines.count(piece)).sum::<u64>(), 3, "{size}");
        }
    }
}
