//! Reads facts from a JSON object. Facts are validated while reading and borrowed from the text if
//! possible.
//!
//! Integers and booleans become their text. Fractions are rejected: `1e3` and `1000.0` would become
//! the same text, and numbers beyond 64 bits would lose the digits that distinguish two users.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tidegate_rules::Facts;

use tidegate_identity::{canonicalize_value, check_fact_count, check_fact_name};

/// A document that consists only of facts.
pub(crate) struct FactsOnly<'a>(pub(crate) Box<Facts<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for FactsOnly<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(FactsOnly)
    }
}

/// For `#[serde(deserialize_with)]`. Boxed because serde moves the value through every layer.
pub(crate) fn deserialize<'de: 'a, 'a, D: Deserializer<'de>>(
    from: D,
) -> Result<Box<Facts<'a>>, D::Error> {
    from.deserialize_map(FactsVisitor(PhantomData))
}

struct FactsVisitor<'a>(PhantomData<Facts<'a>>);

impl<'de: 'a, 'a> Visitor<'de> for FactsVisitor<'a> {
    type Value = Box<Facts<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of facts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut facts = Box::new(Facts::new());
        while let Some(name) = map.next_key_seed(FactNameSeed { facts: &facts })? {
            check_fact_count(&facts).map_err(A::Error::custom)?;
            let value = map.next_value_seed(FactValueSeed { name: &name })?;
            facts.push(name, value);
        }
        Ok(facts)
    }
}

/// Reads the name of a fact. It validates the name here so that an error's path ends with the name.
struct FactNameSeed<'k, 'a> {
    facts: &'k Facts<'a>,
}

impl<'de> DeserializeSeed<'de> for FactNameSeed<'_, '_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Cow<'de, str>, D::Error> {
        let name = from.deserialize_str(TextVisitor)?;
        check_fact_name(&name, self.facts).map_err(D::Error::custom)?;
        Ok(name)
    }
}

/// Reads the value of a fact. It validates the value here so that an error's path has the name.
struct FactValueSeed<'n> {
    name: &'n str,
}

impl<'de> DeserializeSeed<'de> for FactValueSeed<'_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Cow<'de, str>, D::Error> {
        let value = from.deserialize_any(TextVisitor)?;
        canonicalize_value(self.name, value).map_err(D::Error::custom)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a whole number of at most 64 bits or a boolean")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(if truth { "true" } else { "false" }))
    }
}
