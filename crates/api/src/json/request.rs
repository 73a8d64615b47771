//! Request bodies, validated while reading: an invalid request is never decided in part.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use tidegate_rules::Facts;
use tidegate_web::json::JsonObject;

use super::facts;

/// Maximum number of checks in a batch.
pub const MAX_CHECKS: usize = 1_000;

/// Decides one request and charges it: `{"facts":{…},"cost":1}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest<'a> {
    /// Facts about the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// Cost of the request; 1 by default.
    #[serde(default = "default_cost", deserialize_with = "cost")]
    pub cost: u32,
}

/// Decides each check separately: `{"checks":[…]}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchCheckRequest<'a> {
    /// The checks, decided and answered in this order.
    #[serde(borrow, deserialize_with = "checks")]
    pub checks: Vec<CheckRequest<'a>>,
}

/// Reports the decision that a check would get: `{"facts":{…},"rule":"…","cost":1}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeekRequest<'a> {
    /// Facts about the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// ID of the only rule to consider; all rules by default.
    #[serde(default)]
    pub rule: Option<String>,
    /// Cost of the request; 1 by default.
    #[serde(default = "default_cost", deserialize_with = "cost")]
    pub cost: u32,
}

/// Refunds an earlier charge: `{"facts":{…},"rule":"…","cost":1,"charged_at_us":…}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefundRequest<'a> {
    /// Facts about the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// ID of the only rule to refund; all rules by default.
    #[serde(default)]
    pub rule: Option<String>,
    /// Cost to refund; 1 by default.
    #[serde(default = "default_cost", deserialize_with = "cost")]
    pub cost: u32,
    /// Time of the charge, in microseconds of the store's clock; now by default.
    #[serde(default)]
    pub charged_at_us: Option<u64>,
}

/// Selects a client's counters: `{"facts":{…},"rule":"…"}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCountersRequest<'a> {
    /// Facts that identify the client.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// ID of the only rule to consider; all rules by default.
    #[serde(default)]
    pub rule: Option<String>,
}

const fn default_cost() -> u32 {
    1
}

fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    from.deserialize_any(CostVisitor)
}

struct CostVisitor;

impl Visitor<'_> for CostVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {}", u32::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        let cost = u32::try_from(number).ok().filter(|cost| *cost > 0);
        cost.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }
}

fn checks<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Vec<CheckRequest<'a>>, D::Error> {
    from.deserialize_seq(ChecksVisitor(PhantomData))
}

struct ChecksVisitor<'a>(PhantomData<CheckRequest<'a>>);

impl<'de: 'a, 'a> Visitor<'de> for ChecksVisitor<'a> {
    type Value = Vec<CheckRequest<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_CHECKS} checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut checks = Vec::new();
        while let Some(JsonObject(check)) = list.next_element()? {
            if checks.len() == MAX_CHECKS {
                return Err(A::Error::invalid_length(MAX_CHECKS + 1, &self));
            }
            checks.push(check);
        }
        Ok(checks)
    }
}
