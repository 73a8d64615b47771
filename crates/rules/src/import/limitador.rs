//! Imports the limits file of Limitador.
//!
//! A limit has a namespace (the domain of a call), conditions that must all hold, and variables
//! that select the counter. Conditions and variables are CEL, of which only the common forms are
//! supported. A limit with any other expression is skipped and listed, because without the
//! expression the rule would mean something else.

mod cel;
mod constraints;
mod read;
mod translate;

use super::document_writer::DocumentWriter;
use super::unsupported::UnsupportedCollector;
use super::{ForeignFile, ImportResult};
use crate::decode::Diagnostics;
use crate::diagnostic::DocumentError;

/// Converts a limits file into a rules document.
///
/// # Errors
/// All errors of the file.
pub fn import(file: &ForeignFile<'_>) -> Result<ImportResult, DocumentError> {
    let diagnostics = Diagnostics::new(file.file, file.text);
    let mut gaps = UnsupportedCollector::new(file.file);
    let limits = read::read_limits(file.text, &diagnostics, &mut gaps);
    diagnostics.finish()?;
    let mut writer = DocumentWriter::new("");
    translate::translate_limits(&limits, &mut writer, &mut gaps);
    if writer.skipped > 0 {
        gaps.note_truncated(writer.skipped);
    }
    gaps.list.sort_by_key(|gap| gap.line);
    Ok(ImportResult { document: writer.finish(), unsupported: gaps.list })
}
