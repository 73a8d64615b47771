//! Answers as hyper sends them.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::problem::Problem;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static(Problem::MEDIA_TYPE);
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Room for the answer to a check under two rules.
const USUAL_BYTES: usize = 512;

pub(crate) fn json(status: StatusCode, view: &impl Serialize) -> Response<Full<Bytes>> {
    typed(status, JSON, written(view))
}

pub(crate) fn plain(status: StatusCode, json: &'static [u8]) -> Response<Full<Bytes>> {
    typed(status, JSON, Bytes::from_static(json))
}

pub(crate) fn problem(problem: &Problem) -> Response<Full<Bytes>> {
    typed(problem.status, PROBLEM, written(problem))
}

/// Makes an answer the last one of its connection.
pub(crate) fn close(response: &mut Response<Full<Bytes>>) {
    response.headers_mut().insert(CONNECTION, CLOSE);
}

fn written(view: &impl Serialize) -> Bytes {
    let mut body = Vec::with_capacity(USUAL_BYTES);
    match serde_json::to_writer(&mut body, view) {
        Ok(()) => body.into(),
        // Views have text for names and write into memory: there is nothing that could fail.
        Err(_) => Bytes::new(),
    }
}

fn typed(status: StatusCode, media_type: HeaderValue, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
