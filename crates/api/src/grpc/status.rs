//! Status of a gRPC call: code and message, in the trailers of a response or, without messages, in
//! its headers.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::response_body::GrpcBody;
use tidegate_response::percent_encode;

pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The gRPC status codes that this server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrpcCode {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
}

/// Status of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrpcStatus {
    pub(super) code: GrpcCode,
    message: Cow<'static, str>,
}

impl GrpcStatus {
    pub(super) const OK: Self = Self { code: GrpcCode::Ok, message: Cow::Borrowed("") };

    pub(super) fn new(code: GrpcCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The status as trailers.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(2);
        self.write_headers(&mut trailers);
        trailers
    }

    /// Response that consists only of the status ("Trailers-Only").
    pub(super) fn into_response(self) -> Response<GrpcBody> {
        let mut response = Response::new(GrpcBody::from(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, GRPC);
        if self.code == GrpcCode::Unimplemented {
            // Reports that only uncompressed messages are accepted.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        self.write_headers(headers);
        response
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert(STATUS, HeaderValue::from(self.code as u16));
        if !self.message.is_empty() {
            let text = percent_encode(&self.message).freeze();
            // Percent-encoded text is printable ASCII, so this never fails.
            headers.extend(HeaderValue::from_maybe_shared(text).ok().map(|text| (MESSAGE, text)));
        }
    }
}
