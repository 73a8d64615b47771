//! Server events and their log lines: every event is a value, and only this module formats it.
//!
//! Text chosen by clients is escaped first, see `escape`.

mod decision;
mod escape;
mod region;
mod violation;

use std::fmt::{self, Display};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;

use tidegate_gateway::AccessRecord;
use tidegate_limiter::IndivisibleRule;
use tidegate_memory::RestoreSummary;
use tidegate_redis::{FindingSeverity, StoreFinding};
use tidegate_rules::{Consistency, Rule, RuleLimit};
use tidegate_telemetry::trace::ExporterEvent;
use tidegate_telemetry::{BurstEvent, ViolationLogEvent};
use tracing::{debug, error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogLevel};
use crate::rule_changes::RuleChanges;
pub(crate) use decision::DecisionLine;
use escape::escape_text;
pub(crate) use region::RegionEvent;

/// An event of the server.
pub(crate) enum ServerEvent<'a> {
    Started { source: &'a str, rules: usize, version: u64 },
    NoRules { source: &'a str },
    FactsMissing { missing: &'a str, advice: &'a str },
    FactsUnsupplied { missing: &'a str, advice: &'a str },
    ActiveRule { rule: &'a Rule, many: bool },
    NodeJoined { node: &'a str },
    NodeLeft { node: &'a str, how: &'a str },
    NodesCounted { nodes: u32, before: u32 },
    RuleIndivisible { why: &'a IndivisibleRule },
    UpstreamUnreachable { server: &'a str, why: &'a str },
    FewDescriptors { api: &'a str, limit: u64, connections: usize },
    OpenWithoutToken { api: &'a str, at: SocketAddr },
    SnapshotMissing { path: &'a Path },
    SnapshotRestored { path: &'a Path, restored: RestoreSummary },
    SnapshotRefused { path: &'a Path, reason: &'a dyn Display },
    SnapshotWritten { path: &'a Path },
    SnapshotFailed { path: &'a Path, reason: &'a dyn Display },
    Reloaded { source: &'a str, version: u64, changes: &'a RuleChanges },
    ReloadUnchanged { source: &'a str },
    ReloadRefused { source: &'a str, reason: &'a dyn Display },
    SectionChanged { source: &'a str },
    SeedFileDiffers { source: &'a str, database: &'a str, why: &'a str },
    DatabaseIgnored { path: &'a Path, source: &'a str },
    RulesFromCache { path: &'a Path, version: u64, why: &'a dyn Display },
    CacheWriteFailed { why: &'a dyn Display },
    VersionRefused { version: u64, why: &'a dyn Display },
    DatabaseUnreachable { why: &'a dyn Display },
    DatabaseRecovered,
    DatabaseNotClosed { why: &'a dyn Display },
    ViolationsDropped { count: u64 },
    Decision(DecisionLine<'a>),
    Violation(ViolationLogEvent<'a>),
    CollectorStatus(ExporterEvent<'a>),
    Burst { burst: &'a BurstEvent, others: u64 },
    CertificateReplaced { path: &'a Path },
    CertificateRefused { path: &'a Path, reason: &'a dyn Display },
    StoreUnreachable { server: &'a str, why: &'a str },
    StoreRecovered { server: &'a str },
    UnitsLeased { rule: &'a str, most: u32, granted: Option<u32>, took_us: u64 },
    CountersFlushed { counters: usize, answered: usize, units: u64, took_us: u64 },
    StoreFinding { finding: &'a StoreFinding },
    SecretUnset,
    RequestServed { access: &'a AccessRecord, client: &'a str },
    SocketsUnused { count: usize },
    HandoverStarted { successor: u32 },
    HandoverInProgress,
    HandoverFailed { reason: &'a dyn Display },
    PredecessorStopped { predecessor: i32 },
    Draining { signal: &'a str },
    Stopped,
    StoppedForcibly { signal: &'a str },
}

impl ServerEvent<'_> {
    /// Writes the log line.
    pub(crate) fn log(self) {
        match self {
            Self::Started { source, rules, version } => {
                let version = format_version(version);
                info!(%source, rules, %version, "rules loaded");
            }
            Self::NoRules { source } => {
                warn!(%source, "no active rules: every request is allowed");
            }
            Self::FactsMissing { missing, advice } => {
                error!(%missing, %advice, "rules use facts that requests do not supply");
            }
            Self::FactsUnsupplied { missing, advice } => {
                warn!(%missing, %advice, "rules use facts that no `identity` entry supplies");
            }
            Self::ActiveRule { rule, many } => log_rule(rule, many),
            Self::NodeJoined { node } => info!(%node, "node joined"),
            Self::NodeLeft { node, how } => warn!(%node, %how, "node left"),
            Self::NodesCounted { nodes, before } => {
                let change = if nodes > before { "joined" } else { "left" };
                info!(nodes, before, "a node sharing the store {change}");
            }
            Self::RuleIndivisible { why } => warn!(rule = %why.rule, "{why}"),
            Self::UpstreamUnreachable { server, why } => warn!(
                %server, %why,
                "upstream server unreachable; requests to it are answered with 502 until it responds"
            ),
            Self::FewDescriptors { api, limit, connections } => warn!(
                api,
                limit,
                connections,
                "few file descriptors: further connections have to wait; raise the hard limit of open files"
            ),
            Self::OpenWithoutToken { api, at } => warn!(
                %api, %at,
                "the listener is reachable from other machines and no --admin-token-file is set: \
                 they can check limits, but not reset, refund, peek or explain"
            ),
            Self::SnapshotMissing { path } => {
                info!(path = %path.display(), "no snapshot yet; starting with empty counters");
            }
            Self::SnapshotRestored { path, restored: RestoreSummary { keys, skipped } } => {
                info!(path = %path.display(), keys, skipped, "counters restored");
            }
            Self::SnapshotRefused { path, reason } => warn!(
                path = %path.display(), %reason,
                "the snapshot cannot be used; starting with empty counters"
            ),
            Self::SnapshotWritten { path } => {
                debug!(path = %path.display(), "snapshot written");
            }
            Self::SnapshotFailed { path, reason } => {
                error!(path = %path.display(), %reason, "cannot write the snapshot");
            }
            Self::Reloaded { source, version, changes } => {
                info!(%source, version = %format_version(version), %changes, "rules reloaded");
            }
            Self::ReloadUnchanged { source } => info!(%source, "rules read again; nothing changed"),
            Self::ReloadRefused { source, reason } => error!(
                %source, reason = %TrimmedDisplay(reason),
                "rules not reloaded; the previous rules stay active"
            ),
            Self::SectionChanged { source } => {
                warn!(%source, "changes under `server:` take effect after a restart");
            }
            Self::SeedFileDiffers { source, database, why } => {
                warn!(%source, %database, %why, "the rules come from the database, not from the file");
            }
            Self::DatabaseIgnored { path, source } => warn!(
                path = %path.display(), rules = %source,
                "the database next to the file is ignored, because the rules come from the file; to \
                 use the database, start with --rules-db sqlite:PATH, otherwise move it away"
            ),
            Self::RulesFromCache { path, version, why } => warn!(
                path = %path.display(), version, %why,
                "the rules database is unavailable; starting with this node's local copy of the rules"
            ),
            Self::CacheWriteFailed { why } => {
                error!(%why, "cannot write the local copy of the rules, which a start without the database needs");
            }
            Self::VersionRefused { version, why } => error!(
                version, why = %TrimmedDisplay(why),
                "a version of the rules cannot be installed; the previous version stays active"
            ),
            Self::DatabaseUnreachable { why } => {
                warn!(%why, "the rules database is unavailable; the active rules stay in use");
            }
            Self::DatabaseRecovered => info!("the rules database answers again"),
            Self::DatabaseNotClosed { why } => warn!(
                %why,
                "the rules database was not closed cleanly; when copying it, also copy its -wal file"
            ),
            Self::ViolationsDropped { count } => {
                warn!(
                    count,
                    "violations dropped since the start, because the queue was full or the database was down"
                );
            }
            Self::Decision(line) => decision::log_decision(&line),
            Self::Violation(event) => violation::log_violation(event),
            Self::CollectorStatus(ExporterEvent::CollectorLost { why }) => {
                warn!(
                    %why,
                    "the collector does not accept traces; spans are queued, and dropped when \
                     the queue is full"
                );
            }
            Self::CollectorStatus(ExporterEvent::CollectorRecovered) => {
                info!("the collector accepts traces again");
            }
            Self::Burst { burst: BurstEvent { rule, key, client, rate, mean, .. }, others } => {
                let client = client.as_deref().unwrap_or("-");
                warn!(%rule, %key, %client, rate, mean, others, "burst of requests for one key");
            }
            Self::CertificateReplaced { path } => {
                info!(path = %path.display(), "certificate replaced");
            }
            Self::CertificateRefused { path, reason } => error!(
                path = %path.display(), reason = %TrimmedDisplay(reason),
                "certificate not replaced; the current one stays in use"
            ),
            Self::StoreUnreachable { server, why } => warn!(
                %server, %why,
                "the store does not answer; each rule's on_fail applies until it does"
            ),
            Self::StoreRecovered { server } => info!(%server, "the store answers again"),
            Self::UnitsLeased { rule, most, granted: Some(granted), took_us } => {
                debug!(%rule, most, granted, took_us, "units leased");
            }
            Self::UnitsLeased { rule, most, granted: None, took_us } => {
                debug!(%rule, most, took_us, "no units leased: the store did not answer");
            }
            Self::CountersFlushed { counters, answered, units, took_us } => {
                debug!(counters, answered, units, took_us, "counters flushed");
            }
            Self::StoreFinding {
                finding: StoreFinding { severity: weight, server, what, advice },
            } => {
                if *weight == FindingSeverity::Error {
                    error!(%server, %advice, "the store: {what}");
                } else {
                    warn!(%server, %advice, "the store: {what}");
                }
            }
            Self::SecretUnset => warn!(
                "no --key-secret-file is set: anyone who can read the store, the rules database \
                 or the log can guess the clients behind the hashes; set the same file on all nodes"
            ),
            Self::RequestServed { access, client } => {
                let AccessRecord { id, method, path, status, bytes, elapsed: took, .. } = access;
                let took_us = took.as_micros();
                let (path, id) = (escape_text(path), escape_text(id.as_deref().unwrap_or("-")));
                let (path, id) = (&*path, &*id);
                info!(%client, %method, path, status, bytes, took_us, id, "answered");
            }
            Self::SocketsUnused { count } => {
                warn!(
                    count,
                    "inherited sockets left unused, because no listener is configured for them"
                );
            }
            Self::HandoverStarted { successor } => {
                info!(successor, "SIGUSR2: starting a new process with the listening sockets");
            }
            Self::HandoverInProgress => warn!("SIGUSR2: a new process is already starting"),
            Self::HandoverFailed { reason } => {
                error!(%reason, "cannot start a new process; this one continues");
            }
            Self::PredecessorStopped { predecessor } => {
                info!(predecessor, "took over; the old process finishes its in-flight requests");
            }
            Self::Draining { signal } => {
                info!(%signal, "stopping after in-flight requests are answered");
            }
            Self::Stopped => info!("stopped"),
            Self::StoppedForcibly { signal } => {
                warn!(%signal, "second signal: stopping immediately, in-flight requests are lost");
            }
        }
    }
}

/// Logs a rule that is loaded at startup; at level debug if there are many.
fn log_rule(rule: &Rule, many: bool) {
    let (id, key_by) = (rule.id(), rule.key_by().collect::<Vec<_>>().join(":"));
    let key_by = if key_by.is_empty() { "global" } else { &key_by };
    let (limit, algorithm) = match rule.limit() {
        RuleLimit::Policy(policy) => {
            let quota = policy.quota();
            let burst = quota.burst.map(|burst| format!(" burst {burst}")).unwrap_or_default();
            let limit = format!("{}/{}{burst}", quota.requests, quota.window);
            (limit, policy.algorithm().name())
        }
        RuleLimit::Unlimited => ("unlimited".to_owned(), "none"),
        RuleLimit::Deny { .. } => ("deny".to_owned(), "none"),
    };
    let mode = rule.mode().name();
    let active = rule.is_active();
    let consistency =
        (*rule.consistency() != Consistency::Exact).then(|| rule.consistency().name());
    if many {
        debug!(rule = %id, %limit, %algorithm, %mode, %key_by, consistency, active, "rule");
    } else {
        info!(rule = %id, %limit, %algorithm, %mode, %key_by, consistency, active, "rule");
    }
}

/// Formats a rule set's version as shown everywhere.
fn format_version(version: u64) -> String {
    format!("{version:016x}")
}

/// Displays a multi-line report without its final newline.
struct TrimmedDisplay<'a>(&'a dyn Display);

impl Display for TrimmedDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end())
    }
}

/// Sends the log lines of the process to stderr.
pub(crate) fn init_logging(format: LogFormat, level: LogLevel) {
    // sqlx is limited to errors because our own events already report lost connections, once.
    let filter = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn,sqlx=error",
        LogLevel::Info => "info,sqlx=error",
        // The file watcher logs a line for each write into a watched folder. If the log file is in
        // that folder, each line would cause the next.
        LogLevel::Debug => "debug,notify=info",
        LogLevel::Trace => "trace,notify=info",
    };
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::new(filter));
    // Fails only if logging was already initialized in this process; then it works already.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Pretty => {
            let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colours = std::io::stderr().is_terminal() && !quiet;
            lines.with_ansi(colours).with_target(false).try_init()
        }
    };
}
