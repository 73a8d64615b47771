//! The reference server, as far as it decides: written from what is known of it (key and value joined by `_`,
//! looked up exactly, then by wildcard in file order, then by key; windows that begin at multiples of their
//! length; hits that are counted even when they are too many), and from nothing of ours.

use std::collections::{HashMap, HashSet};

use super::random::{Asked, Config, Limit, Node};

/// What is said to one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing limits it.
    Nothing,
    /// It was found, and neither it nor anything below is limited.
    Exempt,
    Unlimited,
    /// It passes, however it stands.
    Shadow,
    Limited {
        over: bool,
        limit: u32,
        remaining: u32,
    },
}

pub(super) struct Server {
    config: Config,
    /// Hits by what the counter is called, and when its window began.
    hits: HashMap<(String, u64), u64>,
}

/// A limit that was found, and what its counter is called.
struct Found<'c> {
    limit: &'c Limit,
    shadow: bool,
    counter: String,
}

enum Lookup<'c> {
    None,
    Exempt,
    Limit(Found<'c>),
}

const SECONDS: [u64; 7] = [1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];

impl Server {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: config.clone(), hits: HashMap::new() }
    }

    pub(super) fn answer(&mut self, now: u64, asked: &Asked) -> Vec<Said> {
        let config = self.config.clone();
        let found: Vec<Lookup<'_>> = asked
            .descriptors
            .iter()
            .map(|(entries, _)| look_up(&config, asked.domain, entries))
            .collect();
        let replaced: HashSet<&str> = found
            .iter()
            .filter_map(|found| if let Lookup::Limit(found) = found { Some(found) } else { None })
            .flat_map(|found| found.limit.replaces.iter().copied())
            .collect();
        let hits = asked
            .descriptors
            .iter()
            .map(|(_, own)| own.unwrap_or(u64::from(asked.hits_addend.max(1))));
        let hits: Vec<u64> = hits.collect();
        found
            .into_iter()
            .zip(hits)
            .map(|(found, hits)| match found {
                Lookup::None => Said::Nothing,
                Lookup::Exempt => Said::Exempt,
                Lookup::Limit(Found { limit: Limit { unit: None, .. }, .. }) => Said::Unlimited,
                Lookup::Limit(found) if replaced.contains(found.limit.name) => Said::Nothing,
                Lookup::Limit(found) => self.count(now, &found, hits),
            })
            .collect()
    }

    fn count(&mut self, now: u64, found: &Found<'_>, hits: u64) -> Said {
        let length = SECONDS[found.limit.unit.unwrap()];
        let counted = self.hits.entry((found.counter.clone(), now - now % length)).or_default();
        *counted += hits;
        let limit = found.limit.requests;
        // A look at a limit of 0 passes there; here it is refused, which docs/import.md says.
        let over = *counted > u64::from(limit) || limit == 0;
        let remaining = if over { 0 } else { limit - u32::try_from(*counted).unwrap() };
        if found.shadow { Said::Shadow } else { Said::Limited { over, limit, remaining } }
    }
}

fn look_up<'c>(config: &'c Config, domain: &str, entries: &[(&str, &str)]) -> Lookup<'c> {
    let Some(file) = config.iter().find(|file| file.name == domain) else { return Lookup::None };
    let (mut level, mut counter) = (&file.descriptors, domain.to_owned());
    for (depth, (key, value)) in entries.iter().enumerate() {
        let Some(node) = choose(level, key, value) else { return Lookup::None };
        let named = if node.share { node.value } else { value };
        // Lengths, because the server's own names are ambiguous where values have a `_`.
        counter += &format!("/{}:{key}{}:{named}", key.len(), named.len());
        if !limited(node) {
            return Lookup::Exempt;
        }
        if depth + 1 == entries.len() {
            return match &node.limit {
                Some(limit) => Lookup::Limit(Found { limit, shadow: node.shadow, counter }),
                None => Lookup::None,
            };
        }
        level = &node.below;
    }
    Lookup::None
}

fn choose<'c>(level: &'c [Node], key: &str, value: &str) -> Option<&'c Node> {
    let joined = |node: &Node| match node.value {
        "" => node.key.to_owned(),
        value => format!("{}_{value}", node.key),
    };
    let wanted = format!("{key}_{value}");
    let exact = level.iter().find(|node| joined(node) == wanted);
    let mut wild = level.iter().filter(|node| node.value.contains('*'));
    exact
        .or_else(|| wild.find(|node| fits(joined(node).as_bytes(), wanted.as_bytes())))
        .or_else(|| level.iter().find(|node| joined(node) == key))
}

fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        Some((byte, rest)) => text.first() == Some(byte) && fits(rest, &text[1..]),
    }
}

fn limited(node: &Node) -> bool {
    node.limit.is_some() || node.below.iter().any(limited)
}
