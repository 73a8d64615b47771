//! Builders for the responses that Tidegate produces itself.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::problem::HttpError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PROBLEM: HeaderValue = HeaderValue::from_static(HttpError::MEDIA_TYPE);
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Initial capacity; most bodies fit.
const JSON_CAPACITY: usize = 512;

/// Room for the headers of a decision and those that the protocol adds.
const HEADER_CAPACITY: usize = 12;

/// A response with JSON that is already serialized.
pub fn json_from_string<B: From<Bytes>>(status: StatusCode, json: String) -> Response<B> {
    with_content_type(status, JSON, json.into())
}

/// A JSON response.
pub fn json<B: From<Bytes>>(status: StatusCode, view: &impl Serialize) -> Response<B> {
    with_content_type(status, JSON, to_json_bytes(view))
}

/// A response with constant JSON.
pub fn static_json<B: From<Bytes>>(status: StatusCode, json: &'static [u8]) -> Response<B> {
    with_content_type(status, JSON, Bytes::from_static(json))
}

/// A response with constant plain text.
pub fn static_text<B: From<Bytes>>(status: StatusCode, text: &'static [u8]) -> Response<B> {
    with_content_type(status, TEXT, Bytes::from_static(text))
}

/// An error response (RFC 9457).
pub fn problem<B: From<Bytes>>(problem: &HttpError) -> Response<B> {
    with_content_type(problem.status, PROBLEM, to_json_bytes(problem))
}

/// Closes the connection after this response.
pub fn set_connection_close<B>(response: &mut Response<B>) {
    response.headers_mut().insert(CONNECTION, CLOSE);
}

fn to_json_bytes(view: &impl Serialize) -> Bytes {
    let mut body = Vec::with_capacity(JSON_CAPACITY);
    match serde_json::to_writer(&mut body, view) {
        Ok(()) => body.into(),
        // Cannot fail: views have string keys and are written to memory.
        Err(_) => Bytes::new(),
    }
}

fn with_content_type<B: From<Bytes>>(
    status: StatusCode,
    media_type: HeaderValue,
    body: Bytes,
) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    // Reserve for a decision's headers at once; the map would otherwise grow twice.
    response.headers_mut().reserve(HEADER_CAPACITY);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
