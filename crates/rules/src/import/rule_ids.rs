//! Assigns ids to imported rules: readable, unique, and stable as long as the rule's source is
//! unchanged.

use std::collections::HashSet;

use tidegate_core::key::{KeyHasher, Secret};

/// Maximum length of the readable part; an id has at most 128 characters.
const MAX_READABLE_LENGTH: usize = 100;

/// The path of a rule in its file, extended level by level. The readable text may be ambiguous or
/// truncated; the hash is not.
#[derive(Clone)]
pub(super) struct RuleIdPath {
    text: String,
    /// Whether the text contains the whole path unchanged.
    is_complete: bool,
    hash: KeyHasher,
}

/// The ids assigned so far.
#[derive(Debug, Default)]
pub(super) struct IdAllocator {
    taken: HashSet<String>,
}

impl RuleIdPath {
    pub(super) fn new(text: &str) -> Self {
        let name =
            Self { text: String::new(), is_complete: true, hash: KeyHasher::new(Secret::UNSET) };
        name.join("", text)
    }

    /// The path of an element below.
    pub(super) fn join(&self, separator: &str, text: &str) -> Self {
        let mut name = self.clone();
        [separator, text].iter().for_each(|part| name.hash.write_part(part.as_bytes()));
        for c in separator.chars().chain(text.chars()) {
            if name.text.len() >= MAX_READABLE_LENGTH {
                name.is_complete = false;
                break;
            }
            let plain = c.is_ascii_graphic();
            name.is_complete &= plain;
            name.text.push(if plain { c } else { '-' });
        }
        name
    }
}

impl IdAllocator {
    /// Reserves an id from the file; returns whether it is valid and unused.
    pub(super) fn claim(&mut self, id: &str) -> bool {
        let printable = id.bytes().all(|byte| (0x20..=0x7E).contains(&byte));
        let fits = !id.is_empty() && printable && id.trim() == id && id.len() <= 128;
        fits && self.taken.insert(id.to_owned())
    }

    /// Assigns an unused id to the rule with this path.
    pub(super) fn allocate(&mut self, name: &RuleIdPath) -> String {
        let hashed = || format!("{}-{:06x}", name.text, name.hash.finish().lo & 0xFF_FFFF);
        let plain = name.is_complete.then(|| name.text.clone());
        let numbered = (2_u32..).map(|number| format!("{}-{number}", hashed()));
        let mut all = plain.into_iter().chain([hashed()]).chain(numbered);
        // There are more numbers than rules, so an unused id is always found.
        let id = all.find(|id| !self.taken.contains(id)).unwrap_or_default();
        self.taken.insert(id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_ids_are_unique_and_valid() {
        let mut ids = IdAllocator::default();
        assert!(ids.claim("per-ip") && !ids.claim("per-ip") && !ids.claim(" a") && !ids.claim("é"));
        let name = |parts: &[&str]| {
            parts.iter().fold(RuleIdPath::new("edge"), |name, part| name.join("/", part))
        };
        assert_eq!(ids.allocate(&name(&["a=x", "b"])), "edge/a=x/b");
        let other = ids.allocate(&name(&["a=x/b"]));
        assert!(other.starts_with("edge/a=x/b-") && other.len() == 17, "{other}");
        for odd in ["é\n", "", &"long".repeat(99)] {
            let id = ids.allocate(&name(&[odd]));
            assert!(IdAllocator::default().claim(&id), "{id}");
            assert_ne!(ids.allocate(&name(&[odd])), id);
        }
    }
}
