//! Bodies of requests.

use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tidegate_edge::problem::Problem;

/// Reads a body as JSON of a form; what is wrong is told with its field.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let value: Json = serde_json::from_slice(body).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}"))
    })?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (field, why) = (error.path().to_string(), error.inner().to_string());
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
    })
}

/// The body as text.
pub(super) fn text(body: &[u8]) -> Result<&str, Problem> {
    str::from_utf8(body)
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8 text"))
}
