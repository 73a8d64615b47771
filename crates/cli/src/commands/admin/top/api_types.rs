//! Response types of `/v1/live`, `/v1/top` and `/v1/status`, with the fields that `tidegate top`
//! shows.

use std::collections::BTreeMap;

use serde::Deserialize;

/// All counts since the start of the server, and its state.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveTick {
    pub(super) at_us: u64,
    pub(super) counts: LiveCounts,
    pub(super) process: LiveProcess,
    #[serde(rename = "rule_set")]
    pub(super) rule_source: LiveRuleSource,
}

/// Counts of decisions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveCounts {
    pub(super) decisions: Vec<OutcomeCount>,
    pub(super) duration_us: LiveHistogram,
    pub(super) rules: Vec<LiveRule>,
}

/// The number of decisions with an outcome, by what answered.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OutcomeCount {
    pub(super) answered_by: String,
    pub(super) outcome: String,
    pub(super) count: u64,
}

/// Counts of one rule.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveRule {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) mode: String,
    /// How nodes agree on its counters; missing in responses of earlier versions.
    #[serde(default = "exact")]
    pub(super) consistency: String,
    /// Whether the rule is enabled; missing in responses of earlier versions.
    #[serde(default = "is_active")]
    pub(super) is_active: bool,
    pub(super) max_in_window: Option<u64>,
    pub(super) verdicts: VerdictTotals,
    pub(super) headroom_percent: LiveHistogram,
}

const fn is_active() -> bool {
    true
}

fn exact() -> String {
    EXACT.to_owned()
}

/// The consistency of a rule that the store decides.
pub(super) const EXACT: &str = "exact";

/// What answers without asking the store, while it is available.
const LOCAL_ANSWERS: [&str; 4] = ["lease", "async", "borrowed", "deny_cache"];

/// Number of verdicts of a rule, by kind.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct VerdictTotals {
    pub(super) allow: u64,
    pub(super) deny: u64,
    pub(super) shadow_deny: u64,
    pub(super) warn: u64,
    pub(super) ban: u64,
}

/// A histogram. `counts` has one more bucket than `bounds`, for values above the last bound.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct LiveHistogram {
    pub(super) bounds: Vec<u64>,
    pub(super) counts: Vec<u64>,
    pub(super) sum: u64,
}

/// The process and its store.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveProcess {
    pub(super) node: String,
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) started_us: u64,
    pub(super) status: LiveStatus,
    pub(super) store: String,
    pub(super) servers: Option<LiveServers>,
    /// Missing in responses of earlier versions, and if the node has no region.
    pub(super) regions: Option<LiveRegions>,
}

/// The stores of other regions, and what was borrowed and lent.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveRegions {
    pub(super) region: String,
    pub(super) lenders: Vec<LiveLender>,
    /// By rule ID.
    pub(super) rules: BTreeMap<String, LiveDividedRule>,
}

/// The store of another region.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveLender {
    pub(super) region: String,
    pub(super) state: String,
}

/// A rule that is divided among regions.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LiveDividedRule {
    /// The share of the node's region; missing in responses of earlier versions.
    pub(super) share: Option<String>,
    /// Units that the node borrowed since the start of the server.
    pub(super) granted: u64,
    /// Those of them that it spent on requests.
    pub(super) spent: u64,
    /// What the node's region lent, by borrowing region; missing in responses of earlier versions.
    #[serde(default)]
    pub(super) lent: BTreeMap<String, LiveLentUnits>,
}

/// Units that the node's region lent to another one.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct LiveLentUnits {
    pub(super) granted: u64,
    pub(super) returned: u64,
}

/// The health of the server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveStatus {
    pub(super) status: String,
    pub(super) rules_version: String,
    pub(super) reload_error: Option<String>,
    pub(super) store_error: Option<String>,
}

/// The Redis servers of the store.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveServers {
    pub(super) breakers: Vec<LiveBreaker>,
}

/// The state of the circuit breaker of one Redis server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveBreaker {
    pub(super) server: String,
    pub(super) breaker: String,
}

/// The source of the rules.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveRuleSource {
    pub(super) version: u64,
    pub(super) database: String,
    pub(super) rules: u64,
}

/// The nodes of the fleet (`/v1/status`).
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct NodesResponse {
    pub(super) nodes: Vec<LiveNode>,
}

/// A node that uses the same rules.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveNode {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) behind: bool,
    pub(super) silent: bool,
}

/// The most frequent keys (`/v1/top`).
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LiveKeysResponse {
    pub(super) top: Vec<LiveKey>,
}

/// One key with its estimated count.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveKey {
    pub(super) kind: String,
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) client: Option<String>,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) spread: u64,
}

impl LiveTick {
    /// How regions divide a rule, if they do.
    pub(super) fn divided_rule(&self, rule: &str) -> Option<&LiveDividedRule> {
        self.process.regions.as_ref()?.rules.get(rule)
    }
}

impl LiveDividedRule {
    /// Units of other regions that the node spent; `None` if it borrowed none.
    pub(super) fn borrowed(&self) -> Option<u64> {
        (self.granted > 0).then_some(self.spent)
    }

    /// Units that other regions borrowed and did not return; `None` if they borrowed none.
    pub(super) fn lent(&self) -> Option<u64> {
        let granted: u64 = self.lent.values().map(|units| units.granted).sum();
        let returned: u64 = self.lent.values().map(|units| units.returned).sum();
        (granted > 0).then(|| granted.saturating_sub(returned))
    }
}

impl LiveRegions {
    /// The node's region, and the state of the others.
    pub(super) fn describe(&self) -> String {
        let states =
            self.lenders.iter().map(|lender| format!("{} {}", lender.region, lender.state));
        let states: Vec<String> = states.collect();
        match states.is_empty() {
            true => format!("region {}", self.region),
            false => format!("region {}: {}", self.region, states.join(", ")),
        }
    }

    /// Whether the node can borrow from all regions that it knows.
    pub(super) fn are_usable(&self) -> bool {
        self.lenders.iter().all(|lender| lender.state == "usable")
    }
}

impl LiveNode {
    /// The node's name, rules version and state.
    pub(super) fn describe(&self) -> String {
        let behind = if self.behind { ", behind" } else { "" };
        let silent = if self.silent { ", silent" } else { "" };
        format!("{} has version {}{behind}{silent}", self.name, self.version)
    }
}

impl VerdictTotals {
    /// The number of decisions.
    pub(super) const fn decisions(&self) -> u64 {
        self.allow + self.deny + self.shadow_deny + self.warn + self.ban
    }

    /// The number of refusals, enforced or not.
    pub(super) const fn refused(&self) -> u64 {
        self.deny + self.shadow_deny + self.ban
    }
}

impl LiveCounts {
    /// The number of decisions with an outcome, `allowed` or `refused`.
    pub(super) fn count_outcome(&self, outcome: &str) -> u64 {
        let matching = self.decisions.iter().filter(|entry| entry.outcome == outcome);
        matching.map(|entry| entry.count).sum()
    }

    /// The number of decisions that the node made without asking the store.
    pub(super) fn count_local(&self) -> u64 {
        let is_local = |entry: &&OutcomeCount| LOCAL_ANSWERS.contains(&&*entry.answered_by);
        self.decisions.iter().filter(is_local).map(|entry| entry.count).sum()
    }
}
