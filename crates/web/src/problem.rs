//! Error responses as problem documents (RFC 9457).

use http::StatusCode;
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::json::JsonRequestError;

/// An error that is reported to an HTTP client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    /// The status of the response.
    pub status: StatusCode,
    /// What is wrong with this request, and how to fix it.
    pub detail: String,
    /// The field of the body that is wrong, such as `checks[3].cost`.
    pub field: Option<String>,
    /// A stable identifier that programs can act on.
    pub code: Option<&'static str>,
}

impl HttpError {
    /// The media type of its JSON form.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// An error that concerns no particular field.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None, code: None }
    }

    /// Adds the field that is wrong.
    #[must_use]
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Adds a stable identifier.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl From<JsonRequestError> for HttpError {
    fn from(error: JsonRequestError) -> Self {
        match error {
            JsonRequestError::InvalidJson(detail) => Self::new(StatusCode::BAD_REQUEST, detail),
            JsonRequestError::InvalidField { field, why } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
            }
        }
    }
}

impl Serialize for HttpError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = 4 + usize::from(self.field.is_some()) + usize::from(self.code.is_some());
        let mut object = serializer.serialize_struct("Problem", members)?;
        // With `about:blank` the title is the status's standard phrase (RFC 9457 section 4.2.1).
        object.serialize_field("type", "about:blank")?;
        object.serialize_field("title", self.status.canonical_reason().unwrap_or("Problem"))?;
        object.serialize_field("status", &self.status.as_u16())?;
        object.serialize_field("detail", &self.detail)?;
        match &self.field {
            Some(field) => object.serialize_field("field", field)?,
            None => object.skip_field("field")?,
        }
        match self.code {
            Some(code) => object.serialize_field("code", code)?,
            None => object.skip_field("code")?,
        }
        object.end()
    }
}
