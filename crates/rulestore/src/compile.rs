//! Compiles a [`RuleConfig`] into a rule set and reports validation errors by entry.

use std::collections::HashMap;
use std::fmt;

use tidegate_core::time::Timestamp;
use tidegate_rules::diagnostic::{Diagnostic, DocumentError};
use tidegate_rules::{ExternalRecords, Rule, RuleSet};

use crate::entry_value::{self, StoredOverride, StoredSubject};
use crate::rule_config::{EntryKind, RuleConfig};
use crate::rule_document;

/// Compiles rules documents. The server's implementation also loads the token key, which a document
/// only names by path.
pub trait RuleCompiler: Send + Sync {
    /// Compiles a document.
    ///
    /// # Errors
    /// All problems found in the document.
    fn compile(&self, document: &str, files: FileAccess) -> Result<RuleSet, DocumentError>;
}

/// Which of the files named by a document may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Read all files: the document is this node's configuration.
    All,
    /// Read only files that the configuration already names: the document comes from a request. Any
    /// other file is refused with the same answer whether or not it exists.
    Configured,
    /// Read no files: only the rules are needed.
    None,
}

/// One validation error of a rule configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// The invalid rule or override, by id; `None` if the error concerns the whole document.
    pub entry: Option<(EntryKind, String)>,
    /// Path of the invalid field within the entry.
    pub field: String,
    /// The value found there.
    pub found: Option<String>,
    /// Description of the problem.
    pub message: String,
    /// Suggested replacement.
    pub hint: Option<String>,
}

impl ValidationError {
    /// An error that concerns the document as a whole.
    pub fn for_document(message: &str) -> Self {
        let (field, message) = (String::new(), message.to_owned());
        Self { entry: None, field, found: None, message, hint: None }
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((kind, id)) = &self.entry {
            write!(f, "{} {id}: ", kind.name())?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(found) = &self.found {
            write!(f, ", found `{found}`")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "; write {hint}"),
            None => Ok(()),
        }
    }
}

/// Compiles a configuration as of `now`; overrides that have expired by then are left out.
///
/// # Errors
/// All validation errors.
pub fn compile(
    config: &RuleConfig,
    compiler: &dyn RuleCompiler,
    files: FileAccess,
    now: Timestamp,
) -> Result<RuleSet, Vec<ValidationError>> {
    let rules = compile_content(config, compiler, files, now)?;
    Ok(rules.with_version(config.version()))
}

/// Like [`compile`], for a configuration without versions: the rule set's version is a hash of its
/// content.
///
/// # Errors
/// All validation errors.
pub fn compile_content(
    config: &RuleConfig,
    compiler: &dyn RuleCompiler,
    files: FileAccess,
    now: Timestamp,
) -> Result<RuleSet, Vec<ValidationError>> {
    let document = rule_document::render_document(config);
    let rules = compiler
        .compile(&document, files)
        .map_err(|problems| validation_errors(config, problems))?;
    let subjects = config.entries(EntryKind::Subject, None);
    let subjects =
        subjects.filter_map(|(_, entry)| entry_value::parse_value::<StoredSubject>(&entry.value));
    let overrides: Vec<StoredOverride> = active_overrides(config, now).collect();
    let by_id: HashMap<&str, &Rule> = rules.rules().iter().map(|rule| (rule.id(), rule)).collect();
    let mismatched: Vec<ValidationError> = overrides
        .iter()
        .filter_map(|stored| check_override_key(stored, by_id.get(&*stored.rule)?))
        .collect();
    if !mismatched.is_empty() {
        return Err(mismatched);
    }
    let records = ExternalRecords {
        subjects: subjects.map(|subject| subject.to_record()).collect(),
        overrides: overrides.iter().map(StoredOverride::to_record).collect(),
    };
    rules.with_records(&records).map_err(|problems| {
        let error = |at: usize, message| override_error(&overrides[at], "requests", message);
        problems.into_iter().map(|problem| error(problem.index, problem.message)).collect()
    })
}

/// The overrides that have not expired.
fn active_overrides(config: &RuleConfig, now: Timestamp) -> impl Iterator<Item = StoredOverride> {
    let all = config.entries(EntryKind::Override, None);
    let stored =
        all.filter_map(|(_, entry)| entry_value::parse_value::<StoredOverride>(&entry.value));
    stored.filter(move |stored| stored.until_us.is_none_or(|until| until > now.as_micros()))
}

/// Expiry of the next override.
#[must_use]
pub(crate) fn next_expiry(config: &RuleConfig, now: Timestamp) -> Option<Timestamp> {
    active_overrides(config, now)
        .filter_map(|stored| stored.until_us)
        .min()
        .map(Timestamp::from_micros)
}

/// Rejects an override whose rule now counts by other facts: its key would match no client.
fn check_override_key(stored: &StoredOverride, rule: &Rule) -> Option<ValidationError> {
    if rule.key_by().eq(stored.key_by.iter().map(String::as_str)) {
        return None;
    }
    let (stored_key, rule_key) =
        (stored.key_by.join(", "), rule.key_by().collect::<Vec<_>>().join(", "));
    let message = format!(
        "rule `{}` counts by {rule_key}, but this override is keyed by {stored_key}; \
         remove the override first",
        stored.rule
    );
    Some(override_error(stored, "key", message))
}

fn override_error(stored: &StoredOverride, field: &str, message: String) -> ValidationError {
    let (of, field) = (Some((EntryKind::Override, stored.id())), field.to_owned());
    ValidationError { entry: of, field, found: None, message, hint: None }
}

fn validation_errors(config: &RuleConfig, problems: DocumentError) -> Vec<ValidationError> {
    let rules = rule_document::ordered_rules(config);
    problems.list.into_iter().map(|problem| validation_error(&rules, problem)).collect()
}

/// Converts a diagnostic of the document, replacing the rule's index by its id.
fn validation_error<T>(rules: &[(&str, T)], problem: Diagnostic) -> ValidationError {
    let Diagnostic { field, found, message, hint, .. } = problem;
    let within = field.strip_prefix("rules[").and_then(|rest| rest.split_once(']'));
    let rule = within.and_then(|(at, rest)| {
        let (id, _) = rules.get(at.parse::<usize>().ok()?)?;
        Some(((EntryKind::Rule, (*id).to_owned()), rest.trim_start_matches('.').to_owned()))
    });
    match rule {
        Some((of, field)) => ValidationError { entry: Some(of), field, found, message, hint },
        None => ValidationError { entry: None, field, found, message, hint },
    }
}
