//! The JSON values of configuration entries, by kind.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_core::key::Fingerprint;
use tidegate_rules::{OverrideLimit, OverrideRecord, SubjectRecord};

use crate::edit::EntryUpdate;
use crate::rule_config::EntryKind;

/// A rule as written in a rules document, with its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionedRule {
    /// Position in the document.
    pub position: u64,
    /// The rule, as JSON.
    pub rule: Json,
}

/// An API key or user, and the facts known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSubject {
    /// Name of the identifying fact.
    pub fact: String,
    pub(crate) hash: HexFingerprint,
    /// The value itself, unless it is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The facts attached to it.
    pub facts: BTreeMap<String, String>,
}

/// Different limits for one key of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOverride {
    /// Id of the rule.
    pub rule: String,
    /// Keyed hash of the counter key.
    pub hash: HexFingerprint,
    /// The facts that the rule counted by when the override was created; `hash` covers their
    /// values.
    pub key_by: Vec<String>,
    /// The values of the facts that are not secret.
    pub key: BTreeMap<String, String>,
    /// Number of requests allowed.
    pub requests: OverrideRequests,
    /// Burst size; the rule's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Expiry in microseconds since the epoch; the override never expires when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_us: Option<u64>,
    /// Free text for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Number of requests that an override allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OverrideRequests {
    /// A number of requests.
    Number(u64),
    /// `unlimited` or `deny`.
    Word(OverrideKeyword),
}

/// A keyword in place of a number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverrideKeyword {
    /// Never refuse.
    Unlimited,
    /// Always refuse.
    Deny,
}

/// A fingerprint, written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexFingerprint(pub(crate) Fingerprint);

impl StoredSubject {
    /// The id, derived from the identifying fact and its hash.
    pub fn id(&self) -> String {
        subject_id(&self.fact, self.hash)
    }

    /// Converts it to an entry of the rules database.
    pub fn to_update(&self) -> EntryUpdate {
        EntryUpdate::put(EntryKind::Subject, &self.id(), self)
    }

    pub(crate) fn to_record(&self) -> SubjectRecord {
        let facts = self.facts.iter().map(|(name, value)| (name.clone(), value.clone()));
        SubjectRecord { fact: self.fact.clone(), hash: self.hash.0, facts: facts.collect() }
    }
}

impl StoredOverride {
    /// The id, derived from the rule and the key.
    pub fn id(&self) -> String {
        format!("{}:{}", self.rule, self.hash)
    }

    /// Converts it to an entry of the rules database.
    pub fn to_update(&self) -> EntryUpdate {
        EntryUpdate::put(EntryKind::Override, &self.id(), self)
    }

    pub(crate) fn to_record(&self) -> OverrideRecord {
        let limit = match self.requests {
            OverrideRequests::Number(requests) => {
                OverrideLimit::Requests { requests, burst: self.burst }
            }
            OverrideRequests::Word(OverrideKeyword::Unlimited) => OverrideLimit::Unlimited,
            OverrideRequests::Word(OverrideKeyword::Deny) => OverrideLimit::Deny,
        };
        OverrideRecord { rule: self.rule.clone(), key: self.hash.0, limit }
    }
}

impl From<Fingerprint> for HexFingerprint {
    fn from(fingerprint: Fingerprint) -> Self {
        Self(fingerprint)
    }
}

impl std::fmt::Display for HexFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl Serialize for HexFingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HexFingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let half = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
        let (hi, lo) = (half(text.get(..16)), half(text.get(16..32)));
        match (hi, lo) {
            (Some(hi), Some(lo)) if text.len() == 32 => Ok(Self(Fingerprint { hi, lo })),
            _ => Err(serde::de::Error::custom("expected a hash of 32 hexadecimal digits")),
        }
    }
}

/// The id of the subject identified by a fact's hashed value.
pub fn subject_id(fact: &str, hash: HexFingerprint) -> String {
    format!("{fact}:{hash}")
}

/// Parses an entry's value; `None` if it does not have the expected form.
pub fn parse_value<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}
