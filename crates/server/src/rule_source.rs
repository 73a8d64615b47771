//! Where the rules document comes from: a file, `--limit` flags, both, or the built-in example.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::key::{KeyHasher, Secret};
use tidegate_identity::Extractor;
use tidegate_rules::decode::Field;
use tidegate_rules::diagnostic::{Diagnostic, DocumentError, FieldError};
use tidegate_rules::{Document, FactDeclarations, MAX_DOCUMENT_BYTES, RuleSet};
use tidegate_rulestore::{EntryUpdate, FileAccess, file};

use crate::args::RuleSourceArgs;
use crate::config::{self, PartialSettings};
use crate::error::CommandError;

/// The document used when no rules are configured.
const BUILT_IN: &str = include_str!("../assets/builtin.yaml");

/// Name of the built-in example in error messages.
const BUILT_IN_NAME: &str = "built-in example";

/// Limit for key files; a key set has a few kilobytes.
const MAX_KEY_BYTES: u64 = 256 * 1024;

/// The source of a rules document.
#[derive(Clone, Debug)]
pub struct DocumentSource {
    file: Option<PathBuf>,
    limits: Vec<String>,
    declared: FactDeclarations,
    /// The region of this node; `None` if only documents name it.
    region: Option<String>,
    /// Key files named by documents of the configuration, shared by all clones of this value.
    /// Documents in requests may name only these.
    key_files: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A document that was parsed but not yet compiled.
#[derive(Debug)]
pub struct LoadedDocument {
    document: Document,
    /// Its `server:` section.
    pub section: PartialSettings,
    /// The key file for token verification.
    pub(crate) key_file: Option<PathBuf>,
    /// Hash of the content of both files.
    pub(crate) content_hash: u64,
}

impl DocumentSource {
    /// The source that the command line names.
    pub fn new(args: &RuleSourceArgs) -> Self {
        let declared = FactDeclarations {
            facts: args.declared_facts.clone(),
            api_key_header: args.api_key_header.clone(),
            any_fact: false,
        };
        let region = args.region.clone();
        Self { declared, region, ..Self::from_parts(args.config.clone(), args.limits.clone()) }
    }

    /// A source that is only a file.
    pub fn from_file(path: &Path) -> Self {
        Self::from_parts(Some(path.to_owned()), Vec::new())
    }

    fn from_parts(file: Option<PathBuf>, limits: Vec<String>) -> Self {
        Self {
            file,
            limits,
            declared: FactDeclarations::default(),
            region: None,
            key_files: Arc::default(),
        }
    }

    /// Whether no rules were configured.
    pub(crate) fn is_built_in(&self) -> bool {
        self.file.is_none() && self.limits.is_empty()
    }

    /// The file, if there is one to watch.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The same source for a node in this region, unless `None`.
    #[must_use]
    pub fn with_region(self, region: Option<String>) -> Self {
        Self { region: region.or(self.region), ..self }
    }

    /// The same source for a node that stays in the region of a loaded document.
    pub(crate) fn in_region_of(self, loaded: &LoadedDocument) -> Self {
        self.with_region(loaded.region().map(str::to_owned))
    }

    /// The same source without the additions of the command line.
    pub(crate) fn file_only(&self) -> Self {
        Self { limits: Vec::new(), declared: FactDeclarations::default(), ..self.clone() }
    }

    /// A path next to the rules file, with another extension.
    pub(crate) fn sibling_path(&self, ending: &str) -> PathBuf {
        self.path().unwrap_or(Path::new("tidegate")).with_extension(ending)
    }

    /// A short name of the source.
    pub fn name(&self) -> String {
        match &self.file {
            Some(path) => path.display().to_string(),
            None if self.is_built_in() => BUILT_IN_NAME.to_owned(),
            None => "--limit".to_owned(),
        }
    }

    /// Reads the file, up to the size limit of a document.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read_bytes(&self) -> Result<Vec<u8>, CommandError> {
        let Some(path) = &self.file else {
            let text = if self.is_built_in() { BUILT_IN } else { "" };
            return Ok(text.as_bytes().to_vec());
        };
        read_document(path)
    }

    /// Reads and checks the document and the files it names.
    ///
    /// # Errors
    /// When the file cannot be read, or with all errors of the document.
    pub fn load(&self) -> Result<LoadedDocument, CommandError> {
        self.load_from(&self.read_bytes()?, FileAccess::All)
    }

    /// Like [`Self::load`], for bytes already read; `files` limits the files they may name.
    ///
    /// # Errors
    /// With all errors of the document.
    pub(crate) fn load_from(
        &self,
        bytes: &[u8],
        files: FileAccess,
    ) -> Result<LoadedDocument, CommandError> {
        let name = self.name();
        let text = parse_utf8(&name, bytes)?;
        let read_section = |field: Option<Field<'_>>| config::read_section(field.as_ref());
        let (mut document, section) =
            Document::parse_with(&name, text, &self.declared, read_section)
                .map_err(CommandError::InvalidDocument)?;
        document.set_region(self.region.as_deref().or(section.region.as_deref()));
        document.push_shorthands(&self.limits).map_err(CommandError::InvalidLimit)?;
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let key_file = document.key_file().map(|file| folder.join(file));
        let key = match &key_file {
            Some(path) => self.put_key(path, &mut document, files)?,
            None => None,
        };
        let content = hash_parts(bytes, key.as_deref());
        Ok(LoadedDocument {
            document,
            section: section.resolve_paths(folder),
            key_file,
            content_hash: content,
        })
    }

