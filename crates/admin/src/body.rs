//! Parses request bodies.

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tidegate_web::problem::HttpError;

/// Parses a JSON body. An error names the field that is wrong.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpError> {
    let value: Json = serde_json::from_slice(body).map_err(|error| {
        HttpError::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}"))
    })?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (field, why) = (error.path().to_string(), error.inner().to_string());
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
    })
}

/// The body as text.
pub(super) fn body_text(body: &[u8]) -> Result<&str, HttpError> {
    str::from_utf8(body)
        .map_err(|_| HttpError::new(StatusCode::BAD_REQUEST, "the body is not UTF-8 text"))
}
