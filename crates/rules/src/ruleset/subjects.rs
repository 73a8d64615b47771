//! Looks up the facts of known API keys and users.

use std::collections::HashMap;

use tidegate_core::key::{Fingerprint, Secret};

use crate::document::Document;
use crate::facts::Facts;
use crate::identity::UnknownKeyPolicy;
use crate::records::SubjectRecord;

/// Known subjects, by the fact that identifies them.
#[derive(Debug)]
pub(crate) struct SubjectTable {
    indexes: Vec<SubjectIndex>,
    secret: Secret,
    default_tier: Option<String>,
    unknown_key: Option<UnknownKeyPolicy>,
}

/// The subjects that one fact identifies, and their facts.
#[derive(Debug)]
struct SubjectIndex {
    fact: String,
    by_value: HashMap<String, SubjectFacts>,
    /// Subjects of which only the hash is known.
    by_hash: HashMap<Fingerprint, SubjectFacts>,
}

/// The facts of a subject.
type SubjectFacts = Vec<(String, String)>;

impl SubjectIndex {
    fn facts_for(&self, value: &str, secret: Secret) -> Option<&SubjectFacts> {
        self.by_value.get(value).or_else(|| {
            // Skip hashing if there are no hashed subjects.
            let known = Some(&self.by_hash).filter(|by_hash| !by_hash.is_empty())?;
            known.get(&SubjectRecord::hash(secret, &self.fact, value))
        })
    }
}

impl SubjectTable {
    /// A table without subjects.
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

    /// Adds subjects of which only the hash is known.
    pub(crate) fn extend(&mut self, records: &[SubjectRecord]) {
        for SubjectRecord { fact, hash, facts } in records {
            self.index_mut(fact).by_hash.insert(*hash, facts.clone());
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

    /// Whether `enrich` never changes facts.
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

    /// Adds the facts of known subjects, without the defaults for all others.
    pub(crate) fn add_subject_facts<'a>(&'a self, facts: &mut Facts<'a>) {
        if self.unknown_key == Some(UnknownKeyPolicy::Ip) && !self.is_known_key(facts) {
            facts.remove("api_key");
        }
        for known in &self.indexes {
            let value = facts.get(&known.fact);
            let added = value.and_then(|value| known.facts_for(value, self.secret));
            for (name, value) in added.into_iter().flatten() {
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