    /// Reads the key file if this document may name it, stores the key in the document and returns
    /// its bytes. An unusable key is reported on compilation, together with the other errors.
    fn put_key(
        &self,
        path: &Path,
        document: &mut Document,
        files: FileAccess,
    ) -> Result<Option<Vec<u8>>, CommandError> {
        let mut known = self.key_files.lock();
        match files {
            FileAccess::All => _ = known.insert(path.to_owned()),
            FileAccess::Configured if known.contains(path) => {}
            FileAccess::Configured => {
                // Give the same error whether or not the file exists, so that callers cannot probe
                // for files.
                let remark = FieldError::new("this node's configuration does not name this file");
                document.set_key_error(remark.with_hint(
                    "the `key_file` of the active rules, or name this file in the --config document \
                     and restart",
                ));
                return Ok(None);
            }
            FileAccess::None => return Ok(None),
        }
        drop(known);
        let key = read_key(path, document.file())?;
        put_key(document, &key);
        Ok(Some(key))
    }
}

impl LoadedDocument {
    /// The region of this node.
    pub fn region(&self) -> Option<&str> {
        self.document.region()
    }

    /// Compiles the rules.
    ///
    /// # Errors
    /// With all errors of the document.
    pub fn compile(&self, secret: Secret) -> Result<RuleSet, CommandError> {
        RuleSet::compile(&self.document, secret).map_err(CommandError::InvalidDocument)
    }

    /// Splits the document into entries; `rules` is its compiled form.
    ///
    /// # Errors
    /// None for a document that compiles.
    pub(crate) fn entries(
        &self,
        rules: &RuleSet,
        secret: Secret,
    ) -> Result<Vec<EntryUpdate>, CommandError> {
        let document = &self.document;
        tidegate_rulestore::document_entries(
            document.file(),
            document.source(),
            document.shorthands(),
            document.declared(),
            rules,
            secret,
        )
        .map_err(CommandError::InvalidDocument)
    }
}

/// Content hash that distinguishes a changed file from one that was only touched.
pub(crate) fn hash_content(bytes: &[u8], key_file: Option<&Path>) -> u64 {
    let key = key_file.and_then(|path| file::read(path, MAX_KEY_BYTES).ok());
    hash_parts(bytes, key.as_deref())
}

fn hash_parts(bytes: &[u8], key: Option<&[u8]>) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.write_part(bytes);
    key.into_iter().for_each(|key| hasher.write_part(key));
    hasher.finish().lo
}

fn read_key(path: &Path, document: &str) -> Result<Vec<u8>, CommandError> {
    file::read(path, MAX_KEY_BYTES).map_err(|error| {
        let path = path.display();
        CommandError::Failed(format!("cannot read {path}, the `key_file` of {document}: {error}"))
    })
}

fn put_key(document: &mut Document, key: &[u8]) {
    let problem = match str::from_utf8(key) {
        Ok(text) => {
            document.set_key(text);
            Extractor::new(document.identity()).err().map(|error| error.to_string())
        }
        Err(_) => Some("this file is not UTF-8 text".to_owned()),
    };
    if let Some(problem) = problem {
        document.set_key_error(FieldError::new(problem).with_hint(
            "the file of a public key (PEM) or key set (JWKS), or `algorithm: HS256` and the file of \
             a shared secret",
        ));
    }
}

/// Reads a file, up to the size limit of a document.
///
/// # Errors
/// When the file cannot be read or is too large.
pub fn read_document(path: &Path) -> Result<Vec<u8>, CommandError> {
    let name = path.display().to_string();
    file::read(path, MAX_DOCUMENT_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => CommandError::InvalidDocument(size_problem(&name)),
        _ => CommandError::Failed(format!("cannot read {name}: {error}")),
    })
}

/// Decodes a file as UTF-8.
///
/// # Errors
/// When it is not UTF-8, with the position.
pub fn parse_utf8<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, CommandError> {
    str::from_utf8(bytes).map_err(|error| {
        CommandError::InvalidDocument(utf8_problem(name, &bytes[..error.valid_up_to()]))
    })
}

fn utf8_problem(file: &str, before: &[u8]) -> DocumentError {
    let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = String::from_utf8_lossy(last).chars().count() + 1;
    single_problem(file, (line, column), "this is not UTF-8 text", "the document in UTF-8")
}

fn size_problem(file: &str) -> DocumentError {
    let message = format!("the document is larger than {MAX_DOCUMENT_BYTES} bytes");
    single_problem(file, (0, 0), &message, "fewer rules, with lists or globs in `match`")
}

/// The only problem of a document that cannot be parsed any further.
fn single_problem(
    file: &str,
    (line, column): (usize, usize),
    message: &str,
    hint: &str,
) -> DocumentError {
    let problem = Diagnostic {
        line,
        column,
        field: String::new(),
        found: None,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
        excerpt: None,
    };
    DocumentError { file: file.to_owned(), list: vec![problem], omitted: 0 }
}
