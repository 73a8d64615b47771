//! Answers that a door makes itself.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::problem::Problem;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const PROBLEM: HeaderValue = HeaderValue::from_static(Problem::MEDIA_TYPE);
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Room for most views.
const USUAL_BYTES: usize = 512;

/// Room for those of a decision, and what the protocol adds.
const USUAL_HEADERS: usize = 12;

/// An answer whose JSON is written already.
pub(crate) fn written<B: From<Bytes>>(status: StatusCode, json: String) -> Response<B> {
    typed(status, JSON, json.into())
}

/// An answer in JSON.
pub fn json<B: From<Bytes>>(status: StatusCode, view: &impl Serialize) -> Response<B> {
    typed(status, JSON, bytes(view))
}

pub(crate) fn plain<B: From<Bytes>>(status: StatusCode, json: &'static [u8]) -> Response<B> {
    typed(status, JSON, Bytes::from_static(json))
}

pub(crate) fn text<B: From<Bytes>>(status: StatusCode, text: &'static [u8]) -> Response<B> {
    typed(status, TEXT, Bytes::from_static(text))
}

/// An answer that tells what went wrong.
pub fn problem<B: From<Bytes>>(problem: &Problem) -> Response<B> {
    typed(problem.status, PROBLEM, bytes(problem))
}

/// Makes an answer the last one of its connection.
pub fn close<B>(response: &mut Response<B>) {
    response.headers_mut().insert(CONNECTION, CLOSE);
}

fn bytes(view: &impl Serialize) -> Bytes {
    let mut body = Vec::with_capacity(USUAL_BYTES);
    match serde_json::to_writer(&mut body, view) {
        Ok(()) => body.into(),
        // Views have text for names and write into memory: there is nothing that could fail.
        Err(_) => Bytes::new(),
    }
}

fn typed<B: From<Bytes>>(status: StatusCode, media_type: HeaderValue, body: Bytes) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    // At once as large as it gets for a decision, because it would grow twice on the way.
    response.headers_mut().reserve(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
