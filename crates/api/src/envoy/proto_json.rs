//! Proto-JSON encoding of requests and responses, compatible with the reference server's
//! `POST /json`: names in camelCase or as in the `.proto`, 64-bit numbers as strings, and `null`
//! for absent fields.

mod list_sizes;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tidegate_rules::DescriptorPair;

use super::request::{EnvoyDescriptor, EnvoyLimitOverride, EnvoyRequest};
use super::response::{CurrentLimit, DescriptorStatus, EnvoyResponse};
use super::unit::RateLimitUnit;
use crate::http::body::MAX_SHORT_BODY_BYTES;
use list_sizes::RequestListSizes;
use tidegate_web::json::{JsonObject, JsonRequestError, parse as parse_object};

/// Reads a `RateLimitRequest` without validating it. Text without escapes is borrowed from `body`.
pub(crate) fn parse(body: &[u8]) -> Result<EnvoyRequest<'_>, JsonRequestError> {
    // A parsed list takes more memory than its text, so a long body's lists are counted first.
    if body.len() > MAX_SHORT_BODY_BYTES {
        parse_object::<RequestListSizes>(body)?.check()?;
    }
    parse_object(body).map(ProtoJsonRequest::into)
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ProtoJsonRequest<'a> {
    #[serde(borrow)]
    domain: Option<ProtoJsonText<'a>>,
    #[serde(borrow)]
    descriptors: Option<Vec<JsonObject<ProtoJsonDescriptor<'a>>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<ProtoJsonInteger<{ u32::MAX as u64 }>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ProtoJsonDescriptor<'a> {
    #[serde(borrow)]
    entries: Option<Vec<JsonObject<ProtoJsonEntry<'a>>>>,
    limit: Option<JsonObject<ProtoJsonOverride>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<ProtoJsonInteger<{ u64::MAX }>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProtoJsonEntry<'a> {
    #[serde(borrow)]
    key: Option<ProtoJsonText<'a>>,
    #[serde(borrow)]
    value: Option<ProtoJsonText<'a>>,
}

/// Text, borrowed if it has no escapes. The newtype is needed because serde never borrows an
/// `Option<Cow>`.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct ProtoJsonText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct ProtoJsonOverride {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<ProtoJsonInteger<{ u32::MAX as u64 }>>,
    unit: Option<ProtoJsonUnit>,
}

/// An integer up to `MOST`, written as a number or as a string.
#[derive(Clone, Copy, Debug)]
struct ProtoJsonInteger<const MOST: u64>(u64);

/// A unit, by name or number.
#[derive(Clone, Copy, Debug)]
struct ProtoJsonUnit(u64);

impl<'a> From<ProtoJsonRequest<'a>> for EnvoyRequest<'a> {
    fn from(typed: ProtoJsonRequest<'a>) -> Self {
        let descriptors = typed.descriptors.unwrap_or_default();
        Self {
            domain: text_or_empty(typed.domain),
            descriptors: descriptors.into_iter().map(|JsonObject(typed)| typed.into()).collect(),
            hits_addend: u32_or_zero(typed.hits_addend),
        }
    }
}

impl<'a> From<ProtoJsonDescriptor<'a>> for EnvoyDescriptor<'a> {
    fn from(typed: ProtoJsonDescriptor<'a>) -> Self {
        let entries = typed.entries.unwrap_or_default().into_iter();
        let limit = |JsonObject(typed): JsonObject<ProtoJsonOverride>| EnvoyLimitOverride {
            requests_per_unit: u32_or_zero(typed.requests_per_unit),
            unit: typed.unit.map_or(0, |unit| unit.0),
        };
        Self {
            entries: entries
                .map(|JsonObject(entry)| DescriptorPair {
                    key: text_or_empty(entry.key),
                    value: text_or_empty(entry.value),
                })
                .collect(),
            limit: typed.limit.map(limit),
            hits_addend: typed.hits_addend.map(|hits| hits.0),
            is_negative_hits: typed.is_negative_hits.unwrap_or_default(),
        }
    }
}

fn text_or_empty(typed: Option<ProtoJsonText<'_>>) -> Cow<'_, str> {
    typed.map(|ProtoJsonText(text)| text).unwrap_or_default()
}

/// Converts an integer whose type already guarantees that it fits in 32 bits.
fn u32_or_zero(typed: Option<ProtoJsonInteger<{ u32::MAX as u64 }>>) -> u32 {
    typed.map_or(0, |number| u32::try_from(number.0).unwrap_or(u32::MAX))
}

impl<'de, const MOST: u64> Deserialize<'de> for ProtoJsonInteger<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ProtoJsonIntegerVisitor::<MOST>).map(Self)
    }
}

struct ProtoJsonIntegerVisitor<const MOST: u64>;

impl<const MOST: u64> Visitor<'_> for ProtoJsonIntegerVisitor<MOST> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if number > MOST {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => self.visit_u64(number),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for ProtoJsonUnit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ProtoJsonUnitVisitor).map(Self)
    }
}

struct ProtoJsonUnitVisitor;

impl Visitor<'_> for ProtoJsonUnitVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a unit such as \"SECOND\", \"MINUTE\", \"HOUR\", \"DAY\", \"MONTH\" or \"YEAR\"",
        )
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<u64, E> {
        RateLimitUnit::override_number(name)
            .ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }
}

/// Serializes a response as JSON. Fields with their default value are omitted, as in proto-JSON.
pub(crate) struct EnvoyResponseView<'a, 'd>(pub(crate) &'a EnvoyResponse<'d>);

impl Serialize for EnvoyResponseView<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("overallCode", self.0.overall_code().name())?;
        let statuses: Vec<_> = self.0.statuses.iter().map(DescriptorStatusView).collect();
        object.serialize_entry("statuses", &statuses)?;
        let headers: Vec<_> =
            self.0.headers().map(|(name, value)| EnvoyHeaderView(name, value)).collect();
        if !headers.is_empty() {
            object.serialize_entry("responseHeadersToAdd", &headers)?;
        }
        object.end()
    }
}

struct DescriptorStatusView<'a>(&'a DescriptorStatus<'a>);

impl Serialize for DescriptorStatusView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("code", self.0.code.name())?;
        if let Some(limit) = &self.0.current_limit {
            object.serialize_entry("currentLimit", &CurrentLimitView(limit))?;
        }
        if self.0.limit_remaining > 0 {
            object.serialize_entry("limitRemaining", &self.0.limit_remaining)?;
        }
        if let Some(secs) = self.0.reset_secs {
            object.serialize_entry("durationUntilReset", &format_args!("{secs}s"))?;
        }
        object.end()
    }
}

struct CurrentLimitView<'a>(&'a CurrentLimit<'a>);

impl Serialize for CurrentLimitView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CurrentLimit { requests_per_unit, unit, name } = self.0;
        let mut object = serializer.serialize_map(None)?;
        if *requests_per_unit > 0 {
            object.serialize_entry("requestsPerUnit", requests_per_unit)?;
        }
        if *unit != RateLimitUnit::Unknown {
            object.serialize_entry("unit", unit.name())?;
        }
        object.serialize_entry("name", name)?;
        object.end()
    }
}

struct EnvoyHeaderView<'a>(&'a http::HeaderName, &'a http::HeaderValue);

impl Serialize for EnvoyHeaderView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("key", self.0.as_str())?;
        object.serialize_entry("value", &String::from_utf8_lossy(self.1.as_bytes()))?;
        object.end()
    }
}
