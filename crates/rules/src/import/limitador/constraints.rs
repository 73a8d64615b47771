//! Merges all conditions of a limit into the constraints of a `match`, one per entry.

use std::collections::{BTreeSet, HashSet};

use super::cel::{CelError, CelPredicate};
use crate::condition::Glob;
use crate::import::document_writer::{yaml_list, yaml_scalar};
use crate::import::unsupported::quote_text;

/// Names with a special meaning in a rules document.
const RESERVED_NAMES: [&str; 7] =
    ["domain", "descriptor", "ip", "endpoint", "path", "plan", "global"];

/// Maximum number of entries: a `match` has at most 64 facts, and one of them is the domain.
const MAX_MATCH_ENTRIES: usize = 63;

/// The constrained entries, in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct MatchConstraints {
    entries: Vec<(String, ValueConstraint)>,
}

/// The values that an entry may have.
#[derive(Debug, Default)]
struct ValueConstraint {
    /// One of these; `None` for any value.
    exact: Option<BTreeSet<String>>,
    pattern: Option<String>,
    excluded: Vec<String>,
}

impl MatchConstraints {
    /// Adds a predicate on an entry.
    pub(super) fn add(&mut self, name: &str, claim: CelPredicate) -> Result<(), CelError> {
        if RESERVED_NAMES.contains(&name) || name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!(
                "the name {} is reserved in Tidegate and cannot be the name of an entry",
                quote_text(name)
            ));
        }
        claim.validate(name)?;
        let known = self.entries.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            self.entries.push((name.to_owned(), ValueConstraint::default()));
            self.entries.len() - 1
        });
        if self.entries.len() > MAX_MATCH_ENTRIES {
            return Err(format!("a rule can match at most {MAX_MATCH_ENTRIES} entries"));
        }
        self.entries[at].1.add(claim)
    }

    /// Merges the predicates on each entry.
    pub(super) fn simplify(&mut self) -> Result<(), CelError> {
        self.entries.iter_mut().try_for_each(|(_, values)| values.simplify())
    }

    /// The names of the constrained entries.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// The content of a `match`, after the domain.
    pub(super) fn to_yaml(&self) -> String {
        let one = |(name, values): &(String, ValueConstraint)| {
            format!(", {}: {}", yaml_scalar(name), values.to_yaml())
        };
        self.entries.iter().map(one).collect()
    }

    /// The constraints as readable segments of a rule id.
    pub(super) fn id_segments(&self) -> impl Iterator<Item = String> {
        self.entries.iter().filter_map(|(name, values)| {
            let exact = values.exact.as_ref();
            let exact =
                exact.map(|exact| Vec::from_iter(exact.iter().map(String::as_str)).join(","));
            let matched =
                exact.or_else(|| values.pattern.clone()).map(|value| format!("{name}={value}"));
            let not = (!values.excluded.is_empty())
                .then(|| format!("{name}!={}", values.excluded.join(",")));
            matched.or(not)
        })
    }
}

impl CelPredicate {
    /// Rejects literal `*`, which is a wildcard in a `match`, and method names that a `match`
    /// rejects.
    fn validate(&self, name: &str) -> Result<(), CelError> {
        let (texts, stars) = match self {
            Self::Present => return Ok(()),
            Self::Is(texts) => (texts.iter().map(String::as_str).collect(), 0),
            Self::Not(text) => (vec![text.as_str()], 0),
            Self::Like(text) if text.starts_with('*') && text.len() > 1 && text.ends_with('*') => {
                (vec![text.as_str()], 2)
            }
            Self::Like(text) => (vec![text.as_str()], 1),
        };
        for text in texts {
            if text.matches('*').count() > stars {
                return Err("a `*` in a string is a wildcard in Tidegate".to_owned());
            }
            let method = |byte: u8| byte.is_ascii_uppercase() || b"-*".contains(&byte);
            if name == "method" && !text.bytes().all(method) {
                return Err(format!("{} is not the name of a method", quote_text(text)));
            }
        }
        Ok(())
    }
}

impl ValueConstraint {
    fn add(&mut self, claim: CelPredicate) -> Result<(), CelError> {
        match claim {
            CelPredicate::Present => {}
            CelPredicate::Not(text) => self.excluded.push(text),
            CelPredicate::Is(texts) => {
                let texts: HashSet<String> = texts.into_iter().collect();
                match &mut self.exact {
                    Some(exact) => exact.retain(|text| texts.contains(text)),
                    None => self.exact = Some(texts.into_iter().collect()),
                }
            }
            CelPredicate::Like(like) => match &self.pattern {
                Some(other) if *other != like => {
                    return Err("an entry cannot have two patterns".to_owned());
                }
                _ => self.pattern = Some(like),
            },
        }
        Ok(())
    }

    /// If exact values are listed, patterns and exclusions only remove some of them.
    fn simplify(&mut self) -> Result<(), CelError> {
        let Some(exact) = &mut self.exact else { return Ok(()) };
        let glob = self.pattern.take().and_then(|like| Glob::parse(&like));
        exact.retain(|text| glob.as_ref().is_none_or(|glob| glob.matches(text)));
        for text in self.excluded.drain(..) {
            exact.remove(&text);
        }
        match exact.is_empty() {
            true => Err("no entry satisfies all conditions, so the limit never applies".to_owned()),
            false => Ok(()),
        }
    }

    fn to_yaml(&self) -> String {
        let is = match &self.exact {
            Some(exact) => {
                return match (exact.first(), exact.len()) {
                    (Some(one), 1) => yaml_scalar(one),
                    _ => yaml_list(&Vec::from_iter(exact)),
                };
            }
            None => yaml_scalar(self.pattern.as_deref().unwrap_or("*")),
        };
        match self.excluded.is_empty() {
            true => is,
            false => format!("{{ is: {is}, not: {} }}", yaml_list(&self.excluded)),
        }
    }
}
