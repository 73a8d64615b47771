//! Golden files: the imported document, then a `---` line and the unsupported features, or the
//! errors.

use std::path::{Path, PathBuf};

use tidegate_core::key::Secret;
use tidegate_rules::import::ImportResult;
use tidegate_rules::{Document, RuleSet};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/golden")
}

/// The content of a file to import.
pub(crate) fn input(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// Compares the text with a golden file.
pub(crate) fn assert_golden(name: &str, actual: &str) {
    tidegate_fixtures::golden::assert_golden(&folder().join(name), actual);
}

/// The text that is printed for an import. The document must be valid.
pub(crate) fn import_output(imported: &ImportResult) -> String {
    compile(&imported.document);
    let gaps = imported.unsupported.iter().map(|gap| format!("{gap}\n"));
    format!("{}---\n{}", imported.document, gaps.collect::<String>())
}

pub(crate) fn compile(document: &str) -> RuleSet {
    let read = Document::parse("imported.yaml", document);
    let compiled = read.and_then(|read| RuleSet::compile(&read, Secret::UNSET));
    compiled.unwrap_or_else(|problems| panic!("{problems}\n{document}"))
}
