//! What a server tells whoever watches it: `/v1/live`, and what is asked for now and then, as far as it is shown here.
//! Only read, nothing is worked out.

use serde::Deserialize;

/// Everything that is counted since the start of the server, and how it is.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveTick {
    pub(super) at_us: u64,
    pub(super) counts: LiveCounts,
    pub(super) process: LiveProcess,
    pub(super) office: LiveRuleSource,
}

/// What was counted of decisions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveCounts {
    pub(super) decisions: Vec<OutcomeCount>,
    pub(super) duration_us: LiveHistogram,
    pub(super) rules: Vec<LiveRule>,
}

/// So many decisions of a kind.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OutcomeCount {
    pub(super) outcome: String,
    pub(super) count: u64,
}

/// What a rule said.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveRule {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) mode: String,
    /// Whether it is switched on; servers of earlier versions do not say.
    #[serde(default = "is_active")]
    pub(super) is_active: bool,
    pub(super) most_in_window: Option<u64>,
    pub(super) verdicts: VerdictTotals,
    pub(super) headroom_percent: LiveHistogram,
}

const fn is_active() -> bool {
    true
}

/// How often it said what.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct VerdictTotals {
    pub(super) allow: u64,
    pub(super) deny: u64,
    pub(super) shadow_deny: u64,
    pub(super) warn: u64,
    pub(super) ban: u64,
}

/// A distribution in classes, the last of which exceeds all bounds.
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
}

/// Whether it is well.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveStatus {
    pub(super) status: String,
    pub(super) rules_version: String,
    pub(super) reload_error: Option<String>,
    pub(super) store_error: Option<String>,
}

/// The servers that counters are kept in.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveServers {
    pub(super) breakers: Vec<LiveBreaker>,
}

/// Whether one of them is asked.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveBreaker {
    pub(super) server: String,
    pub(super) breaker: String,
}

/// Where the rules are from.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveRuleSource {
    pub(super) version: u64,
    pub(super) database: String,
    pub(super) rules: u64,
}

/// What is known of all nodes (`/v1/status`).
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct NodesResponse {
    pub(super) nodes: Vec<LiveNode>,
}

/// A node that follows the same rules.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveNode {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) behind: bool,
    pub(super) silent: bool,
}

/// The keys that occur most (`/v1/top`).
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LiveKeysResponse {
    pub(super) top: Vec<LiveKey>,
}

/// One of them.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LiveKey {
    pub(super) kind: String,
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) who: Option<String>,
    pub(super) count: u64,
    pub(super) error: u64,
    pub(super) spread: u64,
}

impl LiveNode {
    /// It and which rules it has.
    pub(super) fn describe(&self) -> String {
        let behind = if self.behind { ", behind" } else { "" };
        let silent = if self.silent { ", silent" } else { "" };
        format!("{} has version {}{behind}{silent}", self.name, self.version)
    }
}

impl VerdictTotals {
    /// How often it was asked.
    pub(super) const fn decisions(&self) -> u64 {
        self.allow + self.deny + self.shadow_deny + self.warn + self.ban
    }

    /// How often it said no, whether or not that counted.
    pub(super) const fn refused(&self) -> u64 {
        self.deny + self.shadow_deny + self.ban
    }
}

impl LiveCounts {
    /// How many decisions had an outcome, `allowed` or `refused`.
    pub(super) fn count_outcome(&self, outcome: &str) -> u64 {
        let of = self.decisions.iter().filter(|one| one.outcome == outcome);
        of.map(|one| one.count).sum()
    }
}
