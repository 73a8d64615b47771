//! What went wrong, told to a caller over HTTP (RFC 9457).

use http::StatusCode;
use serde::ser::{Serialize, SerializeStruct, Serializer};

use tidegate_rules::{Facts, RuleSet};

use crate::json::Malformed;

/// Why a reset is not reported as done: who is refused would go on being refused.
pub(crate) const NOT_RESET: &str = "the store does not answer, so what it counts was not reset; ask again when `/readyz` no longer says `degraded`";

/// Why no counters are listed: what a fallback says is not what is counted.
pub(crate) const NOT_LISTED: &str = "the store does not answer, so what it counts is not known; ask again when `/readyz` no longer says `degraded`";

/// Why it is not known which counter of a rule is meant, if the facts do not say its key.
pub(crate) fn missing_parts(rules: &RuleSet, rule: &str, facts: &Facts<'_>) -> Option<String> {
    let missing = rules.missing_parts(rule, facts);
    let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!("rule `{rule}` counts by facts that are not given: {}", missing.join(", ")))
}

/// A request that cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// What is wrong with this request, and what to do about it.
    pub detail: String,
    /// The field of the body that is to blame, such as `checks[3].cost`.
    pub field: Option<String>,
    /// What is wrong in a word that stays the same, for programs that act on it.
    pub code: Option<&'static str>,
}

impl Problem {
    /// The media type of its JSON form.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem that no field of the body is to blame for.
    #[must_use]
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None, code: None }
    }

    /// The same, with the field that is to blame.
    #[must_use]
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The same, with a code that programs act on.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Text(detail) => Self::new(StatusCode::BAD_REQUEST, detail),
            Malformed::Field { field, why } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, why).with_field(field)
            }
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = 4 + usize::from(self.field.is_some()) + usize::from(self.code.is_some());
        let mut object = serializer.serialize_struct("Problem", members)?;
        // With `about:blank` the title is the status' own phrase (RFC 9457 section 4.2.1).
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
