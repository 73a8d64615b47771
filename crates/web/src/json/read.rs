//! Parses a JSON object and reports which field is wrong.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;

/// Maximum length in characters of client text that an error repeats.
const MAX_QUOTED_CHARS: usize = 200;

/// Why a request body is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonRequestError {
    /// The body is not JSON; the text says where.
    InvalidJson(String),
    /// The body is JSON, but a field is missing, unknown or out of range.
    InvalidField {
        /// The field's path, such as `checks[3].cost`; `.` for the whole body.
        field: String,
        /// What is wrong with the field.
        why: String,
    },
}

/// Parses a request body. Strings without escapes are borrowed from it.
///
/// # Errors
/// When the body is not UTF-8 or not JSON, or a field is missing, unknown or out of range.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, JsonRequestError> {
    if body.is_empty() {
        return Err(JsonRequestError::InvalidJson(
            "the body is empty; send a JSON object".to_owned(),
        ));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        JsonRequestError::InvalidJson(format!("invalid UTF-8 at byte {}", error.valid_up_to()))
    })?;
    // Most requests are valid, so the path is tracked only in a second pass over an invalid one.
    let parsed: Result<JsonObject<T>, _> = serde_json::from_str(text);
    parsed.map(|object| object.0).map_err(|error| locate_error::<T>(text, &error))
}

/// Parses an invalid body again with path tracking, to find the invalid field.
fn locate_error<'a, T: Deserialize<'a>>(
    text: &'a str,
    first: &serde_json::Error,
) -> JsonRequestError {
    let mut json = serde_json::Deserializer::from_str(text);
    let Err(error) = serde_path_to_error::deserialize::<_, JsonObject<T>>(&mut json) else {
        // The object itself is valid, so the error is in what follows it.
        return JsonRequestError::InvalidJson(format!("not JSON: {first}"));
    };
    let path = error.path().to_string();
    let error = error.into_inner();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let why = message.strip_suffix(&position).unwrap_or(&message);
    // A number that does not fit into a double is still valid JSON (RFC 8259 section 6).
    if error.classify() != Category::Data && why != "number out of range" {
        return JsonRequestError::InvalidJson(format!("not JSON: {}", truncate_text(&message)));
    }
    JsonRequestError::InvalidField {
        field: truncate_text(&blamed_field(path, why)),
        why: truncate_text(why),
    }
}

/// The path of the invalid field. serde names a missing or repeated field only in its message.
fn blamed_field(path: String, why: &str) -> String {
    let name = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|prefix| why.strip_prefix(prefix)?.strip_suffix('`'));
    match name {
        Some(name) if path == "." => name.to_owned(),
        Some(name) if !path.ends_with(name) => format!("{path}.{name}"),
        _ => path,
    }
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value that must be written as an object. serde alone would also accept an array of its values.
#[derive(Debug)]
pub struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

impl fmt::Display for JsonRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidJson(why) => f.write_str(why),
            Self::InvalidField { field, why } => write!(f, "{field}: {why}"),
        }
    }
}

impl std::error::Error for JsonRequestError {}
