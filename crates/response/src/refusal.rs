//! The whole answer to a request that is refused: 429 with headers, and a body of the kind that the
//! caller reads best; to a gRPC caller its own kind of answer.
//!
//! Nothing is told that only the operator should know: of the rules their ids, which are the names
//! of the policies in the headers, of the request nothing at all.

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

/// Room for all that a refusal says, and what the protocol adds.
const USUAL_HEADERS: usize = 12;

const ACCEPT: HeaderValue = HeaderValue::from_static("accept");

/// The answer to a request that a decision refuses, by what the headers of the request ask for.
/// `random` is for the jitter; see [`HeaderSettings::jitter_seed`].
#[must_use]
pub fn refusal_response(
    decision: &Decision,
    request: &HeaderMap,
    settings: &HeaderSettings,
    random: u64,
) -> Response<Full<Bytes>> {
    let told = LimitSummary::from_decision(decision, settings, random);
    let message = message::render(told.as_ref());
    let grpc = grpc::response_media_type(request);
    let mut response = match &grpc {
        // Everything is in the head, and the body ends before it begins ("Trailers-Only").
        Some(media_type) => response_with_type(StatusCode::OK, media_type.clone(), Bytes::new()),
        None => {
            let RefusalBody { media_type, bytes } =
                RefusalBody::render(decision, told.as_ref(), &message, request);
            let mut response = response_with_type(StatusCode::TOO_MANY_REQUESTS, media_type, bytes);
            response.headers_mut().insert(VARY, ACCEPT);
            response
        }
    };
    let mut lines = HeaderWriter::new(response.headers_mut(), settings.expose);
    write_decision(decision, told.as_ref(), settings, &mut lines);
    if grpc.is_some() {
        grpc::write_status(&message, told.and_then(|told| told.wait), &mut lines);
    }
    lines.finish();
    response
}

fn response_with_type(
    status: StatusCode,
    media_type: HeaderValue,
    body: Bytes,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    // At once as large as it gets, because it would grow twice on the way.
    response.headers_mut().reserve(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
