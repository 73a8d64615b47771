//! Parses server-sent events. Supports only what Tidegate's server sends: a name and one line of
//! data.

use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::MAX_RESPONSE_BYTES;

/// A stream of events from the server.
pub(crate) struct SseStream {
    body: Incoming,
    /// Bytes of an event that is not complete yet.
    buffer: SseBuffer,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerSentEvent {
    pub(crate) name: String,
    pub(crate) data: String,
}

#[derive(Default)]
struct SseBuffer {
    bytes: Vec<u8>,
    /// Number of leading bytes known to contain no end of an event.
    scanned: usize,
}

impl SseStream {
    /// Whether a response is an event stream.
    pub(super) fn is_event_stream(response: &Response<Incoming>) -> bool {
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        response.status().is_success() && kind == Some(b"text/event-stream")
    }

    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: SseBuffer::default() }
    }

    /// Waits for the next event. Cancel-safe: dropping the future loses no data.
    ///
    /// # Errors
    /// If the connection ends or fails, or an event is too long.
    pub(crate) async fn next(&mut self) -> Result<ServerSentEvent, String> {
        loop {
            if let Some(event) = self.buffer.take_event() {
                return Ok(event);
            }
            let frame = self.body.frame().await;
            let frame = frame.ok_or("the server closed the connection")?;
            let frame = frame.map_err(|error| super::root_cause(&error))?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            if self.buffer.bytes.len() + data.len() > MAX_RESPONSE_BYTES {
                return Err(format!("an event is longer than {MAX_RESPONSE_BYTES} bytes"));
            }
            self.buffer.bytes.extend_from_slice(data);
        }
    }
}

impl SseBuffer {
    /// Removes and returns the first complete event; skips blocks without a name or data.
    fn take_event(&mut self) -> Option<ServerSentEvent> {
        loop {
            let rest = &self.bytes[self.scanned..];
            let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") else {
                self.scanned = self.bytes.len().saturating_sub(1);
                return None;
            };
            let text: Vec<u8> = self.bytes.drain(..self.scanned + end + 2).collect();
            self.scanned = 0;
            if let Some(event) = ServerSentEvent::parse(&text) {
                return Some(event);
            }
        }
    }
}

impl ServerSentEvent {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let (name, data) = (field("event: ")?.to_owned(), field("data: ")?.to_owned());
        Some(Self { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_event_bytes_parse_whole() {
        let bytes =
            "event: tick\ndata: {\"a\":\"é\"}\n\n: a comment\n\nevent: b\ndata: 2\n\nevent: c";
        for piece in 1..bytes.len() {
            let (mut buffer, mut events) = (SseBuffer::default(), Vec::new());
            for part in bytes.as_bytes().chunks(piece) {
                buffer.bytes.extend_from_slice(part);
                events.extend(std::iter::from_fn(|| buffer.take_event()));
            }
            let event =
                |name: &str, data: &str| ServerSentEvent { name: name.into(), data: data.into() };
            assert_eq!(events, [event("tick", "{\"a\":\"é\"}"), event("b", "2")], "{piece}");
            assert_eq!(buffer.bytes, b"event: c");
        }
    }
}
