//! The complete response to a refused request: status 429, headers, and a body in the media type
//! that the client prefers. A gRPC client gets a gRPC status instead.
//!
//! The response discloses nothing that only the operator should know. Of the rules it contains the
//! IDs, which name the policies in the headers; of the request it contains nothing.

mod body;
pub(crate) mod grpc;
mod message;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_limiter::Decision;

use super::header_writer::HeaderWriter;
use super::summary::LimitSummary;
use super::{HeaderSettings, write_decision};
use body::RefusalBody;

/// Initial capacity of the header map: the headers of a refusal and those that hyper adds.
const USUAL_HEADERS: usize = 12;

const ACCEPT: HeaderValue = HeaderValue::from_static("accept");

/// Builds the response to a refused request, in the format that the `request` headers ask for.
///
/// `random` selects the jitter; see [`HeaderSettings::jitter_seed`].
#[must_use]
pub fn refusal_response(
    decision: &Decision,
    request: &HeaderMap,
    settings: &HeaderSettings,
    random: u64,
) -> Response<Full<Bytes>> {
    let summary = LimitSummary::from_decision(decision, settings, random);
    let message = message::render(summary.as_ref());
    let grpc = grpc::response_media_type(request);
    let mut response = match &grpc {
        // A "Trailers-Only" response: the status is in the headers and the body is empty.
        Some(media_type) => response_with_type(StatusCode::OK, media_type.clone(), Bytes::new()),
        None => {
            let RefusalBody { media_type, bytes } =
                RefusalBody::render(decision, summary.as_ref(), &message, request);
            let mut response = response_with_type(StatusCode::TOO_MANY_REQUESTS, media_type, bytes);
            response.headers_mut().insert(VARY, ACCEPT);
            response
        }
    };
    let mut writer = HeaderWriter::new(response.headers_mut(), settings.expose);
    write_decision(decision, summary.as_ref(), settings, &mut writer);
    if grpc.is_some() {
        grpc::write_status(&message, summary.and_then(|summary| summary.wait), &mut writer);
    }
    writer.finish();
    response
}

fn response_with_type(
    status: StatusCode,
    media_type: HeaderValue,
    body: Bytes,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    // Reserve once; the map would otherwise grow twice.
    response.headers_mut().reserve(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
