//! How a call ended: a code and a text, in the trailers of an answer or, where there is no answer, in its head.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::reply::Reply;
use crate::respond::percent_encoded;

pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The codes of gRPC that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    message: Cow<'static, str>,
}

impl Status {
    pub(super) const OK: Self = Self { code: Code::Ok, message: Cow::Borrowed("") };

    pub(super) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The status as it comes after an answer.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(2);
        self.write(&mut trailers);
        trailers
    }

    /// An answer that is nothing but the status ("Trailers-Only").
    pub(super) fn into_response(self) -> Response<Reply> {
        let mut response = Response::new(Reply::from(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, GRPC);
        if self.code == Code::Unimplemented {
            // Tells a caller that compresses what it may send instead.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        self.write(headers);
        response
    }

    fn write(&self, headers: &mut HeaderMap) {
        headers.insert(STATUS, HeaderValue::from(self.code as u16));
        if !self.message.is_empty() {
            let text = percent_encoded(&self.message).freeze();
            // Printable ASCII is the value of a header.
            headers.extend(HeaderValue::from_maybe_shared(text).ok().map(|text| (MESSAGE, text)));
        }
    }
}
