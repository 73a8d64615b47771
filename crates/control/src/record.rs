//! What the entries of a book say, by kind.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_core::key::Fingerprint;
use tidegate_rules::{Allowance, OverrideRecord, SubjectRecord};

use crate::book::Kind;
use crate::edit::Entry;

/// A rule as a rules document writes it, and its place among the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) position: u64,
    pub(crate) rule: Json,
}

/// What is known of an API key or user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    /// The fact that identifies it.
    pub(crate) fact: String,
    pub(crate) hash: Hash,
    /// The value itself, unless it is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// The facts that it brings.
    pub(crate) brings: BTreeMap<String, String>,
}

/// Other numbers for one key of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Override {
    pub(crate) rule: String,
    /// Whose.
    pub(crate) hash: Hash,
    /// The facts that the rule counted by when this was made; the hash is of their values.
    pub(crate) key_by: Vec<String>,
    /// The values of those that are no secrets.
    pub(crate) key: BTreeMap<String, String>,
    pub(crate) requests: Requests,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) burst: Option<u64>,
    /// Until when, in microseconds since the epoch; for good when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// How many requests an override allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Requests {
    Number(u64),
    Word(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    Unlimited,
    Deny,
}

/// A fingerprint in 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) Fingerprint);

impl Subject {
    pub(crate) fn id(&self) -> String {
        subject_id(&self.fact, self.hash)
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry::put(Kind::Subject, &self.id(), self)
    }

    pub(crate) fn record(&self) -> SubjectRecord {
        let brings = self.brings.iter().map(|(name, value)| (name.clone(), value.clone()));
        SubjectRecord { fact: self.fact.clone(), hash: self.hash.0, brings: brings.collect() }
    }
}

impl Override {
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.rule, self.hash)
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry::put(Kind::Override, &self.id(), self)
    }

    pub(crate) fn record(&self) -> OverrideRecord {
        let allows = match self.requests {
            Requests::Number(requests) => Allowance::Requests { requests, burst: self.burst },
            Requests::Word(Word::Unlimited) => Allowance::Unlimited,
            Requests::Word(Word::Deny) => Allowance::Deny,
        };
        OverrideRecord { rule: self.rule.clone(), key: self.hash.0, allows }
    }
}

impl From<Fingerprint> for Hash {
    fn from(fingerprint: Fingerprint) -> Self {
        Self(fingerprint)
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.hex())
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let half = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
        let (hi, lo) = (half(text.get(..16)), half(text.get(16..32)));
        match (hi, lo) {
            (Some(hi), Some(lo)) if text.len() == 32 => Ok(Self(Fingerprint { hi, lo })),
            _ => Err(serde::de::Error::custom("a hash has 32 hexadecimal digits")),
        }
    }
}

/// The id of the subject that a value of a fact identifies.
pub(crate) fn subject_id(fact: &str, hash: Hash) -> String {
    format!("{fact}:{hash}")
}

/// What an entry says, if it is what we write.
pub(crate) fn read<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}
