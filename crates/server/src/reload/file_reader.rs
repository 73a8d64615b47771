//! Rereads the rules file. Unchanged content is skipped, except on SIGHUP.

use std::path::PathBuf;

use tidegate_core::key::Secret;
use tidegate_rules::RuleSet;
use tidegate_rulestore::{EntryKind, EntryUpdate, FileAccess, RuleConfig};

use crate::error::CommandError;
use crate::rule_manager;
use crate::rule_source::{self, DocumentSource, LoadedDocument};

/// The content of the rules file.
pub(super) struct RulesFileContent {
    pub(super) loaded: LoadedDocument,
    pub(super) rules: RuleSet,
    pub(super) entries: Vec<EntryUpdate>,
}

/// What was read last.
pub(super) struct LastRead {
    pub(super) content_hash: Option<u64>,
    pub(super) key_file: Option<PathBuf>,
}

impl RulesFileContent {
    /// All entries, as an unversioned configuration.
    pub(super) fn rule_config(&self) -> RuleConfig {
        rule_manager::unversioned_config(self.entries.clone())
    }

    /// The entries to combine with the rules of a table.
    ///
    /// # Errors
    /// When the file contains rules.
    pub(super) fn entries_for_table(
        self,
        source: &DocumentSource,
    ) -> Result<Vec<EntryUpdate>, CommandError> {
        rule_manager::require_no_rules(source, self.entries)
    }
}

/// The settings and subjects of a configuration.
pub(super) fn non_rule_entries(config: &RuleConfig) -> Vec<EntryUpdate> {
    let kinds = [EntryKind::Setting, EntryKind::Subject];
    kinds.into_iter().flat_map(|kind| rule_manager::entries_of_kind(config, kind)).collect()
}

/// Reads and compiles the file; also returns the hash of its content.
pub(super) fn read_if_changed(
    source: &DocumentSource,
    secret: Secret,
    seen: &LastRead,
    always: bool,
) -> (Option<u64>, Option<Result<RulesFileContent, CommandError>>) {
    let bytes = match source.read_bytes() {
        Ok(bytes) => bytes,
        // Report a missing file once, not on every poll.
        Err(_) if seen.content_hash.is_none() && !always => return (None, None),
        Err(failure) => return (None, Some(Err(failure))),
    };
    let content = Some(rule_source::hash_content(&bytes, seen.key_file.as_deref()));
    if content == seen.content_hash && !always {
        return (content, None);
    }
    let read = source.load_from(&bytes, FileAccess::All).and_then(|loaded| {
        let rules = loaded.compile(secret)?;
        let entries = loaded.entries(&rules, secret)?;
        Ok(RulesFileContent { loaded, rules, entries })
    });
    (content, Some(read))
}
