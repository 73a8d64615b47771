//! Where rules come from: a file, limits on the command line, both, or the built-in example.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate_control::Entry;
use tidegate_core::key::{KeyHasher, Secret};
use tidegate_edge::extract::Extractor;
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

/// Key sets have a few kilobytes.
const MAX_KEY_BYTES: usize = 256 * 1024;

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
    /// The file of the key that tokens are checked with.
    pub(crate) key_file: Option<PathBuf>,
    /// A hash of the bytes of both files.
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

    /// The same source without limits of the command line.
    pub(crate) fn alone(&self) -> Self {
        Self { file: self.file.clone(), limits: Vec::new() }
    }

    /// A file beside the rules, with another ending.
    pub(crate) fn beside(&self, ending: &str) -> PathBuf {
        self.path().unwrap_or(Path::new("tidegate")).with_extension(ending)
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
        read_document(path)
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
        let text = utf8(&name, bytes)?;
        let read_section = |field: Option<Field<'_>>| config::read_section(field.as_ref());
        let (mut document, section) =
            Document::parse_with(&name, text, read_section).map_err(Failure::Invalid)?;
        document.push_shorthands(&self.limits).map_err(Failure::Limit)?;
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let key_file = document.key_file().map(|file| folder.join(file));
        let key = key_file.as_deref().map(|path| read_key(path, &name)).transpose()?;
        if let Some(key) = &key {
            put_key(&mut document, key);
        }
        let content = hash(bytes, key.as_deref());
        Ok(Loaded { document, section: section.beside(folder), key_file, content })
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

    /// What the document says, entry by entry; `rules` is what it compiles to.
    ///
    /// # Errors
    /// None, of a document that compiles.
    pub(crate) fn entries(&self, rules: &RuleSet, secret: Secret) -> Result<Vec<Entry>, Failure> {
        let document = &self.document;
        tidegate_control::entries(
            document.file(),
            document.source(),
            document.shorthands(),
            rules,
            secret,
        )
        .map_err(Failure::Invalid)
    }
}

/// A hash by which files that were only touched are told from those that changed.
pub(crate) fn content(bytes: &[u8], key_file: Option<&Path>) -> u64 {
    let key = key_file.and_then(|path| read(path, MAX_KEY_BYTES).ok());
    hash(bytes, key.as_deref())
}

fn hash(bytes: &[u8], key: Option<&[u8]>) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.part(bytes);
    key.into_iter().for_each(|key| hasher.part(key));
    hasher.finish().lo
}

fn read_key(path: &Path, document: &str) -> Result<Vec<u8>, Failure> {
    read(path, MAX_KEY_BYTES).map_err(|error| {
        let path = path.display();
        Failure::CouldNot(format!("cannot read {path}, the `key_file` of {document}: {error}"))
    })
}

/// Puts the key into the document. One of no use is told when the rules are compiled, with all
/// else that is wrong.
fn put_key(document: &mut Document, key: &[u8]) {
    match str::from_utf8(key) {
        Ok(_) if key.len() > MAX_KEY_BYTES => document.refuse_key("this file is too long"),
        Ok(text) => {
            document.put_key(text);
            if let Err(bad) = Extractor::new(document.identity()) {
                document.refuse_key(bad.to_string());
            }
        }
        Err(_) => document.refuse_key("this file is not UTF-8 text"),
    }
}

/// A file's bytes, as far as a document may be long.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read_document(path: &Path) -> Result<Vec<u8>, Failure> {
    read(path, MAX_DOCUMENT_BYTES)
        .map_err(|error| Failure::CouldNot(format!("cannot read {}: {error}", path.display())))
}

/// The text of a file.
///
/// # Errors
/// When it is not UTF-8, with the place.
pub(crate) fn utf8<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Failure> {
    let whole = |bytes: &'b [u8]| {
        str::from_utf8(bytes)
            .map_err(|error| Failure::Invalid(not_utf8(name, &bytes[..error.valid_up_to()])))
    };
    match str::from_utf8(bytes) {
        // Reading ended within a letter, because the document is too long, and that is what is told.
        Err(cut) if cut.error_len().is_none() && cut.valid_up_to() > MAX_DOCUMENT_BYTES => {
            whole(&bytes[..cut.valid_up_to()])
        }
        _ => whole(bytes),
    }
}

/// The longest letter of UTF-8.
const LETTER_BYTES: u64 = 4;

/// A letter more than there may be is read, so that whoever looks says that it is too long.
fn read(path: &Path, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(LETTER_BYTES);
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
