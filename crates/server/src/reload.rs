//! Applies changed rules while requests run. If the new rules are unusable, the previous ones stay
//! active, and the log and `/readyz` report the error.

mod file_reader;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::key::Secret;
use tidegate_core::store::Store;
use tidegate_limiter::Limiter;
use tidegate_rules::RuleSet;
use tidegate_rulestore::{RuleConfig, RuleManager};
use tidegate_web::ProcessStatus;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::config::PartialSettings;
use crate::error::CommandError;
use crate::file_watcher::FileWatcher;
use crate::missing_facts::ExtractionListeners;
use crate::rule_changes::RuleChanges;
use crate::rule_manager::{DocumentCompiler, RuleSetOrigin, TableError};
use crate::rule_source::DocumentSource;
use crate::telemetry::ServerEvent;
use file_reader::{LastRead, RulesFileContent};

/// Reloads the rules on SIGHUP and on changes of their source.
#[derive(Debug)]
pub(crate) struct Reloader<S, L> {
    pub(crate) source: DocumentSource,
    pub(crate) secret: Secret,
    pub(crate) limiter: Arc<Limiter<S, L>>,
    pub(crate) status: Arc<ProcessStatus>,
    /// Hash of the content read last, valid or not.
    pub(crate) content_hash: Option<u64>,
    /// The key file for token verification, which may change independently.
    pub(crate) key_file: Option<PathBuf>,
    /// The `server:` section that the process was started with.
    pub(crate) section: PartialSettings,
    pub(crate) rule_manager: Arc<RuleManager>,
    pub(crate) extraction: ExtractionListeners,
    pub(crate) origin: RuleSetOrigin,
    /// Notified when a version from the database was installed.
    pub(crate) rules_installed: Arc<Notify>,
}

/// Why rules are reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReloadTrigger {
    /// SIGHUP: reload even if nothing changed, and log the result.
    Signal,
    /// The file may have changed.
    File,
    /// The table may have changed.
    Table,
}

/// Why rules could not be read or installed.
#[derive(Debug)]
enum ReloadError {
    Invalid(CommandError),
    Table(TableError),
    NoRules { rules: usize, empty: EmptyRulesAdvice },
}

/// The source that lost all its rules, and how to remove them on purpose.
#[derive(Clone, Copy, Debug)]
struct EmptyRulesAdvice {
    source: &'static str,
    advice: &'static str,
}

impl ReloadError {
    /// The reason for callers without a token. Names only the locations of the errors.
    fn public_message(&self) -> String {
        match self {
            Self::Invalid(failure) => failure.public_message(),
            Self::Table(error) => error.public_message(),
            Self::NoRules { empty: EmptyRulesAdvice { source, .. }, .. } => {
                format!("the {source} no longer has any rules")
            }
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(failure) => failure.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::NoRules { rules, empty: EmptyRulesAdvice { source, advice } } => {
                write!(
                    f,
                    "the {source} no longer has any rules, which would lift all {rules} limits; {advice}"
                )
            }
        }
    }
}

impl<S: Store + 'static, L: Store + 'static> Reloader<S, L> {
    /// Reloads on SIGHUP and when the file or the table changes; runs until dropped.
    pub(crate) async fn run(mut self, mut hang_up: Signal) {
        let (file_changed, _watching) = spawn_file_watcher(self.source.path());
        self.check_seed().await;
        // The file may have changed between the first read and the start of the watch.
        self.reload(ReloadTrigger::File).await;
        if matches!(self.origin, RuleSetOrigin::Table(..)) {
            self.reload(ReloadTrigger::Table).await;
        }
        let rules_installed = Arc::clone(&self.rules_installed);
        loop {
            let trigger = tokio::select! {
                Some(()) = hang_up.recv() => ReloadTrigger::Signal,
                () = file_changed.notified() => ReloadTrigger::File,
                () = table_changed(&self.origin) => ReloadTrigger::Table,
                () = rules_installed.notified() => {
                    self.check_seed().await;
                    continue;
                }
            };
            self.reload(trigger).await;
        }
    }

    async fn check_seed(&mut self) {
        if let RuleSetOrigin::Database(seed) = &mut self.origin {
            seed.check(&self.rule_manager, &self.status).await;
        }
    }

    async fn reload(&mut self, trigger: ReloadTrigger) {
        let done = match self.origin {
            RuleSetOrigin::Table(..) => self.reload_table(trigger).await,
            RuleSetOrigin::File(_) => self.reload_file(trigger).await,
            RuleSetOrigin::Database(_) => {
                self.reread_seed(trigger).await;
                Ok(())
            }
        };
        if let Err(error) = done {
            self.status.record_reload_failure(error.public_message());
            let name = self.rule_manager.repository().name();
            ServerEvent::ReloadRefused { source: name, reason: &error }.log();
        }
    }

    /// Reads the file; `None` if it is unchanged and the trigger was not a signal.
    async fn read_file(
        &mut self,
        trigger: ReloadTrigger,
    ) -> Option<Result<RulesFileContent, CommandError>> {
        let (source, secret) = (self.source.clone(), self.secret);
        let seen = LastRead { content_hash: self.content_hash, key_file: self.key_file.clone() };
        let always = trigger == ReloadTrigger::Signal;
        // Compiling thousands of rules takes a while, so it must not block the async workers.
        let read = move || file_reader::read_if_changed(&source, secret, &seen, always);
        let (seen, read) = tokio::task::spawn_blocking(read).await.ok()?;
        self.content_hash = seen;
        if let Some(Ok(read)) = &read {
            (self.key_file, self.content_hash) =
                (read.loaded.key_file.clone(), Some(read.loaded.content_hash));
        }
        read
    }

