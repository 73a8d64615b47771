//! Where rules come from: a file, limits on the command line, both, or the built-in example.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate_core::key::{KeyHasher, Secret};
use tidegate_rules::decode::Field;
use tidegate_rules::problem::{Problem, Problems};
use tidegate_rules::{Document, MAX_DOCUMENT_BYTES, RuleSet};

use crate::cli::RulesArgs;
use crate::config::{self, Layer};
use crate::failure::Failure;

/// What runs when nobody names any rules.
const BUILT_IN: &str = include_str!("../assets/builtin.yaml");

/// The name under which problems of the built-in example would be told.
const BUILT_IN_NAME: &str = "built-in example";

/// Where rules come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    file: Option<PathBuf>,
    limits: Vec<String>,
}

/// A document that was read, not yet compiled.
#[derive(Debug)]
pub(crate) struct Loaded {
    document: Document,
    /// What its `server:` section says.
    pub(crate) section: Layer,
    /// A hash of the file's bytes.
    pub(crate) content: u64,
}

impl Source {
    /// The rules that the command line names.
    pub(crate) fn new(args: &RulesArgs) -> Self {
        Self { file: args.config.clone(), limits: args.limits.clone() }
    }

    /// The rules of a file alone.
    pub(crate) fn file(path: &Path) -> Self {
        Self { file: Some(path.to_owned()), limits: Vec::new() }
    }

    /// Whether nobody named any rules.
    pub(crate) fn is_built_in(&self) -> bool {
        self.file.is_none() && self.limits.is_empty()
    }

    /// The file, if there is one that may change.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The source in a few words.
    pub(crate) fn name(&self) -> String {
        match &self.file {
            Some(path) => path.display().to_string(),
            None if self.is_built_in() => BUILT_IN_NAME.to_owned(),
            None => "--limit".to_owned(),
        }
    }

    /// The file's bytes, as far as a document may be long.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let Some(path) = &self.file else {
            let text = if self.is_built_in() { BUILT_IN } else { "" };
            return Ok(text.as_bytes().to_vec());
        };
        read(path)
            .map_err(|error| Failure::CouldNot(format!("cannot read {}: {error}", path.display())))
    }

    /// Reads and checks everything.
    ///
    /// # Errors
    /// When the file cannot be read, or all that is wrong with it.
    pub(crate) fn load(&self) -> Result<Loaded, Failure> {
        self.load_from(&self.bytes()?)
    }

    /// The same, with the file's bytes already at hand.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(crate) fn load_from(&self, bytes: &[u8]) -> Result<Loaded, Failure> {
        let name = self.name();
        let text = str::from_utf8(bytes)
            .map_err(|error| Failure::Invalid(not_utf8(&name, &bytes[..error.valid_up_to()])))?;
        let read_section = |field: Option<Field<'_>>| config::read_section(field.as_ref());
        let (mut document, section) =
            Document::parse_with(&name, text, read_section).map_err(Failure::Invalid)?;
        document.push_shorthands(&self.limits).map_err(Failure::Limit)?;
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        Ok(Loaded { document, section: section.beside(folder), content: hash(bytes) })
    }
}

impl Loaded {
    /// Compiles the rules.
    ///
    /// # Errors
    /// All that is wrong with the document.
    pub(crate) fn compile(&self, secret: Secret) -> Result<RuleSet, Failure> {
        RuleSet::compile(&self.document, secret).map_err(Failure::Invalid)
    }
}

/// A hash by which a file that was only touched is told from one that changed.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.part(bytes);
    hasher.finish().lo
}

/// One byte more than a document may have is read, so that the parser says that it is too long.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_DOCUMENT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn not_utf8(file: &str, before: &[u8]) -> Problems {
    let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let problem = Problem {
        line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
        column: String::from_utf8_lossy(last).chars().count() + 1,
        field: String::new(),
        found: None,
        message: "this is not UTF-8 text".to_owned(),
        hint: Some("the document in UTF-8".to_owned()),
        excerpt: None,
    };
    Problems { file: file.to_owned(), list: vec![problem], omitted: 0 }
}
