//! Length-prefixed gRPC messages: one byte for the compression flag, four for the length.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::body::Body;

use super::status::{GrpcCode, GrpcStatus};
use crate::http::body::{self, BodyMemoryBudget, BodyReadError, CollectedBody};

/// Size of the prefix of a message.
pub(super) const PREFIX_BYTES: usize = 5;

/// Reads the single message of a call. The message holds its share of the memory budget until it is
/// dropped.
pub(super) async fn read_message<B>(
    body: B,
    max_bytes: usize,
    timeout: Duration,
    budget: &BodyMemoryBudget,
) -> Result<CollectedBody, GrpcStatus>
where
    B: Body<Data = Bytes> + Unpin,
{
    let read =
        body::read_budgeted(body, max_bytes + PREFIX_BYTES, timeout, (budget, declared_length))
            .await;
    let mut read = read.map_err(|error| match error {
        BodyReadError::TooLarge { .. } => too_large(max_bytes),
        BodyReadError::TimedOut => {
            GrpcStatus::new(GrpcCode::DeadlineExceeded, "the message did not arrive in time")
        }
        BodyReadError::Aborted => {
            GrpcStatus::new(GrpcCode::Cancelled, "the client aborted the call")
        }
    })?;
    let not_exactly_one = || GrpcStatus::new(GrpcCode::Unimplemented, "send exactly one message");
    let message = take_message(&mut read.bytes, max_bytes)?.ok_or_else(not_exactly_one)?;
    if !read.bytes.is_empty() {
        return Err(not_exactly_one());
    }
    read.bytes = message;
    Ok(read)
}

/// Returns the total length of a call with one message, as declared in its prefix.
fn declared_length(framed: &[u8]) -> Option<usize> {
    let [_, a, b, c, d] = framed.first_chunk().copied()?;
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.checked_add(PREFIX_BYTES)
}

/// Takes the first message from `framed`; `None` if it is still incomplete.
pub(super) fn take_message(
    framed: &mut Bytes,
    max_bytes: usize,
) -> Result<Option<Bytes>, GrpcStatus> {
    let Some([compressed, a, b, c, d]) = framed.first_chunk().copied() else { return Ok(None) };
    // The server offers no encodings, so clients must not compress.
    if compressed != 0 {
        let message = "compressed messages are not supported; send them uncompressed (identity)";
        return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > max_bytes {
        return Err(too_large(max_bytes));
    }
    if framed.len() - PREFIX_BYTES < length {
        return Ok(None);
    }
    framed.advance(PREFIX_BYTES);
    Ok(Some(framed.split_to(length)))
}

/// Fills in the length of a message that was written after [`PREFIX_BYTES`] reserved bytes.
pub(super) fn finish_message(mut framed: Vec<u8>) -> Bytes {
    let length = u32::try_from(framed.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    framed[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    framed.into()
}

/// Buffers a stream and splits it into messages.
#[derive(Debug, Default)]
pub(super) struct GrpcMessageDecoder(BytesMut);

impl GrpcMessageDecoder {
    pub(super) fn push_bytes(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// Returns the next message, or `None` if it is still incomplete.
    pub(super) fn next_message(&mut self, max_bytes: usize) -> Result<Option<Bytes>, GrpcStatus> {
        let mut framed = self.0.split().freeze();
        let message = take_message(&mut framed, max_bytes);
        self.0.extend_from_slice(&framed);
        message
    }
}

fn too_large(max_bytes: usize) -> GrpcStatus {
    let message = format!("the message is longer than {max_bytes} bytes");
    GrpcStatus::new(GrpcCode::ResourceExhausted, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_or_code(framed: &[u8]) -> Result<Option<Bytes>, GrpcCode> {
        take_message(&mut Bytes::copy_from_slice(framed), 8).map_err(|status| status.code)
    }

    #[test]
    fn message_length_prefix_is_honoured() {
        assert_eq!(take_or_code(&[0, 0, 0, 0, 2, 7, 8, 9]), Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(take_or_code(&[0, 0, 0, 0, 0]), Ok(Some(Bytes::new())));
        for short in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 7]] {
            assert_eq!(take_or_code(short), Ok(None), "{short:?}");
        }
        assert_eq!(
            take_or_code(&[0, 0, 0, 0, 9]),
            Err(GrpcCode::ResourceExhausted),
            "rejected by the declared length"
        );
        assert_eq!(take_or_code(&[0, 255, 255, 255, 255]), Err(GrpcCode::ResourceExhausted));
        assert_eq!(take_or_code(&[1, 0, 0, 0, 1, 7]), Err(GrpcCode::Unimplemented), "compressed");
        assert_eq!(take_or_code(&[7, 0, 0, 0, 1, 7]), Err(GrpcCode::Unimplemented), "unknown flag");
    }

    #[test]
    fn split_stream_decodes_to_same_messages() {
        let stream = [0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 8, 9];
        for at in 0..=stream.len() {
            let (mut decoder, mut messages) = (GrpcMessageDecoder::default(), Vec::new());
            for part in [&stream[..at], &stream[at..]] {
                decoder.push_bytes(part);
                while let Some(message) = decoder.next_message(8).unwrap() {
                    messages.push(message.to_vec());
                }
            }
            assert_eq!(messages, [vec![7], vec![], vec![8, 9]], "split at {at}");
        }
    }
}
