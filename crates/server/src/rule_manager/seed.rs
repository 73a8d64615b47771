//! Compares the rules file with the database that it seeded. Once the database exists, the file's
//! rules have no effect, so an edit of the file must produce a warning.

use tidegate_core::key::Secret;
use tidegate_rulestore::{EntryUpdate, RepositoryError, RuleConfig, RuleManager};
use tidegate_web::ProcessStatus;

use crate::error::CommandError;
use crate::rule_source::{DocumentSource, LoadedDocument};
use crate::telemetry::ServerEvent;

/// Author of the version that a file seeds.
pub(super) const AUTHOR: &str = "tidegate";

/// Number of the version that a file seeds.
const SEED_VERSION: u64 = 1;

const DIFFERS_WARNING: &str = "the rules file differs from the rules it seeded the database with, \
    and its rules are not active; to activate them: tidegate rules apply FILE";

/// Compares the file with the seeded version and with the active rules.
#[derive(Debug)]
pub(crate) struct SeedCheck {
    name: String,
    /// The file's entries, or what is wrong with the file; `None` if there is no file.
    file: Option<Result<Vec<EntryUpdate>, CommandError>>,
    /// The seeded version; `None` until it is read from the database.
    seed: Option<RuleConfig>,
    /// The last warning that was logged.
    last_warning: Option<String>,
}

impl SeedCheck {
    pub(super) fn new(source: &DocumentSource, loaded: &LoadedDocument, secret: Secret) -> Self {
        let file = (!source.is_built_in())
            .then(|| loaded.compile(secret).and_then(|rules| loaded.entries(&rules, secret)));
        Self { name: source.name(), file, seed: None, last_warning: None }
    }

    /// Takes over the content of the file after it was read again.
    pub(crate) fn replace(&mut self, file: Result<Vec<EntryUpdate>, &CommandError>) {
        self.file = Some(file.map_err(CommandError::clone));
        // Log again that the file still differs.
        self.last_warning = None;
    }

    /// Reports in the log and in `/readyz` whether the file differs.
    pub(crate) async fn check(&mut self, manager: &RuleManager, status: &ProcessStatus) {
        // The sync loop already reports an unreachable database.
        let Ok(warning) = self.warning(manager).await else { return };
        status.set_rules_warning(warning.clone());
        if let (Some(warning), true) = (&warning, self.last_warning != warning) {
            let invalid = self.file.as_ref().and_then(|file| file.as_ref().err());
            let why = invalid.map_or_else(|| warning.clone(), ToString::to_string);
            let database = manager.repository().name();
            ServerEvent::SeedFileDiffers { source: &self.name, database, why: why.trim_end() }
                .log();
        }
        self.last_warning = warning;
    }

    /// The text for `/readyz`. It gives only the kind and the location of the problem.
    async fn warning(&mut self, manager: &RuleManager) -> Result<Option<String>, RepositoryError> {
        let entries = match &self.file {
            None => return Ok(None),
            Some(Err(failure)) => {
                return Ok(Some(format!(
                    "the rules file is ignored: {}",
                    failure.public_message()
                )));
            }
            Some(Ok(entries)) => entries.clone(),
        };
        if entries.is_empty() || manager.config().matches_document(&entries) {
            return Ok(None);
        }
        let differs =
            !self.load_seed(manager).await?.is_some_and(|seed| seed.matches_document(&entries));
        Ok(differs.then(|| DIFFERS_WARNING.to_owned()))
    }

    /// Loads the version that a file seeded, if there is one.
    async fn load_seed(
        &mut self,
        manager: &RuleManager,
    ) -> Result<Option<&RuleConfig>, RepositoryError> {
        if self.seed.is_none() {
            let versions = manager.repository().history(SEED_VERSION + 1, 1).await?;
            if versions.first().is_some_and(|first| first.author == AUTHOR) {
                let mut seed = RuleConfig::default();
                seed.apply_changes(manager.repository().changes(0, SEED_VERSION).await?);
                self.seed = Some(seed);
            }
        }
        Ok(self.seed.as_ref())
    }
}
