//! Derives ids for rules without one: readable, and stable as long as the rule's meaning is
//! unchanged.

use std::collections::HashSet;

use tidegate_core::key::{KeyHasher, Secret};
use tidegate_core::time::Micros;

use crate::condition::Condition;
use crate::key::KeyPart;
use crate::rule::RuleLimit;

/// Maximum length of the readable part.
const MAX_SLUG_LENGTH: usize = 64;

/// Derives an id from match, key, algorithm and window. The number of requests is not included, so
/// that a changed limit keeps its counters.
pub(crate) fn derive_id(
    conditions: &[Condition],
    parts: &[KeyPart],
    limit: &RuleLimit,
    taken: &mut HashSet<String>,
) -> String {
    let mut matched: Vec<String> = conditions.iter().map(ToString::to_string).collect();
    matched.sort_unstable();
    let (algorithm, window) = limit.counter_identity();
    let span = match limit {
        RuleLimit::Policy(_) => Micros::new(window).to_string(),
        RuleLimit::Unlimited | RuleLimit::Deny { .. } => algorithm.to_owned(),
    };
    let key = parts.iter().map(KeyPart::name).collect::<Vec<_>>().join("-");
    let key = if key.is_empty() { "global" } else { &key };
    let readable = format!("{}-by-{key}-{span}", slug(&matched));
    let mut hasher = KeyHasher::new(Secret::UNSET);
    for list in [&matched, &parts.iter().map(|part| part.name().to_owned()).collect()] {
        // Include the length of each list, so that no condition is taken for a part of the key.
        hasher.write_part(&(list.len() as u64).to_le_bytes());
        list.iter().for_each(|text| hasher.write_part(text.as_bytes()));
    }
    hasher.write_part(algorithm.as_bytes());
    hasher.write_part(&window.to_le_bytes());
    let hash = hasher.finish().lo & 0xFF_FFFF;
    let name = format!("{}-{hash:06x}", slug(&[readable]));
    let numbered = (2_u32..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
    let name = free.unwrap_or(name);
    taken.insert(name.clone());
    name
}

/// Keeps letters, digits and underscores, and replaces everything else by single dashes.
fn slug(texts: &[String]) -> String {
    let mut slug = String::new();
    for c in texts.join("-").chars() {
        if slug.len() >= MAX_SLUG_LENGTH {
            break;
        }
        if c.is_ascii_alphanumeric() || c == '_' {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_matches('-').to_owned()
}
