//! A model of the reference server's decisions, written from its known behaviour and sharing no
//! code with Tidegate.
//!
//! The server joins key and value by `_` and looks the result up exactly, then by wildcard in file
//! order, then by key. Windows begin at multiples of their length, and hits count even if they
//! exceed the limit.

use std::collections::{HashMap, HashSet};

use super::generators::{Config, GeneratedLimit, GeneratedNode, GeneratedRequest};

/// Status of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnvoyReferenceStatus {
    /// No limit applies.
    Nothing,
    /// The descriptor was found, but neither it nor any of its children has a limit.
    Exempt,
    Unlimited,
    /// A limit in shadow mode: the descriptor passes regardless of its count.
    Shadow,
    Limited {
        over: bool,
        limit: u32,
        remaining: u32,
    },
}

pub(super) struct EnvoyReferenceServer {
    config: Config,
    /// Hits by counter name and start of the window.
    hits: HashMap<(String, u64), u64>,
}

/// A limit that was found, and the name of its counter.
struct ModelLimit<'c> {
    limit: &'c GeneratedLimit,
    shadow: bool,
    counter: String,
}

enum ModelLookup<'c> {
    None,
    Exempt,
    Limit(ModelLimit<'c>),
}

const SECONDS: [u64; 7] = [1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];

impl EnvoyReferenceServer {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: config.clone(), hits: HashMap::new() }
    }

    pub(super) fn decide(
        &mut self,
        now: u64,
        request: &GeneratedRequest,
    ) -> Vec<EnvoyReferenceStatus> {
        let config = self.config.clone();
        let found: Vec<ModelLookup<'_>> = request
            .descriptors
            .iter()
            .map(|(entries, _)| look_up_limit(&config, request.domain, entries))
            .collect();
        let replaced: HashSet<&str> = found
            .iter()
            .filter_map(
                |found| if let ModelLookup::Limit(found) = found { Some(found) } else { None },
            )
            .flat_map(|found| found.limit.replaces.iter().copied())
            .collect();
        let hits = request
            .descriptors
            .iter()
            .map(|(_, own)| own.unwrap_or(u64::from(request.hits_addend.max(1))));
        let hits: Vec<u64> = hits.collect();
        found
            .into_iter()
            .zip(hits)
            .map(|(found, hits)| match found {
                ModelLookup::None => EnvoyReferenceStatus::Nothing,
                ModelLookup::Exempt => EnvoyReferenceStatus::Exempt,
                ModelLookup::Limit(ModelLimit {
                    limit: GeneratedLimit { unit: None, .. }, ..
                }) => EnvoyReferenceStatus::Unlimited,
                ModelLookup::Limit(found) if replaced.contains(found.limit.name) => {
                    EnvoyReferenceStatus::Nothing
                }
                ModelLookup::Limit(found) => self.count_hits(now, &found, hits),
            })
            .collect()
    }

    fn count_hits(&mut self, now: u64, found: &ModelLimit<'_>, hits: u64) -> EnvoyReferenceStatus {
        let length = SECONDS[found.limit.unit.unwrap()];
        let counted = self.hits.entry((found.counter.clone(), now - now % length)).or_default();
        *counted += hits;
        let limit = found.limit.requests;
        // The reference server lets a peek at a limit of 0 pass. Tidegate refuses it, as
        // docs/import.md says.
        let over = *counted > u64::from(limit) || limit == 0;
        let remaining = if over { 0 } else { limit - u32::try_from(*counted).unwrap() };
        if found.shadow {
            EnvoyReferenceStatus::Shadow
        } else {
            EnvoyReferenceStatus::Limited { over, limit, remaining }
        }
    }
}

fn look_up_limit<'c>(
    config: &'c Config,
    domain: &str,
    entries: &[(&str, &str)],
) -> ModelLookup<'c> {
    let Some(file) = config.iter().find(|file| file.name == domain) else {
        return ModelLookup::None;
    };
    let (mut level, mut counter) = (&file.descriptors, domain.to_owned());
    for (depth, (key, value)) in entries.iter().enumerate() {
        let Some(node) = select_node(level, key, value) else { return ModelLookup::None };
        let named = if node.share { node.value } else { value };
        // Lengths are included because the server's names are ambiguous if values contain `_`.
        counter += &format!("/{}:{key}{}:{named}", key.len(), named.len());
        if !has_limit(node) {
            return ModelLookup::Exempt;
        }
        if depth + 1 == entries.len() {
            return match &node.limit {
                Some(limit) => {
                    ModelLookup::Limit(ModelLimit { limit, shadow: node.shadow, counter })
                }
                None => ModelLookup::None,
            };
        }
        level = &node.children;
    }
    ModelLookup::None
}

fn select_node<'c>(
    level: &'c [GeneratedNode],
    key: &str,
    value: &str,
) -> Option<&'c GeneratedNode> {
    let joined = |node: &GeneratedNode| match node.value {
        "" => node.key.to_owned(),
        value => format!("{}_{value}", node.key),
    };
    let wanted = format!("{key}_{value}");
    let exact = level.iter().find(|node| joined(node) == wanted);
    let mut wild = level.iter().filter(|node| node.value.contains('*'));
    exact
        .or_else(|| wild.find(|node| matches_wildcard(joined(node).as_bytes(), wanted.as_bytes())))
        .or_else(|| level.iter().find(|node| joined(node) == key))
}

fn matches_wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| matches_wildcard(rest, &text[at..])),
        Some((byte, rest)) => text.first() == Some(byte) && matches_wildcard(rest, &text[1..]),
    }
}

fn has_limit(node: &GeneratedNode) -> bool {
    node.limit.is_some() || node.children.iter().any(has_limit)
}
