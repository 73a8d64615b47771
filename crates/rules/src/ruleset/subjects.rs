//! What is known of the API keys and users that the document lists.

use std::collections::HashMap;

use tidegate_core::key::{Fingerprint, Secret};

use crate::document::Document;
use crate::facts::Facts;
use crate::identity::UnknownKey;
use crate::records::SubjectRecord;

/// Facts by the fact that identifies a subject.
#[derive(Debug)]
pub(crate) struct Subjects {
    known: Vec<Known>,
    secret: Secret,
    default_tier: Option<String>,
    unknown_key: Option<UnknownKey>,
}

/// The subjects that one fact identifies, and the facts that each brings.
#[derive(Debug)]
struct Known {
    fact: String,
    by_value: HashMap<String, Brings>,
    /// Those of which only a hash is known.
    by_hash: HashMap<Fingerprint, Brings>,
}

/// The facts that a subject brings.
type Brings = Vec<(String, String)>;

impl Known {
    fn brings(&self, value: &str, secret: Secret) -> Option<&Brings> {
        self.by_value.get(value).or_else(|| {
            // Nobody is hashed for where there are no hashes.
            let known = Some(&self.by_hash).filter(|by_hash| !by_hash.is_empty())?;
            known.get(&SubjectRecord::hash(secret, &self.fact, value))
        })
    }
}

impl Subjects {
    /// Nobody is known.
    pub(crate) const fn none() -> Self {
        Self { known: Vec::new(), secret: Secret::UNSET, default_tier: None, unknown_key: None }
    }

    pub(crate) fn new(document: &Document, secret: Secret) -> Self {
        let mut subjects = Self {
            known: Vec::new(),
            secret,
            default_tier: document.identity().tier.as_ref().and_then(|tier| tier.default.clone()),
            unknown_key: document.identity().api_key.as_ref().map(|key| key.unknown),
        };
        for subject in document.subjects() {
            let by_value = &mut subjects.known_by(&subject.fact).by_value;
            by_value.insert(subject.value.clone(), subject.brings.clone());
        }
        subjects
    }

    /// Adds subjects of which only a hash is known.
    pub(crate) fn extend(&mut self, records: &[SubjectRecord]) {
        for SubjectRecord { fact, hash, brings } in records {
            self.known_by(fact).by_hash.insert(*hash, brings.clone());
        }
    }

    fn known_by(&mut self, fact: &str) -> &mut Known {
        let at = self.known.iter().position(|known| known.fact == fact).unwrap_or_else(|| {
            let (by_value, by_hash) = (HashMap::new(), HashMap::new());
            self.known.push(Known { fact: fact.to_owned(), by_value, by_hash });
            self.known.len() - 1
        });
        &mut self.known[at]
    }

    /// Whether there is anything to add to facts, or to take away.
    pub(crate) fn complete_nothing(&self) -> bool {
        self.known.is_empty()
            && self.default_tier.is_none()
            && self.unknown_key != Some(UnknownKey::Ip)
    }

    pub(crate) fn complete<'a>(&'a self, facts: &mut Facts<'a>) {
        self.bring(facts);
        if let Some(tier) = &self.default_tier
            && facts.get("tier").is_none()
        {
            facts.push("tier", tier);
        }
    }

    /// Adds what is known of the subjects alone, and not what is assumed of everyone else.
    pub(crate) fn bring<'a>(&'a self, facts: &mut Facts<'a>) {
        if self.unknown_key == Some(UnknownKey::Ip) && !self.knows_key(facts) {
            facts.remove("api_key");
        }
        for known in &self.known {
            let value = facts.get(&known.fact);
            let brings = value.and_then(|value| known.brings(value, self.secret));
            for (name, value) in brings.into_iter().flatten() {
                if facts.get(name).is_none() {
                    facts.push(name, value);
                }
            }
        }
    }

    fn knows_key(&self, facts: &Facts<'_>) -> bool {
        let key = facts.get("api_key").unwrap_or_default();
        let mut known = self.known.iter().filter(|known| known.fact == "api_key");
        known.any(|known| known.brings(key, self.secret).is_some())
    }
}
