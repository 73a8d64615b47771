//! Changes rules: every edit is validated as a whole, written, and activated on this node. Other
//! nodes follow with [`RuleManager::run`].

mod edit_error;
mod events;
mod export;
mod live_status;
mod sync;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use tidegate_core::key::Secret;
use tidegate_core::time::Timestamp;
use tidegate_rules::RuleSet;
use tidegate_rules::diagnostic::DocumentError;
use tokio::sync::Mutex;

use crate::compile::{FileAccess, RuleCompiler, ValidationError, compile};
use crate::edit::{EntryUpdate, RuleEdit};
use crate::local_cache::LocalCache;
use crate::repository::{Repository, RepositoryError};
use crate::rule_config::RuleConfig;
use export::PROPAGATION_BOUNDS_US;
use sync::{SyncState, next_expiry_micros};
use tidegate_telemetry::IdentityPolicy;
use tidegate_telemetry::ValueHistogram;

pub use edit_error::{ChangeAuthor, CommittedEdit, EditError};
pub use events::{RuleSink, SyncEvent};

/// How often an edit is retried after a version conflict.
const ATTEMPTS: usize = 16;

/// Edits the rules and keeps this node in sync with the repository.
pub struct RuleManager {
    repository: Arc<dyn Repository>,
    compiler: Arc<dyn RuleCompiler>,
    sink: Arc<dyn RuleSink>,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    secret: Secret,
    identities: IdentityPolicy,
    node: String,
    local_cache: Option<LocalCache>,
    /// The active configuration.
    config: ArcSwap<RuleConfig>,
    /// Expiry of the next override, as of compile time. Cached because scanning is O(overrides);
    /// compile-time, so an override that expires mid-sync is not missed.
    next_expiry: AtomicU64,
    /// Held while this node is brought up to date, by one task at a time.
    sync_state: Mutex<SyncState>,
    /// Time from writing a version until it is active on this node.
    propagation: ValueHistogram,
}

/// The dependencies of a [`RuleManager`].
pub struct RuleManagerDeps {
    /// Stores the configurations.
    pub repository: Arc<dyn Repository>,
    /// Compiles documents.
    pub compiler: Arc<dyn RuleCompiler>,
    /// Activates rule sets on this node.
    pub sink: Arc<dyn RuleSink>,
    /// The wall clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The key for hashes of identities.
    pub secret: Secret,
    /// How user ids and addresses of violations are stored.
    pub identities: IdentityPolicy,
    /// This node's name, unique among the nodes that share the repository.
    pub node: String,
    /// The local copy of the rules for the next start.
    pub local_cache: Option<LocalCache>,
}

impl RuleManager {
    /// Creates a manager for a node on which `config` is active.
    #[must_use]
    pub fn new(deps: RuleManagerDeps, config: RuleConfig) -> Self {
        let RuleManagerDeps {
            repository,
            compiler,
            sink,
            clock,
            secret,
            identities,
            node,
            local_cache,
        } = deps;
        // As of the epoch: an override may have expired since the rules were compiled.
        let next_expiry = AtomicU64::new(next_expiry_micros(&config, Timestamp::from_micros(0)));
        let (config, sync_state) = (ArcSwap::from_pointee(config), Mutex::default());
        Self {
            repository,
            compiler,
            sink,
            clock,
            secret,
            identities,
            node,
            local_cache,
            config,
            next_expiry,
            sync_state,
            propagation: ValueHistogram::new(&PROPAGATION_BOUNDS_US),
        }
    }

    /// The repository.
    #[must_use]
    pub fn repository(&self) -> &dyn Repository {
        &*self.repository
    }

    /// Fails if the rules are edited elsewhere.
    ///
    /// # Errors
    /// [`RepositoryError::ReadOnly`], which says what to do instead.
    pub fn check_editable(&self) -> Result<(), RepositoryError> {
        let source = self.repository.source();
        match source.is_editable() {
            true => Ok(()),
            false => {
                Err(RepositoryError::ReadOnly { source, name: self.repository.name().to_owned() })
            }
        }
    }

    /// The active configuration of this node.
    #[must_use]
    pub fn config(&self) -> Arc<RuleConfig> {
        self.config.load_full()
    }

    /// Replaces the active configuration after the rules file changed; files have no versions.
    pub fn replace_config(&self, config: RuleConfig) {
        self.config.store(Arc::new(config));
    }

