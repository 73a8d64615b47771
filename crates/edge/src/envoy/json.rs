//! Calls and answers in proto-JSON, as the reference server's `POST /json` takes and gives them: names in
//! camelCase or as in the `.proto`, 64-bit numbers as text, `null` for what is not said.

mod sizes;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use tidegate_rules::Entry;

use super::answer::{Answer, CurrentLimit, DescriptorStatus};
use super::call::{Call, Descriptor, Override};
use super::unit::Unit;
use crate::http::body::SHORT_BYTES;
use crate::json::{Malformed, Object, parse as parse_object};
use sizes::Sizes;

/// Reads a `RateLimitRequest`, which is yet to be checked. Text without escapes is borrowed from the body.
pub(crate) fn parse(body: &[u8]) -> Result<Call<'_>, Malformed> {
    // What is kept of a list takes more memory than its text: a long one is counted before it is kept.
    if body.len() > SHORT_BYTES {
        parse_object::<Sizes>(body)?.check()?;
    }
    parse_object(body).map(TypedCall::into)
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct TypedCall<'a> {
    #[serde(borrow)]
    domain: Option<Text<'a>>,
    #[serde(borrow)]
    descriptors: Option<Vec<Object<TypedDescriptor<'a>>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<{ u32::MAX as u64 }>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct TypedDescriptor<'a> {
    #[serde(borrow)]
    entries: Option<Vec<Object<TypedEntry<'a>>>>,
    limit: Option<Object<TypedOverride>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<{ u64::MAX }>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TypedEntry<'a> {
    #[serde(borrow)]
    key: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<Text<'a>>,
}

/// Text, borrowed where it has no escapes. (An optional `Cow` is never borrowed by serde itself.)
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct TypedOverride {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Number<{ u32::MAX as u64 }>>,
    unit: Option<TypedUnit>,
}

/// A number up to `MOST`, as a number or as text.
#[derive(Clone, Copy, Debug)]
struct Number<const MOST: u64>(u64);

/// A unit, by name or number.
#[derive(Clone, Copy, Debug)]
struct TypedUnit(u64);

impl<'a> From<TypedCall<'a>> for Call<'a> {
    fn from(typed: TypedCall<'a>) -> Self {
        let descriptors = typed.descriptors.unwrap_or_default();
        Self {
            domain: text(typed.domain),
            descriptors: descriptors.into_iter().map(|Object(typed)| typed.into()).collect(),
            hits_addend: low(typed.hits_addend),
        }
    }
}

impl<'a> From<TypedDescriptor<'a>> for Descriptor<'a> {
    fn from(typed: TypedDescriptor<'a>) -> Self {
        let entries = typed.entries.unwrap_or_default().into_iter();
        let limit = |Object(typed): Object<TypedOverride>| Override {
            requests_per_unit: low(typed.requests_per_unit),
            unit: typed.unit.map_or(0, |unit| unit.0),
        };
        Self {
            entries: entries
                .map(|Object(entry)| Entry { key: text(entry.key), value: text(entry.value) })
                .collect(),
            limit: typed.limit.map(limit),
            hits_addend: typed.hits_addend.map(|hits| hits.0),
            is_negative_hits: typed.is_negative_hits.unwrap_or_default(),
        }
    }
}

fn text(typed: Option<Text<'_>>) -> Cow<'_, str> {
    typed.map(|Text(text)| text).unwrap_or_default()
}

/// A number whose type has checked that it has 32 bits.
fn low(typed: Option<Number<{ u32::MAX as u64 }>>) -> u32 {
    typed.map_or(0, |number| u32::try_from(number.0).unwrap_or(u32::MAX))
}

impl<'de, const MOST: u64> Deserialize<'de> for Number<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberVisitor::<MOST>).map(Self)
    }
}

struct NumberVisitor<const MOST: u64>;

impl<const MOST: u64> Visitor<'_> for NumberVisitor<MOST> {
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

impl<'de> Deserialize<'de> for TypedUnit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UnitVisitor).map(Self)
    }
}

struct UnitVisitor;

impl Visitor<'_> for UnitVisitor {
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
        Unit::number_of(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }
}

/// An answer as JSON. What has the value that a missing field has is left out, as proto-JSON does.
pub(crate) struct AnswerView<'a, 'd>(pub(crate) &'a Answer<'d>);

impl Serialize for AnswerView<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("overallCode", self.0.overall_code().name())?;
        let statuses: Vec<_> = self.0.statuses.iter().map(StatusView).collect();
        object.serialize_entry("statuses", &statuses)?;
        let headers: Vec<_> =
            self.0.headers().map(|(name, value)| HeaderView(name, value)).collect();
        if !headers.is_empty() {
            object.serialize_entry("responseHeadersToAdd", &headers)?;
        }
        object.end()
    }
}

struct StatusView<'a>(&'a DescriptorStatus<'a>);

impl Serialize for StatusView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("code", self.0.code.name())?;
        if let Some(limit) = &self.0.current_limit {
            object.serialize_entry("currentLimit", &LimitView(limit))?;
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

struct LimitView<'a>(&'a CurrentLimit<'a>);

impl Serialize for LimitView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CurrentLimit { requests_per_unit, unit, name } = self.0;
        let mut object = serializer.serialize_map(None)?;
        if *requests_per_unit > 0 {
            object.serialize_entry("requestsPerUnit", requests_per_unit)?;
        }
        if *unit != Unit::Unknown {
            object.serialize_entry("unit", unit.name())?;
        }
        object.serialize_entry("name", name)?;
        object.end()
    }
}

struct HeaderView<'a>(&'a http::HeaderName, &'a http::HeaderValue);

impl Serialize for HeaderView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("key", self.0.as_str())?;
        object.serialize_entry("value", &String::from_utf8_lossy(self.1.as_bytes()))?;
        object.end()
    }
}
