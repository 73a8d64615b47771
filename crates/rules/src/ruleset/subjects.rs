//! What is known of the API keys and users that the document lists.

use std::collections::HashMap;

use tidegate_core::key::{Fingerprint, Secret};

use crate::document::Document;
use crate::facts::Facts;
use crate::identity::UnknownKeyPolicy;
use crate::records::SubjectRecord;

/// Facts by the fact that identifies a subject.
#[derive(Debug)]
pub(crate) struct SubjectTable {
    indexes: Vec<SubjectIndex>,
    secret: Secret,
    default_tier: Option<String>,
    unknown_key: Option<UnknownKeyPolicy>,
}

/// The subjects that one fact identifies, and the facts that each brings.
#[derive(Debug)]
struct SubjectIndex {
    fact: String,
    by_value: HashMap<String, SubjectFacts>,
    /// Those of which only a hash is known.
    by_hash: HashMap<Fingerprint, SubjectFacts>,
}

/// The facts that a subject brings.
type SubjectFacts = Vec<(String, String)>;

impl SubjectIndex {
    fn facts_for(&self, value: &str, secret: Secret) -> Option<&SubjectFacts> {
        self.by_value.get(value).or_else(|| {
            // Nobody is hashed for where there are no hashes.
            let known = Some(&self.by_hash).filter(|by_hash| !by_hash.is_empty())?;
            known.get(&SubjectRecord::hash(secret, &self.fact, value))
        })
    }
}

impl SubjectTable {
    /// Nobody is known.
    pub(crate) const fn empty() -> Self {
        Self { indexes: Vec::new(), secret: Secret::UNSET, default_tier: None, unknown_key: None }
    }

    pub(crate) fn new(document: &Document, secret: Secret) -> Self {
        let mut subjects = Self {
            indexes: Vec::new(),
            secret,
            default_tier: document.identity().tier.as_ref().and_then(|tier| tier.default.clone()),
            unknown_key: document.identity().api_key.as_ref().map(|key| key.unknown),
        };
        for subject in document.subjects() {
            let by_value = &mut subjects.index_mut(&subject.fact).by_value;
            by_value.insert(subject.value.clone(), subject.facts.clone());
        }
        subjects
    }

    /// Adds subjects of which only a hash is known.
    pub(crate) fn extend(&mut self, records: &[SubjectRecord]) {
        for SubjectRecord { fact, hash, facts: brings } in records {
            self.index_mut(fact).by_hash.insert(*hash, brings.clone());
        }
    }

    fn index_mut(&mut self, fact: &str) -> &mut SubjectIndex {
        let at = self.indexes.iter().position(|known| known.fact == fact).unwrap_or_else(|| {
            let (by_value, by_hash) = (HashMap::new(), HashMap::new());
            self.indexes.push(SubjectIndex { fact: fact.to_owned(), by_value, by_hash });
            self.indexes.len() - 1
        });
        &mut self.indexes[at]
    }

    /// Whether there is anything to add to facts, or to take away.
    pub(crate) fn is_noop(&self) -> bool {
        self.indexes.is_empty()
            && self.default_tier.is_none()
            && self.unknown_key != Some(UnknownKeyPolicy::Ip)
    }

    pub(crate) fn enrich<'a>(&'a self, facts: &mut Facts<'a>) {
        self.add_subject_facts(facts);
        if let Some(tier) = &self.default_tier
            && facts.get("tier").is_none()
        {
            facts.push("tier", tier);
        }
    }

    /// Adds what is known of the subjects alone, and not what is assumed of everyone else.
    pub(crate) fn add_subject_facts<'a>(&'a self, facts: &mut Facts<'a>) {
        if self.unknown_key == Some(UnknownKeyPolicy::Ip) && !self.is_known_key(facts) {
            facts.remove("api_key");
        }
        for known in &self.indexes {
            let value = facts.get(&known.fact);
            let brings = value.and_then(|value| known.facts_for(value, self.secret));
            for (name, value) in brings.into_iter().flatten() {
                if facts.get(name).is_none() {
                    facts.push(name, value);
                }
            }
        }
    }

    fn is_known_key(&self, facts: &Facts<'_>) -> bool {
        let key = facts.get("api_key").unwrap_or_default();
        let mut known = self.indexes.iter().filter(|known| known.fact == "api_key");
        known.any(|known| known.facts_for(key, self.secret).is_some())
    }
}