    /// The key for hashes of identities.
    #[must_use]
    pub const fn secret(&self) -> Secret {
        self.secret
    }

    /// How user ids and addresses of violations are stored.
    #[must_use]
    pub const fn identities(&self) -> IdentityPolicy {
        self.identities
    }

    /// This node's name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The wall clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Compiles a configuration on behalf of a request. Thousands of rules take a while, so this
    /// runs on a blocking thread.
    ///
    /// # Errors
    /// All validation errors.
    pub async fn compile(&self, config: Arc<RuleConfig>) -> Result<RuleSet, Vec<ValidationError>> {
        self.compile_at(config, FileAccess::Configured, self.now()).await
    }

    async fn compile_at(
        &self,
        config: Arc<RuleConfig>,
        files: FileAccess,
        now: Timestamp,
    ) -> Result<RuleSet, Vec<ValidationError>> {
        let compiler = Arc::clone(&self.compiler);
        let compiled =
            tokio::task::spawn_blocking(move || compile(&config, &*compiler, files, now)).await;
        compiled
            .unwrap_or_else(|error| Err(vec![ValidationError::for_document(&error.to_string())]))
    }

    /// Compiles a document sent by a request and passes the rules to `read`.
    ///
    /// # Errors
    /// All problems found in the document.
    pub async fn compile_document<T: Send + 'static>(
        &self,
        document: String,
        read: impl FnOnce(&str, &RuleSet) -> Result<T, DocumentError> + Send + 'static,
    ) -> Result<T, DocumentError> {
        let compiler = Arc::clone(&self.compiler);
        let compiled = tokio::task::spawn_blocking(move || {
            let rules = compiler.compile(&document, FileAccess::Configured)?;
            read(&document, &rules)
        });
        // The task is never cancelled, so this is a panic, which has already been reported.
        compiled.await.unwrap_or_else(|_| {
            Err(DocumentError { file: String::new(), list: Vec::new(), omitted: 1 })
        })
    }

    /// Compiles the rules of a document without reading the files it names.
    ///
    /// # Errors
    /// All problems found in the document.
    pub fn compile_rules(&self, document: &str) -> Result<RuleSet, DocumentError> {
        self.compiler.compile(document, FileAccess::None)
    }

    /// Creates a version with the updates that `make` returns for the latest configuration, and
    /// activates it on this node. After a version conflict, `make` is called again.
    ///
    /// # Errors
    /// The reason why nothing was changed.
    pub async fn edit(
        &self,
        change: &ChangeAuthor,
        make: impl Fn(&RuleConfig) -> Result<Vec<EntryUpdate>, EditError>,
    ) -> Result<CommittedEdit, EditError> {
        let mut conflict = RepositoryError::VersionConflict { head: 0 };
        for _ in 0..ATTEMPTS {
            let config = self.latest_config().await.map_err(EditError::Repository)?;
            let entries = make(&config)?;
            self.compile(Arc::new(config.with_updates(&entries)))
                .await
                .map_err(EditError::Invalid)?;
            let ChangeAuthor { author, reason } = change.clone();
            let edit = RuleEdit { author, reason, at: self.now(), entries };
            match self.repository.commit(config.version(), &edit).await {
                Ok(version) => {
                    // The version is committed. If this node cannot activate it, `sync` reports
                    // that and the sync loop retries.
                    self.sync().await;
                    return Ok(CommittedEdit { version, config: self.config() });
                }
                Err(error @ RepositoryError::VersionConflict { .. }) => conflict = error,
                Err(other) => return Err(EditError::Repository(other)),
            }
        }
        Err(EditError::Repository(conflict))
    }

    /// The latest configuration in the repository, whether or not it is active on this node.
    ///
    /// # Errors
    /// Fails if the repository does not answer.
    pub async fn latest_config(&self) -> Result<Arc<RuleConfig>, RepositoryError> {
        let config = self.config();
        let head = self.repository.head().await?;
        if head == config.version() {
            return Ok(config);
        }
        if head < config.version() {
            // The database was replaced by an older one.
            return self.repository.load_config().await.map(Arc::new);
        }
        let changes = self.repository.changes(config.version(), head).await?;
        let mut latest = RuleConfig::clone(&config);
        latest.apply_changes(changes);
        Ok(Arc::new(latest))
    }
}

impl fmt::Debug for RuleManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleManager").field("repository", &self.repository).finish_non_exhaustive()
    }
}
