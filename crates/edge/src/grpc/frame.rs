//! Messages with a length before them: one byte that says whether it is compressed, four for the length.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::Body;

use super::status::{Code, Status};
use crate::http::body::{self, Room, Unread, Whole};

/// What comes before a message.
pub(super) const HEAD_BYTES: usize = 5;

/// The one message of a call, which keeps its place in the room until it is dropped.
pub(super) async fn read<B>(
    body: B,
    max_bytes: usize,
    patience: Duration,
    room: &Room,
) -> Result<Whole, Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = body::read_long(body, max_bytes + HEAD_BYTES, patience, (room, announced)).await;
    let mut read = read.map_err(|unread| match unread {
        Unread::TooLarge { .. } => too_large(max_bytes),
        Unread::TooSlow => Status::new(Code::DeadlineExceeded, "the message did not come in time"),
        Unread::BrokenOff => Status::new(Code::Cancelled, "the call broke off"),
    })?;
    let one = || Status::new(Code::Unimplemented, "this method takes exactly one message");
    let message = take(&mut read.bytes, max_bytes)?.ok_or_else(one)?;
    if !read.bytes.is_empty() {
        return Err(one());
    }
    read.bytes = message;
    Ok(read)
}

/// How long a call with one message is, as its head says.
fn announced(framed: &[u8]) -> Option<usize> {
    let [_, a, b, c, d] = framed.first_chunk().copied()?;
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.checked_add(HEAD_BYTES)
}

/// Takes the first message off what came; none if it has not come to its end.
pub(super) fn take(framed: &mut Bytes, max_bytes: usize) -> Result<Option<Bytes>, Status> {
    let Some([compressed, a, b, c, d]) = framed.first_chunk().copied() else { return Ok(None) };
    // No encoding is offered, so that none may be used.
    if compressed != 0 {
        let message = "compressed messages are not taken; send them as they are (identity)";
        return Err(Status::new(Code::Unimplemented, message));
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > max_bytes {
        return Err(too_large(max_bytes));
    }
    if framed.len() - HEAD_BYTES < length {
        return Ok(None);
    }
    framed.advance(HEAD_BYTES);
    Ok(Some(framed.split_to(length)))
}

/// A message that was written after [`HEAD_BYTES`], with its length filled in.
pub(super) fn finish(mut framed: Vec<u8>) -> Bytes {
    let length = u32::try_from(framed.len() - HEAD_BYTES).unwrap_or(u32::MAX);
    framed[1..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    framed.into()
}

/// What has come of a stream of messages.
#[derive(Debug, Default)]
pub(super) struct Inbox(BytesMut);

impl Inbox {
    pub(super) fn add(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// The next message, if it has come to its end.
    pub(super) fn next(&mut self, max_bytes: usize) -> Result<Option<Bytes>, Status> {
        let mut framed = self.0.split().freeze();
        let message = take(&mut framed, max_bytes);
        self.0.extend_from_slice(&framed);
        message
    }
}

fn too_large(max_bytes: usize) -> Status {
    let message = format!("the message has more than {max_bytes} bytes");
    Status::new(Code::ResourceExhausted, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(framed: &[u8]) -> Result<Option<Bytes>, Code> {
        take(&mut Bytes::copy_from_slice(framed), 8).map_err(|status| status.code)
    }

    #[test]
    fn a_message_is_as_long_as_it_says() {
        assert_eq!(code(&[0, 0, 0, 0, 2, 7, 8, 9]), Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(code(&[0, 0, 0, 0, 0]), Ok(Some(Bytes::new())));
        for short in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 7]] {
            assert_eq!(code(short), Ok(None), "{short:?}");
        }
        assert_eq!(code(&[0, 0, 0, 0, 9]), Err(Code::ResourceExhausted), "said, not yet sent");
        assert_eq!(code(&[0, 255, 255, 255, 255]), Err(Code::ResourceExhausted));
        assert_eq!(code(&[1, 0, 0, 0, 1, 7]), Err(Code::Unimplemented), "compressed");
        assert_eq!(code(&[7, 0, 0, 0, 1, 7]), Err(Code::Unimplemented), "no flag that there is");
    }

    #[test]
    fn a_stream_is_cut_into_its_messages_wherever_it_breaks() {
        let stream = [0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 8, 9];
        for at in 0..=stream.len() {
            let (mut inbox, mut messages) = (Inbox::default(), Vec::new());
            for part in [&stream[..at], &stream[at..]] {
                inbox.add(part);
                while let Some(message) = inbox.next(8).unwrap() {
                    messages.push(message.to_vec());
                }
            }
            assert_eq!(messages, [vec![7], vec![], vec![8, 9]], "broken at {at}");
        }
    }
}
