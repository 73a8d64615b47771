//! What the process tells of itself: every event is a value, and this is the one place that turns
//! it into a log line.
//!
//! What a client chose is never written as it is: see `escaped`.

mod escaped;
mod violation;

use std::fmt::{self, Display};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;

use tidegate_control::{Burst, Said};
use tidegate_edge::gateway::Access;
use tidegate_edge::trace::News;
use tidegate_memory::Restored;
use tidegate_redis::{Finding, Weight};
use tidegate_rules::{Limit, Rule};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::changes::Changes;
use crate::config::{LogFormat, LogLevel};
use escaped::escaped;

/// Something that happened.
pub(crate) enum Event<'a> {
    Started { source: &'a str, rules: usize, version: u64 },
    NoRules { source: &'a str },
    FactsMissing { missing: &'a str, advice: &'a str },
    FactsUnsupplied { missing: &'a str, advice: &'a str },
    RuleInForce { rule: &'a Rule, many: bool },
    NodeJoined { node: &'a str },
    NodeLeft { node: &'a str, how: &'a str },
    NodesCounted { nodes: u32, before: u32 },
    UpstreamUnreachable { server: &'a str, why: &'a str },
    FewDescriptors { door: &'a str, limit: u64, connections: usize },
    OpenWithoutToken { door: &'a str, at: SocketAddr },
    SnapshotMissing { path: &'a Path },
    SnapshotRestored { path: &'a Path, restored: Restored },
    SnapshotRefused { path: &'a Path, reason: &'a dyn Display },
    SnapshotWritten { path: &'a Path },
    SnapshotFailed { path: &'a Path, reason: &'a dyn Display },
    Reloaded { source: &'a str, version: u64, changes: &'a Changes },
    ReloadUnchanged { source: &'a str },
    ReloadRefused { source: &'a str, reason: &'a dyn Display },
    SectionChanged { source: &'a str },
    FileDiffers { source: &'a str, database: &'a str, why: &'a str },
    DatabaseIgnored { path: &'a Path, source: &'a str },
    RulesFromCopy { path: &'a Path, version: u64, why: &'a dyn Display },
    CopyFailed { why: &'a dyn Display },
    VersionRefused { version: u64, why: &'a dyn Display },
    DatabaseLost { why: &'a dyn Display },
    DatabaseBack,
    DatabaseNotClosed { why: &'a dyn Display },
    ViolationsLost { count: u64 },
    Violation(Said<'a>),
    Collector(News<'a>),
    Burst { burst: &'a Burst, others: u64 },
    CertificateReplaced { path: &'a Path },
    CertificateRefused { path: &'a Path, reason: &'a dyn Display },
    StoreLost { server: &'a str, why: &'a str },
    StoreBack { server: &'a str },
    StoreAdvice { finding: &'a Finding },
    SecretUnset,
    Answered { access: &'a Access, client: &'a str },
    SocketsLeft { count: usize },
    HandingOver { successor: u32 },
    HandOverAgain,
    HandOverFailed { reason: &'a dyn Display },
    Relieved { predecessor: i32 },
    Draining { signal: &'a str },
    Stopped,
    StoppedAtOnce { signal: &'a str },
}

impl Event<'_> {
    /// Writes the log line.
    pub(crate) fn tell(self) {
        match self {
            Self::Started { source, rules, version } => {
                let version = version_name(version);
                info!(%source, rules, %version, "rules in force");
            }
            Self::NoRules { source } => {
                warn!(%source, "there are no rules: every request passes");
            }
            Self::FactsMissing { missing, advice } => {
                error!(%missing, %advice, "rules name facts that requests do not have");
            }
            Self::FactsUnsupplied { missing, advice } => {
                warn!(%missing, %advice, "rules name facts that no `identity` entry supplies");
            }
            Self::RuleInForce { rule, many } => rule_line(rule, many),
            Self::NodeJoined { node } => info!(%node, "a node joined"),
            Self::NodeLeft { node, how } => warn!(%node, %how, "a node left"),
            Self::NodesCounted { nodes, before } => {
                let change = if nodes > before { "joined" } else { "left" };
                info!(nodes, before, "a node that shares the store {change}");
            }
            Self::UpstreamUnreachable { server, why } => warn!(
                %server, %why,
                "the upstream cannot be reached: requests to it are answered with 502 until it can"
            ),
            Self::FewDescriptors { door, limit, connections } => warn!(
                door,
                limit,
                connections,
                "few file descriptors: others wait to be accepted; raise the hard limit of open files"
            ),
            Self::OpenWithoutToken { door, at } => warn!(
                %door, %at,
                "the door is open to other machines and no --admin-token-file is set: \
                 they may check, but not reset, refund, peek or explain"
            ),
            Self::SnapshotMissing { path } => {
                info!(path = %path.display(), "no snapshot yet, starting with fresh counters");
            }
            Self::SnapshotRestored { path, restored: Restored { keys, left_out } } => {
                info!(path = %path.display(), keys, left_out, "counters restored");
            }
            Self::SnapshotRefused { path, reason } => warn!(
                path = %path.display(), %reason,
                "the snapshot cannot be used, starting with fresh counters"
            ),
            Self::SnapshotWritten { path } => {
                tracing::debug!(path = %path.display(), "snapshot written");
            }
            Self::SnapshotFailed { path, reason } => {
                error!(path = %path.display(), %reason, "the snapshot could not be written");
            }
            Self::Reloaded { source, version, changes } => {
                info!(%source, version = %version_name(version), %changes, "rules reloaded");
            }
            Self::ReloadUnchanged { source } => info!(%source, "rules read again, nothing changed"),
            Self::ReloadRefused { source, reason } => error!(
                %source, reason = %Trimmed(reason),
                "rules not reloaded, the last good ones stay in force"
            ),
            Self::SectionChanged { source } => {
                warn!(%source, "what changed under `server:` takes effect at the next start");
            }
            Self::FileDiffers { source, database, why } => {
                warn!(%source, %database, %why, "the rules are in the database, not in the file");
            }
            Self::DatabaseIgnored { path, source } => warn!(
                path = %path.display(), rules = %source,
                "the database beside the file is not used, the rules come from the file; to use \
                 the database, start with --rules-db sqlite:PATH, otherwise move it away"
            ),
            Self::RulesFromCopy { path, version, why } => warn!(
                path = %path.display(), version, %why,
                "the rules database is gone: starting with the copy of this node"
            ),
            Self::CopyFailed { why } => {
                error!(%why, "the copy of the rules for the next start could not be written");
            }
            Self::VersionRefused { version, why } => error!(
                version, why = %Trimmed(why),
                "a version of the rules cannot come into force, the last good one stays"
            ),
            Self::DatabaseLost { why } => {
                warn!(%why, "the rules database is gone: the rules in force stay");
            }
            Self::DatabaseBack => info!("the rules database answers again"),
            Self::DatabaseNotClosed { why } => warn!(
                %why,
                "the rules database was not closed in order: copy its -wal file with it"
            ),
            Self::ViolationsLost { count } => {
                warn!(
                    count,
                    "violations were dropped since the start: there was no room, or no database"
                );
            }
            Self::Violation(said) => violation::tell(said),
            Self::Collector(News::Lost { why }) => {
                warn!(%why, "the collector takes no traces: they wait, and are dropped when they are too many");
            }
            Self::Collector(News::Back) => info!("the collector takes traces again"),
            Self::Burst { burst: Burst { rule, key, who, rate, mean, .. }, others } => {
                let who = who.as_deref().unwrap_or("-");
                warn!(%rule, %key, %who, rate, mean, others, "requests of a key come in a burst");
            }
            Self::CertificateReplaced { path } => {
                info!(path = %path.display(), "the certificate was replaced");
            }
            Self::CertificateRefused { path, reason } => error!(
                path = %path.display(), reason = %Trimmed(reason),
                "the certificate was not replaced, the one in use stays"
            ),
            Self::StoreLost { server, why } => warn!(
                %server, %why,
                "the store does not answer: each rule follows its on_fail until it does"
            ),
            Self::StoreBack { server } => info!(%server, "the store answers again"),
            Self::StoreAdvice { finding: Finding { weight, server, what, advice } } => {
                if *weight == Weight::Error {
                    error!(%server, %advice, "the store: {what}");
                } else {
                    warn!(%server, %advice, "the store: {what}");
                }
            }
            Self::SecretUnset => warn!(
                "no --key-secret-file is set: who can read the store, the rules database or the log \
                 can guess the clients behind the hashes; set the same one on all nodes"
            ),
            Self::Answered { access, client } => {
                let Access { id, method, path, status, bytes, took, .. } = access;
                let took_us = took.as_micros();
                let (path, id) = (escaped(path), escaped(id.as_deref().unwrap_or("-")));
                let (path, id) = (&*path, &*id);
                info!(%client, %method, path, status, bytes, took_us, id, "answered");
            }
            Self::SocketsLeft { count } => {
                warn!(count, "sockets were handed to us that no listener is configured for");
            }
            Self::HandingOver { successor } => {
                info!(successor, "SIGUSR2: a new process is starting with our sockets");
            }
            Self::HandOverAgain => warn!("SIGUSR2: a new process is starting already"),
            Self::HandOverFailed { reason } => {
                error!(%reason, "no new process could be started, this one goes on");
            }
            Self::Relieved { predecessor } => {
                info!(predecessor, "took over; the old process answers what it has under way");
            }
            Self::Draining { signal } => {
                info!(%signal, "stopping: requests under way are answered first");
            }
            Self::Stopped => info!("stopped"),
            Self::StoppedAtOnce { signal } => {
                warn!(%signal, "a second signal: stopping at once, requests under way are lost");
            }
        }
    }
}

/// A line for a rule that comes into force at the start; for people who look for it where there are
/// many.
fn rule_line(rule: &Rule, many: bool) {
    let (id, key_by) = (rule.id(), rule.key_by().collect::<Vec<_>>().join(":"));
    let key_by = if key_by.is_empty() { "global" } else { &key_by };
    let (limit, algorithm) = match rule.limit() {
        Limit::Policy(policy) => {
            let quota = policy.quota();
            let burst = quota.burst.map(|burst| format!(" burst {burst}")).unwrap_or_default();
            let limit = format!("{}/{}{burst}", quota.requests, quota.window);
            (limit, policy.algorithm().name())
        }
        Limit::Unlimited => ("unlimited".to_owned(), "none"),
        Limit::Deny => ("deny".to_owned(), "none"),
    };
    let mode = rule.mode().name();
    let active = rule.is_active();
    if many {
        tracing::debug!(rule = %id, %limit, %algorithm, %mode, %key_by, active, "rule");
    } else {
        info!(rule = %id, %limit, %algorithm, %mode, %key_by, active, "rule");
    }
}

/// A rule set's version as it is shown everywhere.
fn version_name(version: u64) -> String {
    format!("{version:016x}")
}

/// Text without the line end that a report of several lines has.
struct Trimmed<'a>(&'a dyn Display);

impl Display for Trimmed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim_end())
    }
}

/// Sends log lines to stderr, from now on and for the whole process.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    // What the database's client says of lost connections, events of our own say once.
    let filter = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn,sqlx=error",
        LogLevel::Info => "info,sqlx=error",
        // The watcher of files has a line for each write into a watched folder. If the log is there, each
        // of those lines would cause the next.
        LogLevel::Debug => "debug,notify=info",
        LogLevel::Trace => "trace,notify=info",
    };
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::new(filter));
    // Only a second start in one process can fail, and then lines go out already.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Pretty => {
            let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colours = std::io::stderr().is_terminal() && !quiet;
            lines.with_ansi(colours).with_target(false).try_init()
        }
    };
}
