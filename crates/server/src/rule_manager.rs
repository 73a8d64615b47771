//! Compiles and installs the rules of this process. `initial_rules` decides where they come from.

mod initial_rules;
mod seed;
mod table;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_core::time::{Clock as _, SystemClock, Timestamp};
use tidegate_limiter::Limiter;
use tidegate_rules::diagnostic::{Diagnostic, DocumentError};
use tidegate_rules::{Rule, RuleSet};
use tidegate_rulestore::{
    FileAccess, Repository, RuleCompiler, RuleManager, RuleManagerDeps, RuleSink, SyncEvent,
};
use tidegate_telemetry::IdentityPolicy;
use tidegate_web::ProcessStatus;
use tokio::sync::Notify;

use crate::config::Settings;
use crate::error::CommandError;
use crate::missing_facts::ExtractionListeners;
use crate::node;
use crate::rule_changes::RuleChanges;
use crate::rule_source::DocumentSource;
use crate::telemetry::ServerEvent;

pub(crate) use initial_rules::{
    InitialRules, RuleSetOrigin, entries_of_kind, load_initial_rules, unversioned_config,
};
pub(crate) use table::{TableError, require_no_rules};

/// A source of wall-clock time.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The system's wall clock.
pub fn wall_clock() -> WallClock {
    let clock = SystemClock::new();
    Arc::new(move || clock.now())
}

/// Compiles documents for the rule manager in the same way as the configuration file.
#[derive(Clone, Debug)]
pub(crate) struct DocumentCompiler {
    pub(crate) source: DocumentSource,
    pub(crate) secret: Secret,
}

impl RuleCompiler for DocumentCompiler {
    fn compile(&self, document: &str, files: FileAccess) -> Result<RuleSet, DocumentError> {
        let loaded = self.source.file_only().load_from(document.as_bytes(), files);
        loaded.and_then(|loaded| loaded.compile(self.secret)).map_err(|failure| match failure {
            CommandError::InvalidDocument(problems) | CommandError::InvalidLimit(problems) => {
                problems
            }
            CommandError::Rejected(text)
            | CommandError::Usage(text)
            | CommandError::Failed(text) => {
                let problem = Diagnostic {
                    line: 0,
                    column: 0,
                    field: String::new(),
                    found: None,
                    message: text,
                    hint: None,
                    excerpt: None,
                };
                DocumentError { file: self.source.name(), list: vec![problem], omitted: 0 }
            }
        })
    }
}

/// Installs rules from the rule manager in the limiter.
struct LimiterSink<S, L> {
    limiter: Arc<Limiter<S, L>>,
    status: Arc<ProcessStatus>,
    repository: Arc<dyn Repository>,
    extraction: ExtractionListeners,
    /// Notified when a version was installed.
    rules_installed: Arc<Notify>,
}

impl<S: Store + 'static, L: Store + 'static> RuleSink for LimiterSink<S, L> {
    fn install(&self, rules: RuleSet) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let (before, version) = (self.limiter.rules(), rules.version());
            let changes = RuleChanges::compare(&before, &rules);
            self.limiter.install(rules).await.map_err(|error| error.to_string())?;
            self.status.mark_rules_active(version);
            self.extraction.report(&self.limiter.rules(), &self.status);
            ServerEvent::Reloaded { source: self.repository.name(), version, changes: &changes }
                .log();
            if !self.limiter.rules().rules().iter().any(Rule::is_active) {
                ServerEvent::NoRules { source: self.repository.name() }.log();
            }
            Ok(())
        }
        .boxed()
    }

    fn on_event(&self, event: &SyncEvent<'_>) {
        match event {
            SyncEvent::Installed { .. } => self.rules_installed.notify_one(),
            SyncEvent::InstallFailed { version, why } => {
                self.status.record_reload_failure(format!(
                    "version {version} of the rules cannot be installed; see the log for the reason"
                ));
                ServerEvent::VersionRefused { version: *version, why }.log();
            }
            SyncEvent::RepositoryLost { why } => {
                self.status.set_reload_error(
                    "the rules database does not answer; see the log for the reason",
                );
                ServerEvent::DatabaseUnreachable { why }.log();
            }
            SyncEvent::RepositoryRestored => {
                self.status.mark_rules_active(self.limiter.rules().version());
                ServerEvent::DatabaseRecovered.log();
            }
            SyncEvent::NodeJoined { name } => ServerEvent::NodeJoined { node: name }.log(),
            SyncEvent::NodeLeft { name, silent } => {
                let how = if *silent { "it stopped sending heartbeats" } else { "it shut down" };
                ServerEvent::NodeLeft { node: name, how }.log();
            }
            SyncEvent::CacheWriteFailed { why } => ServerEvent::CacheWriteFailed { why }.log(),
        }
    }
}

/// Creates the rule manager for a limiter that already has the initial rules installed.
pub(crate) fn open_manager<S: Store + 'static, L: Store + 'static>(
    initial: InitialRules,
    source: &DocumentSource,
    settings: &Settings,
    limiter: &Arc<Limiter<S, L>>,
    status: &Arc<ProcessStatus>,
    clock: WallClock,
) -> (RuleManager, RuleSetOrigin, Arc<Notify>) {
    let InitialRules { config, repository, origin, cache } = initial;
    let rules_installed = Arc::new(Notify::new());
    let sink = LimiterSink {
        limiter: Arc::clone(limiter),
        status: Arc::clone(status),
        repository: Arc::clone(&repository),
        extraction: ExtractionListeners::from_settings(settings),
        rules_installed: Arc::clone(&rules_installed),
    };
    let deps = RuleManagerDeps {
        repository,
        compiler: Arc::new(DocumentCompiler { source: source.clone(), secret: settings.secret }),
        sink: Arc::new(sink),
        clock,
        secret: settings.secret,
        identities: violation_identities(settings),
        node: node::name(),
        local_cache: cache,
    };
    (RuleManager::new(deps, config), origin, rules_installed)
}

/// How users and addresses of violations are stored.
pub(crate) const fn violation_identities(settings: &Settings) -> IdentityPolicy {
    IdentityPolicy { secret: settings.secret, plain: settings.admin.plain_identities }
}
