//! What is known of the API keys and users that the document lists.

use std::collections::HashMap;

use crate::document::Document;
use crate::facts::Facts;
use crate::identity::UnknownKey;

/// Facts by the fact that identifies a subject.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    known: Vec<Known>,
    default_tier: Option<String>,
    unknown_key: Option<UnknownKey>,
}

/// The subjects that one fact identifies, and the facts that each brings.
#[derive(Debug)]
struct Known {
    fact: String,
    by_value: HashMap<String, Vec<(String, String)>>,
}

impl Subjects {
    pub(crate) fn new(document: &Document) -> Self {
        let mut subjects = Self {
            known: Vec::new(),
            default_tier: document.identity().tier.as_ref().and_then(|tier| tier.default.clone()),
            unknown_key: document.identity().api_key.as_ref().map(|key| key.unknown),
        };
        for subject in document.subjects() {
            let at = subjects.known.iter().position(|known| known.fact == subject.fact);
            let at = at.unwrap_or_else(|| {
                let (fact, by_value) = (subject.fact.clone(), HashMap::new());
                subjects.known.push(Known { fact, by_value });
                subjects.known.len() - 1
            });
            subjects.known[at].by_value.insert(subject.value.clone(), subject.brings.clone());
        }
        subjects
    }

    pub(crate) fn complete<'a>(&'a self, facts: &mut Facts<'a>) {
        if self.unknown_key == Some(UnknownKey::Ip) && !self.knows_key(facts) {
            facts.remove("api_key");
        }
        for Known { fact, by_value } in &self.known {
            let brings = facts.get(fact).and_then(|value| by_value.get(value));
            for (name, value) in brings.into_iter().flatten() {
                if facts.get(name).is_none() {
                    facts.push(name, value);
                }
            }
        }
        if let Some(tier) = &self.default_tier
            && facts.get("tier").is_none()
        {
            facts.push("tier", tier);
        }
    }

    fn knows_key(&self, facts: &Facts<'_>) -> bool {
        let key = facts.get("api_key").unwrap_or_default();
        let mut known = self.known.iter().filter(|known| known.fact == "api_key");
        known.any(|known| known.by_value.contains_key(key))
    }
}
