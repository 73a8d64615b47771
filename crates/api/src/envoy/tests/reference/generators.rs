//! Random configurations and requests, drawn from few enough keys and values that they often match.

use std::collections::HashSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use tidegate_core::time::Micros;

pub(super) type Config = Vec<GeneratedDomain>;

/// A configuration file.
#[derive(Clone, Debug)]
pub(super) struct GeneratedDomain {
    pub(super) name: &'static str,
    pub(super) descriptors: Vec<GeneratedNode>,
}

#[derive(Clone, Debug)]
pub(super) struct GeneratedNode {
    pub(super) key: &'static str,
    /// Empty matches any value.
    pub(super) value: &'static str,
    pub(super) limit: Option<GeneratedLimit>,
    pub(super) shadow: bool,
    pub(super) share: bool,
    pub(super) children: Vec<GeneratedNode>,
}

#[derive(Clone, Debug)]
pub(super) struct GeneratedLimit {
    /// `None` means unlimited.
    pub(super) unit: Option<usize>,
    pub(super) requests: u32,
    pub(super) name: &'static str,
    pub(super) replaces: Vec<&'static str>,
}

/// Names of units, in the order of the model's `SECONDS`.
pub(super) const UNITS: [&str; 7] = ["second", "Minute", "hour", "DAY", "week", "month", "year"];

const KEYS: [&str; 3] = ["k", "l", "k-l"];
const VALUES: [&str; 9] = ["", "", "x", "xy", "q=1", "x*", "*y", "*", "x*z*"];
const NAMES: [&str; 4] = ["", "one", "two", "three"];

pub(super) fn config() -> impl Strategy<Value = Config> {
    let file = |name| level().prop_map(move |descriptors| GeneratedDomain { name, descriptors });
    (file("d"), file("e")).prop_map(|(d, e)| vec![d, e])
}

fn level() -> impl Strategy<Value = Vec<GeneratedNode>> {
    let leaf = node(Just(Vec::new()).boxed());
    let levels = leaf.prop_recursive(3, 24, 4, |below| {
        node(prop::collection::vec(below, 0..4).prop_map(distinct).boxed())
    });
    prop::collection::vec(levels, 0..7).prop_map(distinct)
}

fn node(below: BoxedStrategy<Vec<GeneratedNode>>) -> impl Strategy<Value = GeneratedNode> {
    let entry = (prop::sample::select(&KEYS[..]), prop::sample::select(&VALUES[..]));
    let limit = prop::option::weighted(0.7, limit());
    (entry, limit, prop::bool::weighted(0.15), any::<bool>(), below).prop_map(
        |((key, value), limit, shadow, share, below)| {
            let share = share && value.contains('*');
            GeneratedNode { key, value, limit, shadow, share, children: below }
        },
    )
}

fn limit() -> impl Strategy<Value = GeneratedLimit> {
    let unit = prop::option::weighted(0.85, 0..UNITS.len());
    let names = prop::collection::vec(prop::sample::select(&NAMES[1..]), 0..2);
    (unit, 0_u32..6, prop::sample::select(&NAMES[..]), names).prop_map(
        |(unit, requests, name, mut replaces)| {
            replaces.retain(|replaced| *replaced != name);
            GeneratedLimit { unit, requests, name, replaces }
        },
    )
}

/// Removes entries with the same key and value on a level: the server rejects those.
fn distinct(mut level: Vec<GeneratedNode>) -> Vec<GeneratedNode> {
    let mut seen = HashSet::new();
    level.retain(|node| seen.insert((node.key, node.value)));
    level
}

impl GeneratedDomain {
    pub(super) fn yaml(&self) -> String {
        let mut text = format!("domain: {}\n", self.name);
        write_level(&self.descriptors, 0, &mut text);
        text
    }
}

fn write_level(level: &[GeneratedNode], depth: usize, text: &mut String) {
    let pad = "  ".repeat(depth * 2);
    if !level.is_empty() {
        writeln!(text, "{pad}descriptors:").unwrap();
    }
    for node in level {
        writeln!(text, "{pad}  - key: {}", node.key).unwrap();
        let mut line =
            |name: &str, value: &str| writeln!(text, "{pad}    {name}: {value}").unwrap();
        if !node.value.is_empty() {
            line("value", &format!("'{}'", node.value));
        }
        if node.shadow {
            line("shadow_mode", "true");
        }
        if node.share {
            line("share_threshold", "true");
        }
        if let Some(limit) = &node.limit {
            line("rate_limit", &limit.yaml());
        }
        write_level(&node.children, depth + 1, text);
    }
}

impl GeneratedLimit {
    fn yaml(&self) -> String {
        let unit =
            self.unit.map_or("unlimited: true".to_owned(), |unit| format!("unit: {}", UNITS[unit]));
        let named = self.replaces.iter().map(|name| format!("{{ name: {name} }}"));
        let replaces = named.collect::<Vec<_>>().join(", ");
        let name =
            if self.name.is_empty() { String::new() } else { format!("name: {}, ", self.name) };
        format!("{{ {name}{unit}, requests_per_unit: {}, replaces: [{replaces}] }}", self.requests)
    }
}

pub(super) type EntryPairs = Vec<(&'static str, &'static str)>;

/// A rate limit request.
#[derive(Clone, Debug)]
pub(super) struct GeneratedRequest {
    pub(super) domain: &'static str,
    pub(super) hits_addend: u32,
    /// Entries, and the descriptor's `hits_addend`.
    pub(super) descriptors: Vec<(EntryPairs, Option<u64>)>,
}

pub(super) fn request() -> impl Strategy<Value = GeneratedRequest> {
    let keys = prop::sample::select(vec!["k", "k", "l", "k-l", "none"]);
    let values = vec!["", "x", "xy", "xay", "y", "q=1", "q", "*", "x*", "xzz", "xz"];
    // Envoy sends no entries if every header of an action is missing (`skip_if_absent`).
    let entries = prop::collection::vec((keys, prop::sample::select(values)), 0..4);
    let descriptor = (entries, prop::option::weighted(0.3, 0_u64..9));
    let descriptors = prop::collection::vec(descriptor, 1..4);
    let domain = prop::sample::select(vec!["d", "d", "d", "e", "f"]);
    (domain, 0_u32..4, descriptors).prop_map(|(domain, hits_addend, descriptors)| {
        GeneratedRequest { domain, hits_addend, descriptors }
    })
}

/// Time until the next request: mostly zero, sometimes long enough to reach a unit's next window.
pub(super) fn pause() -> impl Strategy<Value = Micros> {
    let often = Just(0).boxed();
    let rarely = prop::sample::select(vec![
        300_000,
        1_000_000,
        40_000_000,
        3_600_000_000,
        86_400_000_000,
        604_800_000_000,
    ]);
    prop_oneof![5 => often, 1 => rarely].prop_map(Micros::new)
}
