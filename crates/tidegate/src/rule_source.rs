//! Where a limiter's rules come from: a document, limits in one line, or both.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::key::Secret;
use tidegate_rules::{Document, FactDeclarations, RuleSet};

use crate::error::RulesError;

/// The name of a document in error messages if it comes from the program itself.
const INLINE_NAME: &str = "rules";

/// The sources of the rules, as given by the program.
#[derive(Clone, Debug)]
pub(crate) struct RuleSource {
    pub(crate) document: Option<DocumentSource>,
    pub(crate) limits: Vec<String>,
    pub(crate) declared: FactDeclarations,
    pub(crate) secret: Secret,
}

/// A rules document.
#[derive(Clone, Debug)]
pub(crate) enum DocumentSource {
    Text(String),
    File(PathBuf),
}

impl Default for RuleSource {
    fn default() -> Self {
        let declared = FactDeclarations::default();
        Self { document: None, limits: Vec::new(), declared, secret: Secret::UNSET }
    }
}

impl RuleSource {
    /// Reads and compiles the rules.
    pub(crate) fn compile(&self) -> Result<RuleSet, RulesError> {
        let (name, text) = match &self.document {
            None if self.limits.is_empty() => return Err(RulesError::Missing),
            None => (INLINE_NAME.to_owned(), String::new()),
            Some(DocumentSource::Text(text)) => (INLINE_NAME.to_owned(), text.clone()),
            Some(DocumentSource::File(path)) => (path.display().to_string(), read_file(path)?),
        };
        let (mut document, ()) = Document::parse_with(&name, &text, &self.declared, |_| ())?;
        document.push_shorthands(&self.limits)?;
        if let Some(key_file) = document.key_file() {
            let key = read_file(&self.folder().join(key_file))?;
            document.set_key(&key);
        }
        Ok(RuleSet::compile(&document, self.secret)?)
    }

    /// The folder to which the paths in the document are relative.
    fn folder(&self) -> &Path {
        match &self.document {
            Some(DocumentSource::File(path)) => path.parent().unwrap_or(Path::new("")),
            _ => Path::new(""),
        }
    }
}

fn read_file(path: &Path) -> Result<String, RulesError> {
    let unreadable = |source| RulesError::UnreadableFile { path: path.to_owned(), source };
    fs::read_to_string(path).map_err(unreadable)
}
