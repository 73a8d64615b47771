//! Where rules come from: a file, limits on the command line, both, or the built-in example.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_control::{Entry, Files, file};
use tidegate_core::key::{KeyHasher, Secret};
use tidegate_edge::extract::Extractor;
use tidegate_rules::decode::Field;
use tidegate_rules::problem::{Problem, Problems, Remark};
use tidegate_rules::{Declarations, Document, MAX_DOCUMENT_BYTES, RuleSet};

use crate::cli::RulesArgs;
use crate::config::{self, Layer};
use crate::failure::Failure;

/// What runs when nobody names any rules.
const BUILT_IN: &str = include_str!("../assets/builtin.yaml");

/// The name under which problems of the built-in example would be told.
const BUILT_IN_NAME: &str = "built-in example";

/// Key sets have a few kilobytes.
const MAX_KEY_BYTES: u64 = 256 * 1024;

/// Where rules come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    file: Option<PathBuf>,
    limits: Vec<String>,
    declared: Declarations,
    /// The key files that documents of the configuration have named, whichever copy of this value
    /// read them. Documents of requests may name no others.
    key_files: Arc<Mutex<BTreeSet<PathBuf>>>,
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
        let declared = Declarations {
            facts: args.brought.clone(),
            api_key_header: args.api_key_header.clone(),
            any_fact: false,
        };
        Self { declared, ..Self::of(args.config.clone(), args.limits.clone()) }
    }

    /// The rules of a file alone.
    pub(crate) fn file(path: &Path) -> Self {
        Self::of(Some(path.to_owned()), Vec::new())
    }

    fn of(file: Option<PathBuf>, limits: Vec<String>) -> Self {
        Self { file, limits, declared: Declarations::default(), key_files: Arc::default() }
    }

    /// Whether nobody named any rules.
    pub(crate) fn is_built_in(&self) -> bool {
        self.file.is_none() && self.limits.is_empty()
    }

    /// The file, if there is one that may change.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The same source without what the command line adds.
    pub(crate) fn alone(&self) -> Self {
        Self { limits: Vec::new(), declared: Declarations::default(), ..self.clone() }
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
        self.load_from(&self.bytes()?, Files::All)
    }

    /// The same for bytes that are read already; `files` says which files they may name.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(crate) fn load_from(&self, bytes: &[u8], files: Files) -> Result<Loaded, Failure> {
        let name = self.name();
        let text = utf8(&name, bytes)?;
        let read_section = |field: Option<Field<'_>>| config::read_section(field.as_ref());
        let (mut document, section) =
            Document::parse_with(&name, text, &self.declared, read_section)
                .map_err(Failure::Invalid)?;
        document.push_shorthands(&self.limits).map_err(Failure::Limit)?;
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let key_file = document.key_file().map(|file| folder.join(file));
        let key = match &key_file {
            Some(path) => self.put_key(path, &mut document, files)?,
            None => None,
        };
        let content = hash(bytes, key.as_deref());
        Ok(Loaded { document, section: section.beside(folder), key_file, content })
    }

    /// Reads the key file, if this document may, puts the key into the document and returns its bytes.
    /// Compiling reports a key of no use, with all else that is wrong.
    fn put_key(
        &self,
        path: &Path,
        document: &mut Document,
        files: Files,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let mut known = self.key_files.lock();
        match files {
            Files::All => _ = known.insert(path.to_owned()),
            Files::Configured if known.contains(path) => {}
            Files::Configured => {
                // The same answer whether or not there is such a file.
                let remark = Remark::new("the configuration of this node names no such file");
                document.refuse_key(remark.write(
                    "the `key_file` of the rules in force, or name this one in the file of --config and \
                     restart",
                ));
                return Ok(None);
            }
            Files::None => return Ok(None),
        }
        drop(known);
        let key = read_key(path, document.file())?;
        put_key(document, &key);
        Ok(Some(key))
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
            document.declared(),
            rules,
            secret,
        )
        .map_err(Failure::Invalid)
    }
}

/// A hash by which files that were only touched are told from those that changed.
pub(crate) fn content(bytes: &[u8], key_file: Option<&Path>) -> u64 {
    let key = key_file.and_then(|path| file::read(path, MAX_KEY_BYTES).ok());
    hash(bytes, key.as_deref())
}

fn hash(bytes: &[u8], key: Option<&[u8]>) -> u64 {
    let mut hasher = KeyHasher::new(Secret::UNSET);
    hasher.part(bytes);
    key.into_iter().for_each(|key| hasher.part(key));
    hasher.finish().lo
}

fn read_key(path: &Path, document: &str) -> Result<Vec<u8>, Failure> {
    file::read(path, MAX_KEY_BYTES).map_err(|error| {
        let path = path.display();
        Failure::CouldNot(format!("cannot read {path}, the `key_file` of {document}: {error}"))
    })
}

fn put_key(document: &mut Document, key: &[u8]) {
    let fault = match str::from_utf8(key) {
        Ok(text) => {
            document.put_key(text);
            Extractor::new(document.identity()).err().map(|bad| bad.to_string())
        }
        Err(_) => Some("this file is not UTF-8 text".to_owned()),
    };
    if let Some(fault) = fault {
        document.refuse_key(Remark::new(fault).write(
            "the file of a public key (PEM), of a key set (JWKS), or `algorithm: HS256` beside that of a \
             shared secret",
        ));
    }
}

/// A file's bytes, as far as a document may be long.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read_document(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    file::read(path, MAX_DOCUMENT_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => Failure::Invalid(too_large(&name)),
        _ => Failure::CouldNot(format!("cannot read {name}: {error}")),
    })
}

/// The text of a file.
///
/// # Errors
/// When it is not UTF-8, with the place.
pub(crate) fn utf8<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, Failure> {
    str::from_utf8(bytes)
        .map_err(|error| Failure::Invalid(not_utf8(name, &bytes[..error.valid_up_to()])))
}

fn not_utf8(file: &str, before: &[u8]) -> Problems {
    let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = String::from_utf8_lossy(last).chars().count() + 1;
    only(file, (line, column), "this is not UTF-8 text", "the document in UTF-8")
}

fn too_large(file: &str) -> Problems {
    let message = format!("the document is larger than {MAX_DOCUMENT_BYTES} bytes");
    only(file, (0, 0), &message, "fewer rules, with lists or globs in `match`")
}

/// The only problem of a document that is not read any further.
fn only(file: &str, (line, column): (usize, usize), message: &str, hint: &str) -> Problems {
    let problem = Problem {
        line,
        column,
        field: String::new(),
        found: None,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
        excerpt: None,
    };
    Problems { file: file.to_owned(), list: vec![problem], omitted: 0 }
}
