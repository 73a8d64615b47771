//! The refusal of a gRPC call, a "Trailers-Only" response as in gRPC over HTTP/2. Its status is
//! `RESOURCE_EXHAUSTED`, which clients do not retry by default; they do retry `UNAVAILABLE`.

use bytes::{BufMut, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::super::accept::is_token;
use super::super::header_writer::HeaderWriter;
use super::super::retry_after::RetryAfter;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client waits before it retries (gRPC proposal A6).
const PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
/// A negative pushback means "do not retry".
const DO_NOT_RETRY: HeaderValue = HeaderValue::from_static("-1");
/// grpc-java parses a signed 32-bit integer and treats a larger number as "do not retry".
const MAX_PUSHBACK_MS: u64 = i32::MAX.unsigned_abs() as u64;

const GRPC: &str = "application/grpc";

/// The media type of the response if the request is a gRPC call: that of the request, such as
/// `application/grpc+proto` or `application/grpc-web`.
pub(super) fn response_media_type(request: &HeaderMap) -> Option<HeaderValue> {
    let text = request.get(CONTENT_TYPE)?.to_str().ok()?;
    let media_type = text.split(';').next()?.trim();
    let (base, suffix) = media_type.split_at_checked(GRPC.len())?;
    let is_grpc = suffix.is_empty() || suffix.starts_with(['+', '-']) && is_token(suffix);
    if !base.eq_ignore_ascii_case(GRPC) || !is_grpc {
        return None;
    }
    HeaderValue::from_str(media_type).ok()
}

/// Writes the gRPC status, the message and the pushback.
pub(super) fn write_status(message: &str, wait: Option<RetryAfter>, writer: &mut HeaderWriter<'_>) {
    writer.put(STATUS, RESOURCE_EXHAUSTED);
    writer.put_text(MESSAGE, |text| text.extend_from_slice(&percent_encode(message)));
    let pushback = match wait {
        Some(wait) => HeaderValue::from(wait.millis().min(MAX_PUSHBACK_MS)),
        None => DO_NOT_RETRY,
    };
    writer.put(PUSHBACK_MS, pushback);
}

/// Percent-encodes text: `%` and every byte that is not printable ASCII become `%XX`.
pub fn percent_encode(text: &str) -> BytesMut {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = BytesMut::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.put_u8(byte),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                encoded.put_slice(&[b'%', HEX[high], HEX[low]]);
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use tidegate_core::decision::Retry;
    use tidegate_core::time::Micros;

    use super::*;

    fn negotiated_media_type(content_type: &str) -> Option<String> {
        let value = HeaderValue::from_str(content_type).unwrap();
        let media_type = response_media_type(&HeaderMap::from_iter([(CONTENT_TYPE, value)]));
        media_type.map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn grpc_media_type_is_echoed() {
        for media_type in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc-web+json",
            "Application/gRPC",
        ] {
            assert_eq!(negotiated_media_type(media_type).as_deref(), Some(media_type));
            assert_eq!(
                negotiated_media_type(&format!("{media_type}; a=b")).as_deref(),
                Some(media_type)
            );
        }
        for other in [
            "",
            "application/json",
            "application/grpcx",
            "application/grpc/x",
            "application/grpc+a b",
        ] {
            assert_eq!(negotiated_media_type(other), None, "{other}");
        }
        assert_eq!(response_media_type(&HeaderMap::new()), None);
    }

    #[test]
    fn grpc_message_is_percent_encoded() {
        assert_eq!(percent_encode("100% of é\r\n~"), "100%25 of %C3%A9%0D%0A~");
    }

    #[test]
    fn pushback_is_capped_to_i32() {
        for (retry, expected) in [
            (Retry::After(Micros::new(1)), "1"),
            (Retry::After(Micros::from_secs(90)), "90000"),
            (Retry::After(Micros::from_secs(1 << 32)), "2147483647"),
            (Retry::Never, "-1"),
        ] {
            let mut headers = HeaderMap::new();
            let mut writer = HeaderWriter::new(&mut headers, false);
            write_status("", RetryAfter::from_retry(retry, None, 0), &mut writer);
            writer.finish();
            assert_eq!(headers[PUSHBACK_MS], expected);
        }
    }
}