    async fn reload_file(&mut self, trigger: ReloadTrigger) -> Result<(), ReloadError> {
        let Some(read) = self.read_file(trigger).await else { return Ok(()) };
        let read = read.map_err(ReloadError::Invalid)?;
        let config = read.rule_config();
        let empty =
            EmptyRulesAdvice { source: "document", advice: "restart to apply an empty rule set" };
        self.install(read.rules, config, empty).await?;
        self.warn_if_section_changed(&read.loaded.section);
        Ok(())
    }

    /// Rereads the seed file. The database's rules stay active; the file is only compared with
    /// them.
    async fn reread_seed(&mut self, trigger: ReloadTrigger) {
        let read = self.read_file(trigger).await;
        let Some(read) = read else { return };
        if let RuleSetOrigin::Database(seed) = &mut self.origin {
            seed.replace(read.as_ref().map(|read| read.entries.clone()));
        }
        if let Ok(read) = &read {
            self.warn_if_section_changed(&read.loaded.section);
        }
        self.check_seed().await;
        self.rule_manager.sync().await;
    }

    async fn reload_table(&mut self, trigger: ReloadTrigger) -> Result<(), ReloadError> {
        let read = match trigger {
            ReloadTrigger::Table => None,
            ReloadTrigger::File | ReloadTrigger::Signal => self.read_file(trigger).await,
        };
        let changed = read.is_some() || trigger == ReloadTrigger::Signal;
        let file_entries = match read {
            Some(read) => {
                let read = read.map_err(ReloadError::Invalid)?;
                self.warn_if_section_changed(&read.loaded.section);
                read.entries_for_table(&self.source).map_err(ReloadError::Invalid)?
            }
            None => file_reader::non_rule_entries(&self.rule_manager.config()),
        };
        let RuleSetOrigin::Table(_, followed) = &mut self.origin else { return Ok(()) };
        let rows = match followed.read_if_changed(changed).await {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.status.set_reload_error(error.public_message());
                return Ok(());
            }
        };
        let compiler = DocumentCompiler { source: self.source.clone(), secret: self.secret };
        let compiled =
            tokio::task::block_in_place(|| followed.compile(rows, &file_entries, &compiler));
        let (config, rules) = compiled.map_err(ReloadError::Table)?;
        let advice = "set is_active to false in all rows instead, or restart";
        self.install(rules, config.clone(), EmptyRulesAdvice { source: "table", advice }).await?;
        if let RuleSetOrigin::Table(_, followed) = &self.origin {
            followed.write_to_cache(&config).await;
        }
        Ok(())
    }

    /// Installs the rules of a file or a table.
    async fn install(
        &self,
        rules: RuleSet,
        config: RuleConfig,
        empty: EmptyRulesAdvice,
    ) -> Result<(), ReloadError> {
        let (RuleSetOrigin::File(read_only) | RuleSetOrigin::Table(read_only, _)) = &self.origin
        else {
            return Ok(());
        };
        let (name, before) = (self.rule_manager.repository().name(), self.limiter.rules());
        if rules.rules().is_empty() && !before.rules().is_empty() {
            return Err(ReloadError::NoRules { rules: before.rules().len(), empty });
        }
        let (version, changes) = (rules.version(), RuleChanges::compare(&before, &rules));
        let installed = self.limiter.install(rules).await;
        installed.map_err(|error| ReloadError::Invalid(CommandError::Failed(error.to_string())))?;
        read_only.replace(config.clone());
        self.rule_manager.replace_config(config);
        self.status.mark_rules_active(version);
        self.extraction.report(&self.limiter.rules(), &self.status);
        if version == before.version() {
            ServerEvent::ReloadUnchanged { source: name }.log();
        } else {
            ServerEvent::Reloaded { source: name, version, changes: &changes }.log();
        }
        Ok(())
    }

    fn warn_if_section_changed(&self, section: &PartialSettings) {
        if *section != self.section {
            ServerEvent::SectionChanged { source: &self.source.name() }.log();
        }
    }
}

/// Watches a file in a separate task, which ends when the set is dropped. Polling the watcher
/// inside `select!` would lose its debounce wait whenever another branch completes first.
fn spawn_file_watcher(path: Option<&Path>) -> (Arc<Notify>, JoinSet<()>) {
    let (changed, mut tasks) = (Arc::new(Notify::new()), JoinSet::new());
    if let Some(path) = path {
        let (mut watch, changed) = (FileWatcher::new(path), Arc::clone(&changed));
        tasks.spawn(async move {
            loop {
                watch.changed().await;
                changed.notify_one();
            }
        });
    }
    (changed, tasks)
}

async fn table_changed(origin: &RuleSetOrigin) {
    match origin {
        RuleSetOrigin::Table(_, followed) => followed.wait_for_change().await,
        RuleSetOrigin::File(_) | RuleSetOrigin::Database(_) => std::future::pending().await,
    }
}
